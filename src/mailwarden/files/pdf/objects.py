"""Reads the source of a PDF: values and objects by number (ISO 32000-1, section 7.3).

Security: hostile bytes; objects and bytes are bounded by the message's limits, every pattern is linear, and it
never raises.
"""

import binascii
import re
from collections.abc import Iterator, Sequence

from mailwarden.files.pdf.streams import NOT_HEX, TooLong, Undecodable, decode_stream
from mailwarden.message.coverage import Coverage
from mailwarden.model.place import WHOLE_MESSAGE, Place

_BLANK = re.compile(rb"(?:[\0\t\n\f\r ]|%[^\r\n]*)*")
_REFERENCE = re.compile(rb"(\d{1,10})[\0\t\n\f\r ]{1,9}\d{1,5}[\0\t\n\f\r ]{1,9}R(?![A-Za-z0-9])")
_PAREN = re.compile(rb"\\.|[()]", re.DOTALL)
_MARK = re.compile(rb"\\.|[()]|<<|>>", re.DOTALL)
_BACKSLASH = re.compile(rb"\\([0-7]{1,3}|\r\n|.)", re.DOTALL)
_ESCAPE = re.compile(rb"#([0-9a-fA-F]{2})")
ESCAPED_NAME = re.compile(rb"/[A-Za-z0-9]{0,30}#[0-9a-fA-F]{2}[A-Za-z0-9#]{0,60}")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"\n": b"", b"\r": b"", b"\r\n": b""}

_DEFINITION = re.compile(rb"(?<![0-9])(\d{1,10})\s{1,9}\d{1,5}\s{1,9}$")
_BEFORE = 40  # bytes before "obj" in which its number stands
_SCRIPT = re.compile(rb"/JS(?![A-Za-z0-9])")
_STREAM = re.compile(rb"\bstream(?:\r\n|\n|\r|(?=[^\s]))")
_NUMBERS = re.compile(rb"\s{0,9}(?:\d{1,10}\s{1,9}\d{1,10}\s{1,9})+")


def skip_blank(text: bytes, position: int) -> int:
    """Return where the next token begins, behind white space and comments."""
    found = _BLANK.match(text, position)
    return found.end() if found else position


def read_reference(text: bytes, position: int) -> bytes:
    """Return the number of the object that is named there, or b""."""
    found = _REFERENCE.match(text, position)
    return found[1].lstrip(b"0") or b"0" if found else b""


def read_string(text: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
    """Return the string that begins there and where it ends; None if there is none, or it has no end."""
    if text[position : position + 1] == b"(":
        return _read_literal(text, position + 1, limit)
    if text[position : position + 1] == b"<" and text[position + 1 : position + 2] != b"<":
        end = text.find(b">", position, position + 2 * limit)
        if end > 0:
            digits = NOT_HEX.sub(b"", text[position + 1 : end])
            return binascii.unhexlify(digits + b"0" * (len(digits) % 2)), end + 1
    return None, position


def _read_literal(text: bytes, start: int, limit: int) -> tuple[bytes | None, int]:
    """Read up to the parenthesis that closes the string; inner ones are balanced, or escaped."""
    depth = 1
    for mark in _PAREN.finditer(text, start, start + limit):
        depth += (mark[0] == b"(") - (mark[0] == b")")
        if depth == 0:
            return _BACKSLASH.sub(_unescaped, text[start : mark.start()]), mark.end()
    return None, start


def _unescaped(escaped: re.Match[bytes]) -> bytes:
    code = escaped[1]
    if b"0" <= code[:1] < b"8":
        return bytes([int(code, 8) & 0xFF])
    return _ESCAPED.get(code, code)


def decode_string(data: bytes) -> str:
    """Return the text of a string: UTF-16 or UTF-8 by its byte order mark, else as if it were Latin-1."""
    if data.startswith((b"\xfe\xff", b"\xff\xfe")):
        return data.decode("utf-16", "replace")
    if data.startswith(b"\xef\xbb\xbf"):
        return data[3:].decode("utf-8", "replace")
    return data.decode("latin-1")


def unescape_name(name: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), name)


def unescape_names(text: bytes) -> bytes:
    """Return a source with every name written plainly."""
    return ESCAPED_NAME.sub(lambda match: unescape_name(match[0]), text)


def dictionary_at(text: bytes, start: int, limit: int) -> bytes:
    """Return the dictionary that begins there; brackets inside strings do not count."""
    depth = strings = 0
    for mark in _MARK.finditer(text, start, start + limit):
        if mark[0] in (b"(", b")"):
            strings = max(strings + (1 if mark[0] == b"(" else -1), 0)
        elif not strings and mark[0] in (b"<<", b">>"):
            depth += 1 if mark[0] == b"<<" else -1
            if depth == 0:
                return text[start : mark.end()]
    return text[start : start + limit]


