"""The objects of a PDF by their numbers, and the scripts that stand in them or that they name.

Security: hostile bytes; every search is bounded, every pattern is linear, and it never raises.
"""

import re
import zlib
from collections.abc import Iterator, Sequence

MAX_SCRIPT = 256 * 1024
_MAX_ACTION = 16_384
_MAX_MENTIONS = 5_000  # of a number in the file, until it is given up to find its object
_MAX_SCRIPTS = 20  # of one object

_BEGINS = re.compile(rb"\s{1,4}\d{1,5}\s{1,4}obj\b")
_SCRIPT = re.compile(rb"/JS\s{0,4}(?:(\()|<([0-9a-fA-F\s]{2,65536}+)>|(\d{1,9})\s{1,4}\d{1,5}\s{1,4}R\b)")
_MARK = re.compile(rb"\\.|[()]|<<|>>", re.DOTALL)
_PAREN = re.compile(rb"\\.|[()]", re.DOTALL)
_BACKSLASH = re.compile(rb"\\([0-7]{1,3}|\r\n|.)", re.DOTALL)
_STREAM = re.compile(rb"\bstream\r?\n")
_FILTERS = re.compile(rb"/(?:Filter|F)\s{0,4}\[?\s{0,4}((?:/[A-Za-z0-9]{1,30}\s{0,4}){1,10})")
_NUMBERS = re.compile(rb"\s{0,9}(?:\d{1,9}\s{1,9}\d{1,9}\s{1,9}){1,500}+")
_PACKED_ONCE = (b"/FlateDecode", b"/Fl")


class PdfObjects:
    """Finds objects in a file and in its unpacked streams of objects."""

    def __init__(self, content: bytes, packed: Sequence[bytes]) -> None:
        self.texts = (content, *packed)
        self._content = content
        self._packed = packed

    def find(self, number: bytes) -> bytes:
        """Return an object by its number; of one that was written anew, what it was and what it is."""
        if starts := self._starts(number):
            return b"\n".join(map(self._until_end, starts))
        for text in self._packed:
            if head := _NUMBERS.match(text):
                pairs = head[0].split()
                for name, offset in zip(pairs[::2], pairs[1::2], strict=False):
                    if name == number:
                        start = head.end() + int(offset)
                        return text[start : start + _MAX_ACTION]
        return b""

    def scripts(self, action: bytes) -> Iterator[str]:
        """Yield the scripts that stand in an object or that it names, "" for one that cannot be read."""
        position = 0
        for _ in range(_MAX_SCRIPTS):
            match = _SCRIPT.search(action, position)
            if match is None:
                return
            position = match.end()
            if match[1]:
                data, position = _read_literal(action, position)
            elif match[2]:
                digits = b"".join(match[2].split())
                data = bytes.fromhex(digits[: len(digits) // 2 * 2].decode("ascii"))
            else:
                data = _unpack(self.find(match[3]))
            yield data.decode("utf-16" if data.startswith((b"\xfe\xff", b"\xff\xfe")) else "latin-1", "replace")
        yield ""  # there may be more of them

    def _until_end(self, start: int) -> bytes:
        end = self._content.find(b"endobj", start, start + MAX_SCRIPT)
        return self._content[start : end if end >= 0 else start + _MAX_ACTION]

    def _starts(self, number: bytes) -> tuple[int, ...]:
        """Return where the object of a number begins: as programs write it, else as readers take it too."""
        written = b"\n" + number + b" 0 obj"
        if (place := self._content.find(written)) >= 0:
            return tuple(each + len(written) for each in dict.fromkeys((place, self._content.rfind(written))))
        place = self._content.find(number)
        for _ in range(_MAX_MENTIONS):
            if place < 0:
                break
            match = _BEGINS.match(self._content, place + len(number))
            if match and not self._content[place - 1 : place].isdigit():
                return (match.end(),)
            place = self._content.find(number, place + 1)
        return ()


def dictionary_at(text: bytes, start: int) -> bytes:
    """Return what stands between the brackets that open there, strings left alone."""
    depth = strings = 0
    for mark in _MARK.finditer(text, start, start + _MAX_ACTION):
        if mark[0] in (b"(", b")"):
            strings = max(strings + (1 if mark[0] == b"(" else -1), 0)
        elif not strings and mark[0] in (b"<<", b">>"):
            depth += 1 if mark[0] == b"<<" else -1
            if depth == 0:
                return text[start : mark.end()]
    return text[start : start + _MAX_ACTION]


def _read_literal(text: bytes, start: int) -> tuple[bytes, int]:
    """Return the string that begins there and where it ends; one without an end is none."""
    depth = 1
    for mark in _PAREN.finditer(text, start, start + MAX_SCRIPT):
        depth += (mark[0] == b"(") - (mark[0] == b")")
        if depth == 0:
            return _BACKSLASH.sub(_plain, text[start : mark.start()]), mark.end()
    return b"", len(text)


def _plain(escaped: re.Match[bytes]) -> bytes:
    """Return what an escape stands for; a line that goes on below is one line."""
    sign = escaped[1]
    if sign[:1].isdigit() and sign[:1] < b"8":
        return bytes([int(sign, 8) & 0xFF])
    return {b"n": b"\n", b"r": b"\n", b"t": b"\t", b"\n": b"", b"\r": b"", b"\r\n": b""}.get(sign, sign)


def _unpack(item: bytes) -> bytes:
    """Return the content of a stream that is packed once or not at all, b"" where it cannot be read to its end."""
    start = _STREAM.search(item)
    if start is None:
        return item
    data = item[start.end() :]
    filters = _FILTERS.search(item[: start.start()])
    if filters is None:
        return data
    if filters[1].strip() not in _PACKED_ONCE:
        return b""
    try:
        unpacked = zlib.decompressobj().decompress(data, MAX_SCRIPT)
    except zlib.error:
        return b""
    return unpacked if len(unpacked) < MAX_SCRIPT else b""
