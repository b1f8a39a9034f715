"""Reads compound files, the format of old Office documents and of macros: macros, links and packed files.

Macros are unpacked here and not by olevba, which unpacks without bounds: a few kilobytes can become gigabytes.

Security: reads hostile files inside a killable worker; streams, records and unpacked bytes are bounded by the message's
limits, and nothing raises. Callers bound the number of passwords that are tried.
"""

import io
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct

from mailwarden.message.coverage import Coverage
from mailwarden.model.place import WHOLE_MESSAGE, Place

_CHUNK = 4_096

SIGNATURE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
# Where compressed source begins: the signature, the head of a chunk, no copies among its first eight characters.
_SOURCE = re.compile(rb"\x01[\x00-\xff]{2}\x00Attribut")
_BOUND_SHEET, _FILE_PASS, _END_OF_GLOBALS, _SHEET_OF_MACROS = 0x85, 0x2F, 0x0A, 1
_BEGIN_OF_FILE = (b"\x09\x08", b"\x09\x04", b"\x09\x02", b"\x09\x00")  # of a workbook without a container
_MACRO_SHEET = 0x40
_TEXTS = frozenset({"worddocument", "workbook", "book", "powerpoint document", "contents", "1table", "0table", "data"})
_WIDE_URL = re.compile(rb"(?:h\0t\0t\0p\0(?:s\0)?:\0/\0/\0)(?:[\x21\x23-\x3b\x3d\x3f-\x7e]\0){1,4000}")
_FIELD_URL = re.compile(rb"HYPERLINK\s{1,9}(?:\\[a-z]\s{0,9}){0,4}\"?\s{0,9}(https?://[\x21\x23-\x7e]{1,4000})")
_DDE_FIELD = re.compile(rb"\x13\s{0,9}DDE(?:AUTO)?\s([^\x14\x15]{1,200})", re.IGNORECASE)
_WIDE_DDE = re.compile(rb"\x13\0(?:\s\0){0,9}D\0D\0E\0(?:A\0U\0T\0O\0)?\s\0((?:[^\x14\x15]\0){1,200})", re.IGNORECASE)
_URL_MONIKER = bytes.fromhex("e0c9ea79f9bace118c8200aa004ba90b")  # MS-OSHARED 2.3.7.6
_FILE_MONIKER = bytes.fromhex("0303000000000000c000000000000046")

DEFAULT_PASSWORD = "VelvetSweatshop"  # noqa: S105 - Excel opens a workbook with it without asking


class Compound(Struct, frozen=True):
    """The contents of one compound file."""

    code: str = ""  # the source of its macros, joined and cut
    macros: bool = False
    macro_sheets: bool = False
    encrypted: bool = False
    packages: tuple[tuple[str, bytes], ...] = ()  # files that are packed into the document
    links: tuple[str, ...] = ()
    remote: tuple[str, ...] = ()  # objects that are loaded from elsewhere
    dde: str = ""


def read_compound(content: bytes, coverage: Coverage | None = None, place: Place = WHOLE_MESSAGE) -> Compound:
    """Read a compound file as far as possible, and record damage."""
    coverage = coverage or Coverage()
    if not content.startswith(SIGNATURE):
        return Compound()
    import olefile  # noqa: PLC0415 - slow to import, and few messages need it

    reader = _Reader(coverage, place)
    try:
        with olefile.OleFileIO(io.BytesIO(content)) as ole:
            reader.read(ole)
    except Exception:  # a broken file raises any exception
        coverage.damaged(place, "the document is damaged, and Office may repair it")
    return reader.found()


def read_raw_workbook(content: bytes, coverage: Coverage, place: Place) -> Compound | None:
    """Read a workbook of Excel 2 to 5 that stands without a container; None if it is none."""
    if content[:2] not in _BEGIN_OF_FILE or not 4 <= content[2] <= 16 or content[3]:
        return None
    reader = _Reader(coverage, place)
    reader.macro_sheets = int.from_bytes(content[6:8], "little") == _MACRO_SHEET
    reader.read_stream("workbook", content)
    return reader.found()