class PdfObjects:
    """Finds objects in the sources of a document, and in its object streams, which are given decoded."""

    def __init__(
        self,
        sources: Sequence[bytes],
        packed: Sequence[bytes] = (),
        coverage: Coverage | None = None,
        place: Place = WHOLE_MESSAGE,
    ) -> None:
        self.coverage = coverage or Coverage()
        self.place = place
        self.limits = self.coverage.limits
        self._sources = tuple(sources)
        self._packed = tuple(packed)
        self._index: dict[bytes, list[tuple[bytes, int, bool]]] | None = None
        self._found: dict[bytes, bytes] = {}
        self._room = self.limits.pdf_unpacked

    def find(self, number: bytes) -> bytes:
        """Return an object by its number; of one that is defined several times, all definitions."""
        if number not in self._found:
            found = b"\n".join(self._definitions(number))
            self._room -= len(found)
            self._found[number] = found
        return self._found[number]

    def dictionary(self, text: bytes, start: int) -> bytes:
        found = dictionary_at(text, start, self.limits.pdf_dictionary)
        if len(found) >= self.limits.pdf_dictionary:
            self.coverage.beyond("pdf_dictionary", self.place)
        return found

    def string(self, text: bytes, position: int) -> str | None:
        """Return the string that stands there or in the object that is named there; None if there is none."""
        position = skip_blank(text, position)
        if number := read_reference(text, position):
            text, position = self.find(number), 0
            position = skip_blank(text, 0)
        data = self._read_string(text, position)
        return None if data is None else decode_string(data)

    def _read_string(self, text: bytes, position: int) -> bytes | None:
        """Return the string that stands there; one that is longer than a script may be is recorded as missed."""
        data, _ = read_string(text, position, self.limits.pdf_script)
        if (
            data is None
            and text[position : position + 1] in (b"(", b"<")
            and len(text) - position > self.limits.pdf_script
        ):
            self.coverage.beyond("pdf_script", self.place)
        return data

    def scripts(self, action: bytes) -> Iterator[str]:
        """Yield the scripts in an object, or in the objects that it names; "" for one that cannot be read."""
        for key in self.coverage.first(_SCRIPT.finditer(action), "pdf_scripts", self.place):
            position = skip_blank(action, key.end())
            if number := read_reference(action, position):
                yield self._script_of(self.find(number))
            else:
                data = self._read_string(action, position)
                yield decode_string(data) if data else ""

    def _script_of(self, item: bytes) -> str:
        """Return the script in an object: a string, or a stream that is decoded."""
        start = _STREAM.search(item)
        if start is None:
            data = self._read_string(item, skip_blank(item, 0))
            return decode_string(data) if data else ""
        body = item[start.end() :]
        end = body.rfind(b"endstream")
        try:
            decoded = decode_stream(item[: start.start()], body[: end if end >= 0 else None], self.limits.pdf_script)
        except TooLong:
            self.coverage.beyond("pdf_script", self.place)
            return ""
        except Undecodable:
            return ""
        return decode_string(decoded)

    def _definitions(self, number: bytes) -> Iterator[bytes]:
        if self._index is None:
            self._index = self._build_index()
        for source, start, is_packed in self._index.get(number, ()):
            if self._room <= 0:
                self.coverage.beyond("pdf_unpacked", self.place)
                return
            most = self.limits.pdf_dictionary if is_packed else self.limits.pdf_script
            end = -1 if is_packed else source.find(b"endobj", start, start + most)
            if end < 0 and start + most < len(source) and _STREAM.search(source, start, start + most) is None:
                self.coverage.beyond("pdf_dictionary", self.place)
            yield source[start : end if end >= 0 else start + most]

    def _build_index(self) -> dict[bytes, list[tuple[bytes, int, bool]]]:
        index: dict[bytes, list[tuple[bytes, int, bool]]] = {}
        found = (each for source in self._sources for each in _numbered(source))
        for number, source, start in self.coverage.first(found, "pdf_objects", self.place):
            index.setdefault(number, []).append((source, start, False))
        for text in self._packed:
            if head := _NUMBERS.match(text):
                pairs = head[0].split()
                for name, offset in zip(pairs[::2], pairs[1::2], strict=False):
                    index.setdefault(name, []).append((text, head.end() + int(offset), True))
        # Of an object that is written again and again, readers take one of the last; the first is what it was.
        return {
            number: places if len(places) <= self.limits.pdf_definitions else self._cut(places)
            for number, places in index.items()
        }

    def _cut(self, places: list[tuple[bytes, int, bool]]) -> list[tuple[bytes, int, bool]]:
        self.coverage.beyond("pdf_definitions", self.place)
        return places[-self.limits.pdf_definitions :]


def _numbered(source: bytes) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield the number of each object that a source defines, and where its content begins."""
    position = source.find(b"obj")
    while position >= 0:
        if before := _DEFINITION.search(source[max(position - _BEFORE, 0) : position]):
            yield before[1].lstrip(b"0") or b"0", source, position + 3
        position = source.find(b"obj", position + 3)
