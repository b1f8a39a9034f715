"""Makes containers of every kind that we open, and opens them."""

import binascii
import io
import struct
import tarfile
import zlib
from typing import NamedTuple

import libarchive

from mailwarden.files.container import Opening, SeenFile
from mailwarden.files.unpacking import Unpacked, files_of, unpack
from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.message import Part

Files = dict[str, bytes]


class Opened(NamedTuple):
    files: tuple[SeenFile, ...]  # those inside
    coverage: Coverage
    unpacked: Unpacked

    @property
    def places(self) -> list[str]:
        return [" > ".join(file.place.inside) for file in self.files]

    @property
    def contents(self) -> dict[str, bytes]:
        return {" > ".join(file.place.inside): file.content for file in self.files}

    @property
    def missed(self) -> set[str]:
        return {each.limit or each.reason.value for each in self.coverage.missed}


def opened(
    name: str,
    content: bytes,
    *passwords: str,
    limits: Limits = LIMITS,
    media_type: str = "application/octet-stream",
) -> Opened:
    part = Part("2", media_type, name, "attachment", "", content, "")
    coverage = Coverage(limits)
    unpacked = unpack([part], Opening(coverage, lambda: passwords))
    return Opened(files_of(unpacked)[1:], coverage, unpacked[0])


def written(kind: str, files: Files, packing: str | None = None, options: str = "", password: str = "") -> bytes:
    """Return an archive as libarchive writes it."""
    target = io.BytesIO()
    extra = {"passphrase": password} if password else {}
    with libarchive.custom_writer(target.write, kind, packing, options=options, **extra) as archive:
        for name, content in files.items():
            archive.add_file_from_memory(name, len(content), content)
    return target.getvalue()


def tar(files: Files) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def rar4(files: Files, *, flags: int = 0, main_flags: int = 0) -> bytes:
    """Return a RAR of version 4 whose files are stored."""
    blocks = [b"Rar!\x1a\x07\x00", _rar4_block(0x73, main_flags, bytes(6))]
    for name, content in files.items():
        fields = struct.pack("<IIBIIBBHI", len(content), len(content), 3, zlib.crc32(content), 0, 20, 0x30,
                             len(name.encode()), 0o100644)  # fmt: skip
        blocks += [_rar4_block(0x74, 0x8000 | flags, fields + name.encode()), content]
    return b"".join((*blocks, _rar4_block(0x7B, 0x4000, b"")))


def _rar4_block(kind: int, flags: int, body: bytes) -> bytes:
    block = struct.pack("<BHH", kind, flags, 7 + len(body)) + body
    return struct.pack("<H", zlib.crc32(block) & 0xFFFF) + block


def rar5(files: Files, *, encrypted: bool = False) -> bytes:
    """Return a RAR of version 5 whose files are stored."""
    blocks = [b"Rar!\x1a\x07\x01\x00"]
    if encrypted:  # everything behind this block is encrypted
        return blocks[0] + _rar5_block(bytes([4, 0, 0, 0, 15]) + bytes(16)) + bytes(200)
    blocks.append(_rar5_block(bytes([1, 0, 0])))
    for name, content in files.items():
        raw = name.encode()
        head = bytes([2, 2]) + _vint(len(content)) + bytes([4]) + _vint(len(content)) + _vint(0o100644)
        head += struct.pack("<I", zlib.crc32(content)) + bytes([0, 1]) + _vint(len(raw)) + raw
        blocks += [_rar5_block(head), content]
    return b"".join((*blocks, _rar5_block(bytes([5, 0, 0]))))


def _rar5_block(head: bytes) -> bytes:
    sized = _vint(len(head)) + head
    return struct.pack("<I", zlib.crc32(sized)) + sized


def _vint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def cab(files: Files) -> bytes:
    """Return a cabinet whose files are stored in one folder."""
    content = b"".join(files.values())
    entries, offset = b"", 0
    for name, data in files.items():
        entries += struct.pack("<IIHHHH", len(data), offset, 0, 0x5A21, 0, 0x20) + name.encode() + b"\0"
        offset += len(data)
    pieces = [content[start : start + 32_768] for start in range(0, len(content), 32_768)]
    data = b"".join(struct.pack("<IHH", 0, len(piece), len(piece)) + piece for piece in pieces)
    folder = struct.pack("<IHH", 36 + 8 + len(entries), len(pieces), 0)
    size = 36 + len(folder) + len(entries) + len(data)
    head = struct.pack("<4sIIIIIBBHHHHH", b"MSCF", 0, size, 0, 44, 0, 3, 1, 1, len(files), 0, 7, 0)
    return head + folder + entries + data


def field(kind: int, value: bytes) -> bytes:
    """Return one field of TNEF."""
    return struct.pack("<BII", 2, kind, len(value)) + value + struct.pack("<H", sum(value) & 0xFFFF)


def properties(*values: tuple[int, int, bytes]) -> bytes:
    """Return MAPI properties of variable length: type, name and value."""
    out = struct.pack("<I", len(values))
    for of_type, name, value in values:
        out += struct.pack("<HHII", of_type, name, 1, len(value)) + value + bytes(-len(value) % 4)
    return out


def winmail(*files: tuple[bytes, bytes], before: bytes = b"") -> bytes:
    body = b"".join(
        field(0x00069002, bytes(14)) + field(0x00018010, name + b"\0") + field(0x0006800F, data) for name, data in files
    )
    return b"\x78\x9f\x3e\x22\1\0" + before + body


def uuencoded(name: bytes, data: bytes) -> bytes:
    rows = b"".join(binascii.b2a_uu(data[start : start + 45]) for start in range(0, len(data), 45))
    return b"begin 644 " + name + b"\n" + rows + b"`\nend\n"


def xxencoded(name: bytes, data: bytes) -> bytes:
    digits = b"+-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    to_xx = bytes.maketrans(bytes(32 + index for index in range(64)) + b"`", digits + b"+")
    rows = [binascii.b2a_uu(data[start : start + 45]).rstrip(b"\n") for start in range(0, len(data), 45)]
    return b"begin 644 " + name + b"\n" + b"".join(row.translate(to_xx) + b"\n" for row in rows) + b"+\nend\n"


def yencoded(name: bytes, data: bytes) -> bytes:
    coded = b"".join(
        bytes([b"="[0], (byte + 106) % 256]) if (byte + 42) % 256 in b"\0\r\n=" else bytes([(byte + 42) % 256])
        for byte in data
    )
    rows = b"\r\n".join(coded[start : start + 128] for start in range(0, len(coded), 128))
    return b"=ybegin line=128 size=%d name=%s\r\n%s\r\n=yend size=%d\r\n" % (len(data), name, rows, len(data))


def mail(body: bytes, *, kind: bytes = b"text/html", head: bytes = b"") -> bytes:
    return (
        b"From: a@north.example\r\nSubject: s\r\nMIME-Version: 1.0\r\n"
        + head
        + b"Content-Type: "
        + kind
        + b"\r\n\r\n"
        + body
    )


def mail_with(*files: tuple[str, bytes], body: bytes = b"<p>hello</p>") -> bytes:
    """Return a message with files attached."""
    parts = [b"--b\r\nContent-Type: text/html\r\n\r\n" + body + b"\r\n"]
    for name, content in files:
        head = (
            f'--b\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename="{name}"\r\n'
        )
        coded = binascii.b2a_base64(content)
        parts.append(head.encode() + b"Content-Transfer-Encoding: base64\r\n\r\n" + coded + b"\r\n")
    return mail(b"".join(parts) + b"--b--\r\n", kind=b"multipart/mixed; boundary=b")
