"""Wrappers other than archives: messages inside, TNEF, uuencode, yEnc, calendars, signatures, compound files."""

import base64
import binascii
import itertools
import struct
import zlib
from collections.abc import Callable, Mapping

from workshop.evasion.archives import ARCHIVES, Files, first
from workshop.evasion.mail import Part, file_part, head, message, mixed, text_part
from workshop.evasion.payloads import zip_of

Wrapper = Callable[[Files], tuple[str, bytes]]


def eml(files: Files, before: tuple[Part, ...] = ()) -> bytes:
    parts = (text_part(), *before, *(file_part(name, content) for name, content in files.items()))
    return message(mixed(*parts, boundary="inner-b0undary"))


def eml_page(files: Files) -> bytes:
    """Return a message whose body is the file itself, if it is a page."""
    name, content = first(files)
    if not name.endswith((".html", ".htm")):
        return eml(files)
    return head() + b"Content-Type: text/html; charset=utf-8\r\n\r\n" + content


def eml_deep(depth: int) -> Callable[[Files], bytes]:
    def wrap(files: Files) -> bytes:
        content = eml(files)
        for number in range(depth):
            content = message(mixed(text_part(), file_part("f.eml", content), boundary=f"deep-{number}"))
        return content

    return wrap


def mht(files: Files) -> bytes:
    parts = [Part(("Content-Type: text/html", "Content-Location: http://a.example/"), b"<p>saved page</p>")]
    parts += [file_part(name, content) for name, content in files.items()]
    return b"From: <Saved by a browser>\r\nMIME-Version: 1.0\r\n" + mixed(*parts, subtype="related").raw()


def mbox(files: Files) -> bytes:
    harmless = b"From a@b.example Mon Jan  5 10:00:00 2026\n" + message(text_part()).replace(b"\r\n", b"\n")
    return harmless + b"\nFrom a@b.example Mon Jan  5 10:00:00 2026\n" + eml(files).replace(b"\r\n", b"\n")


def _attribute(level: int, number: int, data: bytes) -> bytes:
    return struct.pack("<BII", level, number, len(data)) + data + struct.pack("<H", sum(data) & 0xFFFF)


