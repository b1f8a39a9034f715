"""Reads a JSON document value by value, so that its content does not decide how much memory it takes.

Decoded as a whole, a few megabytes of empty arrays or small numbers take gigabytes. Here one value is decoded at a
time, within a window of the document; larger ones are walked through by their keys and items.

Security: reads JSON of third parties. The size of a decoded value, the number of values and the nesting are bounded,
and every byte of the document is checked.
"""

import codecs
import json
import re
from collections.abc import Iterator
from typing import NoReturn

import msgspec

from mailwarden.feeds.indicators import reject

WINDOW = 4 * 1024 * 1024  # bytes; a larger value is not decoded
MAX_VALUES = 2_000_000  # that are decoded one by one: seconds of work
MAX_DEPTH = 50  # of values that are larger than the window
_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)


class _TooLarge(Exception):
    """The value does not end within the window, or is not JSON."""


class JsonReader:
    """A position in a document. The reader of keys or items reads or skips the value of each before the next."""

    def __init__(self, data: bytes, where: str = "") -> None:
        self._data = data
        self._where = where
        self._values = 0
        self._start = self._at = 0
        self._load(0)

    def peek(self) -> str:
        """Return the first character of the next value or mark; empty at the end of the document."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches always
            if self._at < len(self._text):
                return self._text[self._at]
            if self._is_last:
                return ""
            self._slide()

    def value(self) -> object:
        """Return the next value; one that is larger than the window rejects the update."""
        try:
            return self._value()
        except _TooLarge:
            raise self._reject(f"a value has more than {WINDOW:,} bytes, or is not JSON") from None

    def skip(self, depth: int = 0) -> None:
        """Pass over the next value, of any size."""
        try:
            self._value()
        except _TooLarge:
            if depth == MAX_DEPTH:
                raise self._reject("the JSON is nested too deep") from None
            for _ in self.fields() if self.peek() == "{" else self.items():
                self.skip(depth + 1)

    def fields(self) -> Iterator[str]:
        """Yield the names of the fields of the object that begins here."""
        for _ in self._members("{", "}"):
            key = self.value()
            if not isinstance(key, str):
                raise self._reject("not JSON: a key is no string")
            self._expect(":")
            yield key

    def items(self) -> Iterator[None]:
        """Yield for each item of the array that begins here."""
        yield from self._members("[", "]")

    def end(self) -> None:
        """Reject the update if something follows."""
        if self.peek():
            raise self._reject("not JSON: something follows the document")

    def mark(self) -> tuple[int, int]:
        return self._start, self._at

    def seek(self, mark: tuple[int, int]) -> None:
        """Go back to a mark."""
        if mark[0] != self._start:
            self._load(mark[0])
        self._at = mark[1]

    def _members(self, first: str, last: str) -> Iterator[None]:
        self._expect(first)
        if self.peek() == last:
            self._at += 1
            return
        while True:
            yield
            if self.peek() == last:
                self._at += 1
                return
            self._expect(",")

    def _expect(self, mark: str) -> None:
        if self.peek() != mark:
            raise self._reject(f"not JSON: `{mark}` is missing")
        self._at += 1

    def _value(self) -> object:
        """Return the next value, or raise _TooLarge and stay where it begins."""
        if not self.peek():
            raise self._reject("not JSON: the document ends early")
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._reject(f"the document has more than {MAX_VALUES:,} values")
        while True:
            try:
                found, end = _decoder.raw_decode(self._text, self._at)
            except RecursionError:
                raise self._reject("the JSON is nested too deep") from None
            except ValueError as error:
                if self._is_last:
                    raise self._reject(f"not JSON: {error}") from None
            else:
                if end + 2 < len(self._text) or self._is_last:  # a number could go on behind the window, as in 1e+5
                    self._check(found)
                    self._at = end
                    return found
            if self._at == 0:
                raise _TooLarge
            self._slide()

    def _check(self, found: object) -> None:
        """Reject half a surrogate pair: it cannot be stored as UTF-8."""
        if self._has_surrogates:
            try:
                msgspec.json.encode(found)
            except UnicodeEncodeError:
                raise self._reject("not JSON: half a surrogate pair") from None

    def _slide(self) -> None:
        passed = self._text[: self._at]
        self._load(self._start + (len(passed) if passed.isascii() else len(passed.encode())))

    def _load(self, start: int) -> None:
        """Load the window that begins at this byte."""
        piece = self._data[start : start + WINDOW]
        self._is_last = start + len(piece) >= len(self._data)
        try:
            self._text, used = codecs.utf_8_decode(piece, "strict", self._is_last)
        except UnicodeDecodeError as error:
            raise self._reject(f"byte {start + error.start:,} is not UTF-8") from None
        assert used or not piece, "a window is longer than a character"
        self._start, self._at = start, 0
        self._has_surrogates = _SURROGATE.search(self._text) is not None

    def _reject(self, what: str) -> Exception:
        return reject(what, self._where)
