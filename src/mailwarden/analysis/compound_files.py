"""Compound files, in which old Office documents and all macros are kept: their macros, sheets of macros and packages.

Macros are unpacked here and not by olevba, which unpacks without bounds: a few kilobytes can become gigabytes.
Security: reads hostile files inside a killable worker; streams, records and what is unpacked are bounded, and nothing
raises whatever the file is made of.
"""

import io
import re
from contextlib import suppress
from typing import Any

from msgspec import Struct

MAX_FILE = 32 * 1024 * 1024
MAX_STREAM = 2 * 1024 * 1024
MAX_STREAMS = 2_000
MAX_CODE = 512 * 1024  # of the macros of one document
_MAX_RECORDS = 20_000
_CHUNK = 4_096

SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Where compressed source begins: the signature, the head of a chunk, no copies among its first eight characters.
_SOURCE = re.compile(rb"\x01[\x00-\xff]{2}\x00Attribut")
_BOUND_SHEET, _FILE_PASS, _END_OF_GLOBALS, _SHEET_OF_MACROS = 0x85, 0x2F, 0x0A, 1


class Compound(Struct, frozen=True):
    """What one compound file holds that matters."""

    code: str = ""  # the source of its macros, joined and cut
    macros: bool = False
    macro_sheets: bool = False
    encrypted: bool = False
    packages: tuple[str, ...] = ()  # names of files that are packed into the document


def read_compound(content: bytes) -> Compound:
    """Read a compound file as far as it can be read; what is broken is left out."""
    if not content.startswith(SIGNATURE) or len(content) > MAX_FILE:
        return Compound()
    import olefile  # noqa: PLC0415 - dear to import, and few messages need it

    reader = _Reader()
    with suppress(Exception), olefile.OleFileIO(io.BytesIO(content)) as ole:  # a broken one raises what it likes
        reader.read(ole)
    return Compound(
        "\n".join(reader.code), reader.macros, reader.macro_sheets, reader.encrypted, tuple(reader.packages[:20])
    )


class _Reader:
    def __init__(self) -> None:
        self.code: list[str] = []
        self.macros = self.macro_sheets = self.encrypted = False
        self.packages: list[str] = []
        self._room = MAX_CODE

    def read(self, ole: Any) -> None:  # noqa: ANN401 - olefile publishes no types
        for path in ole.listdir()[:MAX_STREAMS]:
            name = path[-1].lower()
            if name == "_vba_project":
                self.macros = True
            elif name == "encryptedpackage":
                self.encrypted = True
            with suppress(Exception):  # one broken stream must not hide the others
                self._read_stream(name, ole.openstream(path).read(MAX_STREAM))

    def _read_stream(self, name: str, data: bytes) -> None:
        if name in {"workbook", "book"}:
            self._read_workbook(data)
        elif name == "worddocument":
            self.encrypted = self.encrypted or bool(len(data) > 12 and data[11] & 1)
        elif name == "\x01ole10native":
            self.packages += package_names(data)
        elif self._room > 0 and (match := _SOURCE.search(data)):
            source = unpack_source(data[match.start() :], self._room)
            self._room -= len(source)
            self.macros = True
            self.code.append(source.decode("latin-1"))

    def _read_workbook(self, data: bytes) -> None:
        """Go over the records of the globals: sheets that hold macros, and the mark of a password."""
        position = 0
        for _ in range(_MAX_RECORDS):
            kind = int.from_bytes(data[position : position + 2], "little")
            length = int.from_bytes(data[position + 2 : position + 4], "little")
            if position + 4 > len(data) or (kind == _END_OF_GLOBALS and not length):
                return
            if kind == _FILE_PASS:
                self.encrypted = True
                return  # what follows cannot be read
            if kind == _BOUND_SHEET and data[position + 9 : position + 10] == bytes([_SHEET_OF_MACROS]):
                self.macro_sheets = True
            position += 4 + length


def package_names(data: bytes) -> list[str]:
    """Return the names under which a file is packed into a document: its label and where it came from."""
    position = 6 if data[4:6] == b"\x02\x00" else 2
    names: list[str] = []
    for _ in range(2):
        end = data.find(b"\0", position, position + 1_000)
        if end < 0:
            break
        names.append(re.split(r"[\\/]", data[position:end].decode("latin-1"))[-1][:255])
        position = end + 1
    return [name for name in names if name]


def unpack_source(data: bytes, limit: int) -> bytes:
    """Unpack the source of a macro (MS-OVBA 2.4.1), at most `limit` bytes of it."""
    out = bytearray()
    position = 1
    while position + 2 < len(data) and len(out) < limit:
        head = int.from_bytes(data[position : position + 2], "little")
        if head >> 12 & 7 != 3:  # every chunk bears this mark: here the source ends
            break
        packed = bool(head & 0x8000)
        end = min(position + ((head & 0x0FFF) + 3 if packed else _CHUNK + 2), len(data))
        if packed:
            _unpack_chunk(data, position + 2, end, out)
        else:
            out += data[position + 2 : end]
        position = end
    return bytes(out[:limit])


def _unpack_chunk(data: bytes, position: int, end: int, out: bytearray) -> None:
    start = len(out)
    while position < end:
        flags = data[position]
        position += 1
        for bit in range(8):
            if position >= end or len(out) - start >= _CHUNK:
                break
            if not flags >> bit & 1:
                out.append(data[position])
                position += 1
                continue
            token = int.from_bytes(data[position : position + 2], "little")
            position += 2
            bits = max((len(out) - start - 1).bit_length(), 4)
            length = (token & (0xFFFF >> bits)) + 3
            offset = (token >> (16 - bits)) + 1
            if offset > len(out) - start:
                return  # a copy of what is not there
            for _ in range(min(length, _CHUNK)):
                out.append(out[-offset])
