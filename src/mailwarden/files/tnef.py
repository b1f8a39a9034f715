"""TNEF, the container `winmail.dat` of Outlook (MS-OXTNEF): its files with their long names, and the message's text.

There is no maintained library under a permissive licence: `tnefparse` is LGPL and unmaintained since 2021.
Security: reads hostile bytes inside a killable worker; every length is checked against the content, the loops are
linear in it, and truncated content is recorded.
"""

import struct
from collections.abc import Iterator

from mailwarden.files.container import Entry, Opening, SeenFile
from mailwarden.files.rtf import read_outlook_rtf, unpack_rtf
from mailwarden.message.file_names import ending_of
from mailwarden.model.place import Place

TNEF = b"\x78\x9f\x3e\x22"
_TITLE, _DATA, _BEGIN = 0x00018010, 0x0006800F, 0x00069002  # of an attached file
_PROPERTIES, _FILE_PROPERTIES, _TEXT = 0x00069003, 0x00069005, 0x0002800C
_PLAIN, _RTF, _HTML = 0x1000, 0x1009, 0x1013
_CONTENT, _LONG_NAME, _NAMES = 0x3701, 0x3707, (0x3704, 0x3001)
_OBJECT, _STRING8, _UNICODE, _BINARY = 0x000D, 0x001E, 0x001F, 0x0102
_FIXED = {0x0001: 4, 0x0002: 4, 0x0003: 4, 0x0004: 4, 0x0005: 8, 0x0006: 8, 0x0007: 8, 0x000A: 4, 0x000B: 4,
          0x0014: 8, 0x0040: 8, 0x0048: 16}  # fmt: skip
_SEVERAL, _NAMED = 0x1000, 0x8000


class _Cut(Exception):
    """The content ends before it should, or has a type that does not exist."""


def is_tnef(content: bytes) -> bool:
    return content.startswith(TNEF)


def read_tnef(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the files and the texts; a new file begins with a field of its own, its properties come in any order."""
    names: list[str] = []
    data: list[tuple[bytes, bool]] = []
    for kind, value in _fields(file, opening):
        if kind == _BEGIN:
            yield from _attached(names, data)
            names, data = [], []
        elif kind == _TITLE:
            names.append(_string(value))
        elif kind == _DATA:
            data.append((value, False))
        elif kind == _TEXT:
            yield Entry("text.txt", value.rstrip(b"\0"), "text/plain", is_body=True)
        elif kind in {_PROPERTIES, _FILE_PROPERTIES}:
            for name, of_type, content in _properties(value, file, opening):
                if kind == _PROPERTIES:
                    yield from body_of(name, of_type, content, file.place, opening)
                elif name == _CONTENT:
                    data.append((content[16:] if of_type == _OBJECT else content, of_type == _OBJECT))
                elif name in {_LONG_NAME, *_NAMES}:
                    # The long name is what is shown.
                    names.insert(0 if name == _LONG_NAME else len(names), _string(content, wide=of_type == _UNICODE))
    yield from _attached(names, data)


def body_of(name: int, of_type: int, content: bytes, place: Place, opening: Opening) -> Iterator[Entry]:
    """Yield the text of a message that a MAPI property holds."""
    charset = ("utf-16-le",) if of_type == _UNICODE else ()
    if name == _PLAIN:
        yield Entry("text.txt", content, "text/plain", charset, is_body=True)
    elif name == _HTML:
        yield Entry("text.html", content, "text/html", charset, is_body=True)
    elif name == _RTF:
        rtf = opening.read(unpack_rtf(content), len(content), place)
        if not rtf:
            opening.damaged(place, "the text of the message, compressed RTF, cannot be unpacked")
            return
        yield Entry("text.rtf", rtf, "text/rtf", is_body=True)
        text, is_page = read_outlook_rtf(rtf)
        shown = ("text.html", "text/html") if is_page else ("text.txt", "text/plain")
        yield Entry(shown[0], text.encode("utf-8", "replace"), shown[1], ("utf-8",), is_body=True)


def _fields(file: SeenFile, opening: Opening) -> Iterator[tuple[int, bytes]]:
    content, position = file.content, 6
    while position + 9 <= len(content):
        kind, length = struct.unpack_from("<II", content, position + 1)
        value = content[position + 9 : position + 9 + length]
        if len(value) < length:
            opening.damaged(file.place, "the TNEF container is cut off")
        yield kind, value
        position += 9 + length + 2
        opening.check_time(file.place)


def _attached(names: list[str], data: list[tuple[bytes, bool]]) -> Iterator[Entry]:
    """Yield a file under its shown name, and under another one that ends differently."""
    if not names and not data:
        return
    shown = [name for name in names if name] or [""]
    endings: set[str] = set()
    for name in shown if data else shown[:1]:
        if ending_of(name) in endings:
            continue
        endings.add(ending_of(name))
        for content, is_object in data or [(b"", False)]:
            inner = f"{name or 'message'}.tnef" if is_object and is_tnef(content) else name
            yield Entry(inner, content, is_read=bool(data))


def _properties(value: bytes, file: SeenFile, opening: Opening) -> Iterator[tuple[int, int, bytes]]:
    """Yield the MAPI properties of a field: name, type and value (MS-OXTNEF 2.1.3.4)."""
    try:
        yield from _Properties(value).each()
    except (_Cut, struct.error):
        opening.damaged(file.place, "the properties of the TNEF container cannot be read")


class _Properties:
    def __init__(self, value: bytes) -> None:
        self._value = value
        self._position = 0

    def each(self) -> Iterator[tuple[int, int, bytes]]:
        count = self._number()
        for _ in range(count):
            of_type, name = struct.unpack("<HH", self._take(4))
            if name >= _NAMED:
                self._skip_name()
            for content in self._values(of_type):
                yield name, of_type & ~_SEVERAL, content

    def _values(self, of_type: int) -> list[bytes]:
        several, of_type = of_type & _SEVERAL, of_type & ~_SEVERAL
        if of_type in _FIXED:
            return [self._take(_FIXED[of_type]) for _ in range(self._number() if several else 1)]
        if of_type not in {_OBJECT, _STRING8, _UNICODE, _BINARY}:
            raise _Cut
        return [self._padded(self._number()) for _ in range(self._number())]

    def _skip_name(self) -> None:
        self._take(16)
        if self._number() == 0:
            self._take(4)
        else:
            self._padded(self._number())

    def _padded(self, length: int) -> bytes:
        value = self._take(length)
        self._position += -length % 4
        return value

    def _number(self) -> int:
        return int.from_bytes(self._take(4), "little")

    def _take(self, count: int) -> bytes:
        if self._position + count > len(self._value):
            raise _Cut
        self._position += count
        return self._value[self._position - count : self._position]


def _string(value: bytes, *, wide: bool = False) -> str:
    if wide:
        return value.decode("utf-16-le", "replace").partition("\0")[0]
    text = value.partition(b"\0")[0]
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError:
        return text.decode("cp1252", "replace")