class _Reader:
    def __init__(self, coverage: Coverage, place: Place) -> None:
        self.code: list[str] = []
        self.macros = self.macro_sheets = self.encrypted = False
        self.packages: list[tuple[str, bytes]] = []
        self.links: dict[str, None] = {}
        self.remote: dict[str, None] = {}
        self.dde = ""
        self._coverage = coverage
        self._place = place
        self._room = coverage.limits.office_code
        self._left = coverage.limits.office_bytes

    def found(self) -> Compound:
        code = "\n".join(self.code)
        return Compound(
            code, self.macros, self.macro_sheets, self.encrypted, tuple(self.packages), tuple(self.links),
            tuple(self.remote), self.dde,
        )  # fmt: skip

    def read(self, ole: Any) -> None:  # noqa: ANN401 - olefile publishes no types
        for path in self._coverage.first(ole.listdir(), "office_members", self._place):
            name = path[-1].lower()
            if name == "_vba_project":
                self.macros = True
            elif name == "encryptedpackage":
                self.encrypted = True
                continue
            if self._left <= 0:
                self._coverage.beyond("office_bytes", self._place)
                return
            try:
                data = ole.openstream(path).read(self._left)
            except Exception:  # one broken stream must not hide the others
                self._coverage.damaged(self._place, "a stream of the document is damaged, and Office may repair it")
                continue
            self._left -= len(data)
            self.read_stream(name, data)

    def read_stream(self, name: str, data: bytes) -> None:
        if name in {"workbook", "book"}:
            self._read_workbook(data)
        elif name == "worddocument":
            self.encrypted = self.encrypted or bool(len(data) > 12 and data[11] & 1)
        elif name == "\x01ole10native":
            self.packages += packed_file(data)
        elif name in {"package", "contents"} and data.startswith((b"PK\x03\x04", b"%PDF-", SIGNATURE)):
            self.packages.append(("", data))
        elif b"\0Attribut" in data:
            self._read_source(data)
        if name in _TEXTS:
            self._read_text(data)
        elif name.startswith(("\x01ole", "\x03linkinfo")):
            self.remote.update(dict.fromkeys(_monikers(data)))

    def _read_source(self, data: bytes) -> None:
        match = _SOURCE.search(data)
        if match is None:
            return
        self.macros = True
        if self._room <= 0:
            self._coverage.beyond("office_code", self._place)
            return
        source = unpack_source(data[match.start() :], self._room)
        if len(source) >= self._room:
            self._coverage.beyond("office_code", self._place)
        self._room -= len(source)
        self.code.append(source.decode("latin-1"))

    def _read_text(self, data: bytes) -> None:
        """Read links and DDE fields, which are text of one or two bytes a character."""
        wide = (match[0].decode("utf-16-le") for match in _WIDE_URL.finditer(data)) if b"h\0t\0t\0p\0" in data else ()
        narrow = (match[1].decode("latin-1") for match in _FIELD_URL.finditer(data)) if b"HYPERLINK" in data else ()
        for url in (*wide, *narrow):
            if len(self.links) >= self._coverage.limits.urls:
                self._coverage.beyond("urls", self._place)
                break
            self.links[url] = None
        if field := _DDE_FIELD.search(data) or _WIDE_DDE.search(data):
            self.dde = self.dde or field[1].replace(b"\0", b"").decode("latin-1")

    def _read_workbook(self, data: bytes) -> None:
        """Go over the records of the globals: sheets that hold macros, and the mark of a password."""
        position = 0
        while position + 4 <= len(data):
            kind = int.from_bytes(data[position : position + 2], "little")
            length = int.from_bytes(data[position + 2 : position + 4], "little")
            if kind == _END_OF_GLOBALS and not length:
                return
            if kind == _FILE_PASS:
                self.encrypted = True
                return  # the rest cannot be read
            if kind == _BOUND_SHEET and data[position + 9 : position + 10] == bytes([_SHEET_OF_MACROS]):
                self.macro_sheets = True
            position += 4 + length


def _monikers(data: bytes) -> Iterator[str]:
    """Yield where a linked object is loaded from (MS-OLEDS 2.3.3, MS-OSHARED 2.3.7)."""
    position = data.find(_URL_MONIKER)
    while position >= 0:
        length = int.from_bytes(data[position + 16 : position + 20], "little")
        url = data[position + 20 : position + 20 + length].decode("utf-16-le", "replace").partition("\0")[0]
        if url:
            yield url
        position = data.find(_URL_MONIKER, position + 16)
    position = data.find(_FILE_MONIKER)
    if position >= 0:
        length = int.from_bytes(data[position + 18 : position + 22], "little")
        path = data[position + 22 : position + 22 + length].partition(b"\0")[0].decode("latin-1")
        if path.startswith("\\\\"):
            yield path


def packed_file(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the file of a package (the native data of OLE) by its label and by where it came from."""
    position = 6 if data[4:6] == b"\x02\x00" else 2
    names: list[str] = []
    for _ in range(2):
        end = data.find(b"\0", position)
        if end < 0:
            break
        names.append(re.split(r"[\\/]", data[position:end].decode("latin-1"))[-1])
        position = end + 1
    position += 4
    length = int.from_bytes(data[position : position + 4], "little")
    position += 4 + length
    size = int.from_bytes(data[position : position + 4], "little")
    content = data[position + 4 : position + 4 + size]
    for name in dict.fromkeys(filter(None, names)):
        yield name, content


def unpack_source(data: bytes, limit: int) -> bytes:
    """Unpack the source of a macro (MS-OVBA 2.4.1), at most `limit` bytes of it."""
    out = bytearray()
    position = 1
    while position + 2 < len(data) and len(out) < limit:
        head = int.from_bytes(data[position : position + 2], "little")
        if head >> 12 & 7 != 3:  # every chunk has this signature: the source ends here
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


def decrypt(content: bytes, password: str) -> bytes:
    """Return the document in plain form, or b"" if the password is wrong."""
    import msoffcrypto  # noqa: PLC0415 - slow to import, and few messages need it

    plain = io.BytesIO()
    with suppress(Exception):  # a wrong password and a broken document raise what they like
        document = msoffcrypto.OfficeFile(io.BytesIO(content))
        document.load_key(password=password, verify_password=True)
        document.decrypt(plain)
        return plain.getvalue()
    return b""