def _property(tag: int, value: bytes) -> bytes:
    padded = value.ljust(-(-len(value) // 4) * 4, b"\0")
    return struct.pack("<III", tag, 1, len(value)) + padded


def tnef(files: Files, fillers: int = 0, fields: int = 0, body: bytes = b"", *, long_names: bool = False) -> bytes:
    """Write winmail.dat; the long name of a file is in its properties, the short one is arbitrary."""
    out = struct.pack("<IH", 0x223E9F78, 1) + _attribute(1, 0x00089006, struct.pack("<I", 0x10000))
    out += b"".join(_attribute(1, 0x00068008, b"x\0") for _ in range(fields))
    if body:
        out += _attribute(1, 0x00069003, struct.pack("<I", 1) + _property(0x10130102, body))
    every = {**{f"note{number}.txt": b"note" for number in range(fillers)}, **files}
    for name, content in every.items():
        short = "FILE~1.DAT" if long_names else name
        out += _attribute(2, 0x00069002, b"\1\0" + b"\0" * 12)
        out += _attribute(2, 0x00018010, short.encode() + b"\0") + _attribute(2, 0x0006800F, content)
        if long_names:
            prop = _property(0x3707001E, name.encode() + b"\0")
            out += _attribute(2, 0x00069005, struct.pack("<I", 1) + prop)
    return out


def uuencode(files: Files) -> bytes:
    out = b""
    for name, content in files.items():
        lines = [binascii.b2a_uu(content[start : start + 45]) for start in range(0, len(content), 45)]
        out += b"begin 644 " + name.encode() + b"\n" + b"".join(lines) + b"`\nend\n\n"
    return out


def uu_base64(files: Files) -> bytes:
    return b"".join(
        b"begin-base64 644 " + name.encode() + b"\n" + base64.encodebytes(content) + b"====\n"
        for name, content in files.items()
    )


def yenc(files: Files) -> bytes:
    out = b""
    for name, content in files.items():
        body = bytearray()
        for byte in content:
            shifted = (byte + 42) % 256
            body += bytes((0x3D, (shifted + 64) % 256)) if shifted in (0, 10, 13, 61) else bytes((shifted,))
        lines = _yenc_lines(bytes(body))
        crc = binascii.crc32(content)
        out += f"=ybegin line=128 size={len(content)} name={name}\r\n".encode() + lines
        out += f"\r\n=yend size={len(content)} crc32={crc:08x}\r\n\r\n".encode()
    return out


def _yenc_lines(body: bytes) -> bytes:
    lines, start = [], 0
    while start < len(body):
        end = min(start + 128, len(body))
        if body[end - 1 : end] == b"=" and end < len(body):
            end += 1
        lines.append(body[start:end])
        start = end
    return b"\r\n".join(lines)


def calendar(files: Files) -> bytes:
    attached = "".join(
        f"ATTACH;ENCODING=BASE64;VALUE=BINARY;FILENAME={name}:{base64.b64encode(content).decode()}\r\n"
        for name, content in files.items()
    )
    return (
        "BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VEVENT\r\nUID:1@a.example\r\nSUMMARY:Minutes\r\n"
        f"DTSTART:20260105T100000Z\r\n{attached}END:VEVENT\r\nEND:VCALENDAR\r\n"
    ).encode()


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 128:
        return bytes((tag, size)) + body
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((tag, 0x80 | len(length))) + length + body


_SIGNED_OID = bytes.fromhex("06092a864886f70d010702")
_DATA_OID = bytes.fromhex("06092a864886f70d010701")
_OTHER_OID = bytes.fromhex("06092a864886f70d01070a")  # an object identifier of no known content type
_PGP = b"-----BEGIN PGP MESSAGE-----\r\n\r\n"


def _lengthened(der: bytes) -> bytes:
    """Write the length of the outermost element with leading zeros, which BER allows."""
    size = der[1] & 0x7F
    return der[:1] + b"\x85" + b"\0" * (5 - size) + der[2:]


def signed(files: Files) -> bytes:
    """Return opaque S/MIME signed data (RFC 5652 section 5) around a message part."""
    inner = mixed(text_part(), *(file_part(name, content) for name, content in files.items())).raw()
    data_oid = bytes.fromhex("06092a864886f70d010701")
    encapsulated = _der(0x30, data_oid + _der(0xA0, _der(0x04, inner)))
    body = _der(0x30, b"\x02\x01\x01" + _der(0x31, b"") + encapsulated + _der(0x31, b""))
    return _der(0x30, bytes.fromhex("06092a864886f70d010702") + _der(0xA0, body))


def compound(streams: Mapping[str, bytes]) -> bytes:
    """Write a compound file (MS-CFB, version 3): `a/b` is the stream b in the storage a."""
    return _Compound(streams).write()


class _Compound:
    def __init__(self, streams: Mapping[str, bytes]) -> None:
        self.entries: list[tuple[str, int, bytes, int]] = [("Root Entry", 5, b"", -1)]
        folders: dict[str, int] = {"": 0}
        for path, content in streams.items():
            parent = ""
            for piece in path.split("/")[:-1]:
                inner = f"{parent}/{piece}"
                if inner not in folders:
                    folders[inner] = len(self.entries)
                    self.entries.append((piece, 1, b"", folders[parent]))
                parent = inner
            padded = content.ljust(4096, b"\0") if len(content) < 4096 else content
            self.entries.append((path.rpartition("/")[2], 2, padded, folders[parent]))

    def write(self) -> bytes:
        sectors: list[bytes] = []
        fat: list[int] = []
        starts: dict[int, int] = {}
        for number, (_, kind, content, _) in enumerate(self.entries):
            if kind == 2:
                starts[number] = self._chain(sectors, fat, content)
        directory = self._directory(starts)
        first = self._chain(sectors, fat, directory)
        fat_sectors = 1
        while (len(fat) + fat_sectors) > fat_sectors * 128:
            fat_sectors += 1
        places = list(range(len(sectors), len(sectors) + fat_sectors))
        table = fat + [0xFFFFFFFD] * fat_sectors
        table += [0xFFFFFFFF] * (fat_sectors * 128 - len(table))
        packed = struct.pack(f"<{len(table)}I", *table)
        sectors += [packed[start : start + 512] for start in range(0, len(packed), 512)]
        head = bytes.fromhex("d0cf11e0a1b11ae1") + b"\0" * 16 + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + b"\0" * 6
        head += struct.pack("<IIIIIIIII", 0, fat_sectors, first, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
        head += struct.pack("<109I", *places, *([0xFFFFFFFF] * (109 - len(places))))
        return head + b"".join(sectors)

    @staticmethod
    def _chain(sectors: list[bytes], fat: list[int], content: bytes) -> int:
        start = len(sectors)
        count = max(1, -(-len(content) // 512))
        for number in range(count):
            sectors.append(content[number * 512 : number * 512 + 512].ljust(512, b"\0"))
            fat.append(start + number + 1 if number + 1 < count else 0xFFFFFFFE)
        return start

    def _directory(self, starts: Mapping[int, int]) -> bytes:
        none = 0xFFFFFFFF
        children: dict[int, list[int]] = {}
        for number, (_, _, _, parent) in enumerate(self.entries):
            if parent >= 0:
                children.setdefault(parent, []).append(number)
        right = {a: b for row in children.values() for a, b in itertools.pairwise(row)}
        out = b""
        for number, (name, kind, content, _) in enumerate(self.entries):
            wide = name.encode("utf-16-le") + b"\0\0"
            child = children.get(number, [none])[0]
            out += wide.ljust(64, b"\0") + struct.pack("<HBB", len(wide), kind, 1)
            out += struct.pack("<III", none, right.get(number, none), child) + b"\0" * 36
            out += struct.pack("<IQ", starts.get(number, 0xFFFFFFFE if kind == 5 else 0), len(content))
        return out.ljust(-(-len(out) // 512) * 512, b"\0")


def msg(files: Files) -> bytes:
    """Write a message as Outlook saves it, with one storage for each attachment."""
    streams: dict[str, bytes] = {
        "__properties_version1.0": b"\0" * 32,
        "__substg1.0_0037001F": "Minutes".encode("utf-16-le"),
    }
    for number, (name, content) in enumerate(files.items()):
        folder = f"__attach_version1.0_#{number:08X}"
        streams[f"{folder}/__properties_version1.0"] = b"\0" * 32
        streams[f"{folder}/__substg1.0_37010102"] = content
        streams[f"{folder}/__substg1.0_3707001F"] = name.encode("utf-16-le")
    return compound(streams)


def msg_page(files: Files) -> bytes:
    """Write a saved message whose HTML body is the file, if it is a page."""
    name, content = first(files)
    if not name.endswith((".html", ".htm")):
        return msg(files)
    return compound({"__properties_version1.0": b"\0" * 32, "__substg1.0_10130102": content})


def _plain(name: str, wrap: Callable[[Files], bytes]) -> Wrapper:
    return lambda files: (name, wrap(files))


def _fill(count: int) -> dict[str, bytes]:
    return {f"note{number}.txt": b"a note of ours, which is harmless" for number in range(count)}


def _zips(count: int) -> tuple[Part, ...]:
    return tuple(file_part(f"{number}.zip", zip_of({f"{number}.txt": b"note"})) for number in range(count))


def _texts(count: int) -> tuple[Part, ...]:
    return tuple(file_part(f"{number}.txt", b"note %d" % number, "text/plain") for number in range(count))


WRAPPERS: dict[str, Wrapper] = {
    "eml": _plain("f.eml", eml),
    "eml with the page as body": _plain("f.eml", eml_page),
    "eml 5 deep": _plain("f.eml", eml_deep(5)),
    "eml 20 deep": _plain("f.eml", eml_deep(20)),
    "eml behind 60 parts": _plain("f.eml", lambda files: eml(files, _texts(60))),
    "eml behind 6 zips": _plain("f.eml", lambda files: eml(files, _zips(6))),
    "eml named .txt": _plain("f.txt", eml),
    "eml without a name": _plain("", eml),
    "mht": _plain("f.mht", mht),
    "mhtml": _plain("f.mhtml", mht),
    "mbox": _plain("f.mbox", mbox),
    "msg": _plain("f.msg", msg),
    "msg with the page as body": _plain("f.msg", msg_page),
    "msg in msg": _plain("f.msg", lambda files: msg({"inner.msg": msg(files)})),
    "msg named .dat": _plain("f.dat", msg),
    "tnef": _plain("winmail.dat", tnef),
    "tnef behind 52 files": _plain("winmail.dat", lambda files: tnef(files, fillers=52)),
    "tnef behind 5,000 fields": _plain("winmail.dat", lambda files: tnef(files, fields=5_000)),
    "tnef with long names": _plain("winmail.dat", lambda files: tnef(files, long_names=True)),
    "tnef with a body": _plain("winmail.dat", lambda files: tnef({"a.txt": b"note"}, body=first(files)[1])),
    "tnef named .bin": _plain("a.bin", tnef),
    "uuencode": _plain("a.uue", uuencode),
    "uuencode behind 21 files": _plain("a.uue", lambda files: uuencode({**_fill(21), **files})),
    "uuencode named .txt": _plain("a.txt", uuencode),
    "uuencode by base64": _plain("a.uue", uu_base64),
    "yenc": _plain("a.ntx", yenc),
    "yenc behind files": _plain("a.ntx", lambda files: yenc({**_fill(3), **files})),
    "calendar": _plain("a.ics", calendar),
    "calendar with a quoted parameter": _plain(
        "a.ics", lambda files: calendar(files).replace(b"ATTACH;", b'ATTACH;X-NOTE="a:b";')
    ),
    "calendar by data URI": _plain(
        "a.ics",
        lambda files: calendar(files).replace(b":", b":data:x/y;base64,").replace(b"BEGIN:data:x/y;base64,", b"BEGIN:"),
    ),
    "calendar in UTF-16": _plain("a.ics", lambda files: calendar(files).decode().encode("utf-16")),
    "calendar behind blank lines": _plain("a.ics", lambda files: b"\r\n" * 80 + calendar(files)),
    "calendar by carriage returns": _plain("a.ics", lambda files: calendar(files).replace(b"\r\n", b"\r")),
    "calendar in a group": _plain("a.ics", lambda files: calendar(files).replace(b"ATTACH;", b"item1.ATTACH;")),
    "signed as another kind": _plain("smime.p7m", lambda files: signed(files).replace(_DATA_OID, _OTHER_OID)),
    "signed with a long length": _plain("smime.p7m", lambda files: _lengthened(signed(files))),
    "signed in armor": _plain(
        "smime.p7m",
        lambda files: b"-----BEGIN CMS-----\n" + base64.encodebytes(signed(files)) + b"-----END CMS-----\n",
    ),
    "digested": _plain("smime.p7m", lambda files: signed(files).replace(_SIGNED_OID, _SIGNED_OID[:-1] + b"\x05")),
    "encrypted data": _plain("smime.p7m", lambda files: signed(files).replace(_SIGNED_OID, _SIGNED_OID[:-1] + b"\x06")),
    "openpgp": _plain("a.gpg", lambda files: b"\x85\x01\x0c\x03" + zlib.compress(first(files)[1])),
    "openpgp behind text": _plain(
        "a.asc", lambda files: b"Comment\r\n" * 600 + _PGP + base64.b64encode(first(files)[1])
    ),
    "signed": _plain("smime.p7m", signed),
    "base64 saved": _plain("a.b64", lambda files: base64.encodebytes(first(files)[1])),
}


def _one_in_another(inner: str, outer: str) -> Wrapper:
    every = ARCHIVES | WRAPPERS
    return lambda files: every[outer](dict([every[inner](files)]))


MIXED: dict[str, Wrapper] = {
    f"{inner} in {outer}": _one_in_another(inner, outer)
    for outer in ("zip", "eml", "tnef", "7z")
    for inner in ("eml", "msg", "mht", "tnef", "rar5", "cab", "iso", "tar.gz", "zip encrypted", "uuencode", "7z")
}
