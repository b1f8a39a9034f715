"""Archives of every kind, written here or by libarchive: each takes named files and returns a file name and bytes."""

import binascii
import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping

import libarchive

from workshop.evasion.payloads import zip_of

Files = Mapping[str, bytes]
Packer = Callable[[Files], tuple[str, bytes]]


def by_libarchive(format_name: str, filter_name: str | None = None) -> Callable[[Files], bytes]:
    def pack(files: Files) -> bytes:
        pieces: list[bytes] = []

        def take(data: bytes) -> int:
            pieces.append(bytes(data))
            return len(data)

        with libarchive.custom_writer(take, format_name, filter_name) as archive:
            for name, content in files.items():
                archive.add_file_from_memory(name, len(content), content)
        return b"".join(pieces)

    return pack


def tar(files: Files, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def tar_v7(files: Files) -> bytes:
    """Write the oldest tar format: no magic behind the header fields."""
    out = b""
    for name, content in files.items():
        block = name.encode()[:100].ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2
        block += f"{len(content):011o} ".encode() + b"00000000000 " + b" " * 8 + b"0" + b"\0" * 100
        block = block.ljust(512, b"\0")
        total = f"{sum(block):06o}\0 ".encode()
        block = block[:148] + total + block[156:]
        out += block + content.ljust(-(-len(content) // 512) * 512, b"\0")
    return out + b"\0" * 1024


def rar4(files: Files, *, encrypted: bool = False) -> bytes:
    """Write a RAR 4 archive of stored files."""

    def block(kind: int, flags: int, fields: bytes, data: bytes = b"") -> bytes:
        body = struct.pack("<BHH", kind, flags, 7 + len(fields)) + fields
        return struct.pack("<H", binascii.crc32(body) & 0xFFFF) + body + data

    out = b"Rar!\x1a\x07\x00" + block(0x73, 0, b"\0" * 6)
    for name, content in files.items():
        plain = name.encode()
        fields = struct.pack(
            "<IIBIIBBHI", len(content), len(content), 2, binascii.crc32(content), 0, 20, 0x30, len(plain), 32
        )
        out += block(0x74, 0x8000 | (4 if encrypted else 0), fields + plain, content)
    return out + block(0x7B, 0x4000, b"")


def vint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return out + bytes((number,))


def rar5(files: Files, *, encrypted: bool = False) -> bytes:
    """Write a RAR 5 archive of stored files."""

    def block(kind: int, flags: int, body: bytes, data: bytes = b"", extra: bytes = b"") -> bytes:
        fields = vint(kind) + vint(flags)
        fields += (vint(len(extra)) if flags & 1 else b"") + (vint(len(data)) if flags & 2 else b"")
        header = fields + body + extra
        sized = vint(len(header)) + header
        return struct.pack("<I", binascii.crc32(sized)) + sized + data

    out = b"Rar!\x1a\x07\x01\x00" + block(1, 0, vint(0))
    for name, content in files.items():
        plain = name.encode()
        body = vint(4) + vint(len(content)) + vint(0o644) + struct.pack("<I", binascii.crc32(content))
        body += vint(0) + vint(1) + vint(len(plain)) + plain
        record = vint(1) + vint(0) + vint(0) + bytes((15,)) + b"s" * 16 + b"i" * 16
        extra = vint(len(record)) + record if encrypted else b""
        out += block(2, 2 | (1 if encrypted else 0), body, content, extra)
    return out + block(5, 0, vint(0))


def cab(files: Files) -> bytes:
    """Write a cabinet whose one folder is stored uncompressed."""
    data = b"".join(files.values())
    entries = b""
    offset = 0
    for name, content in files.items():
        entries += struct.pack("<IIHHHH", len(content), offset, 0, 0x5C25, 0x5000, 0x20) + name.encode() + b"\0"
        offset += len(content)
    blocks = [data[start : start + 32_768] for start in range(0, len(data), 32_768)]
    first = 36 + 8 + len(entries)
    body = b"".join(struct.pack("<IHH", 0, len(each), len(each)) + each for each in blocks)
    head = b"MSCF" + struct.pack("<IIIIIBBHHHHH", 0, first + len(body), 0, 44, 0, 3, 1, 1, len(files), 0, 0x1234, 0)
    return head + struct.pack("<IHH", first, len(blocks), 0) + entries + body


def lha(files: Files) -> bytes:
    """Write LHA level 0 headers with the method -lh0-, which stores."""
    out = b""
    for name, content in files.items():
        plain = name.encode()
        body = b"-lh0-" + struct.pack("<III", len(content), len(content), 0x5C255000) + b"\x20\x00"
        body += bytes((len(plain),)) + plain + struct.pack("<H", _crc16(content))
        out += bytes((len(body), sum(body) & 0xFF)) + body + content
    return out + b"\0"


def _crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0xA001 if crc & 1 else crc >> 1
    return crc


def arj(files: Files) -> bytes:
    """Write the header of an ARJ archive with stored files."""
    return (
        b"\x60\xea"
        + struct.pack("<H", 30)
        + b"\x1e\x06\x01\x00\x10\x00\x02"
        + b"\0" * 23
        + b"".join(b"\x60\xea" + name.encode() + b"\0" + content for name, content in files.items())
    )


def ace(files: Files) -> bytes:
    """Write the header of an ACE archive."""
    return b"\x7c\x5c\x31\x00\x00\x00\x90**ACE**\x14\x14\x02\0" + b"\0" * 20 + b"".join(files.values())


def udf(files: Files) -> bytes:
    """Write the recognition area of a disk image with UDF only, and the files behind it."""
    image = bytearray(b"\0" * 2048 * 257)
    for number, mark in enumerate((b"BEA01", b"NSR02", b"TEA01")):
        image[2048 * (16 + number) : 2048 * (16 + number) + 7] = b"\0" + mark + b"\x01"
    return bytes(image) + b"".join(name.encode() + b"\0" + content for name, content in files.items())


def vhd(files: Files) -> bytes:
    """Write the footer of a virtual disk before and behind its content."""
    footer = b"conectix" + b"\0" * 504
    return footer + b"".join(files.values()).ljust(4096, b"\0") + footer


def wim(files: Files) -> bytes:
    return b"MSWIM\0\0\0" + b"\xd0\0\0\0" + b"\0" * 196 + b"".join(files.values())


def dmg(files: Files) -> bytes:
    return b"".join(files.values()).ljust(4096, b"\0") + b"koly" + b"\0\0\0\x04\0\0\x02\0" + b"\0" * 500


def gz_name(name: str) -> str:
    return f"{name}.gz"


def first(files: Files) -> tuple[str, bytes]:
    return next(iter(files.items()))


def _stream(ending: str, pack: Callable[[bytes], bytes]) -> Packer:
    def pack_first(files: Files) -> tuple[str, bytes]:
        name, content = first(files)
        return f"{name}.{ending}", pack(content)

    return pack_first


def _named(name: str, pack: Callable[[Files], bytes]) -> Packer:
    return lambda files: (name, pack(files))


def _filtered(filter_name: str) -> Callable[[bytes], bytes]:
    return lambda content: by_libarchive("raw", filter_name)({"a": content})


def encrypted_zip(files: Files, password: bytes = b"Winter-2026") -> bytes:
    """Write a zip in the traditional encryption (APPNOTE 6.1)."""
    out, directory = b"", b""
    for name, content in files.items():
        plain, crc = name.encode(), binascii.crc32(content)
        keys = _ZipKeys(password)
        packed = zlib.compress(content)[2:-4]
        body = keys.encrypt(b"0123456789a" + bytes((crc >> 24,)) + packed)
        fields = struct.pack("<HHHHHIIIHH", 20, 1, 8, 0x5000, 0x5C25, crc, len(body), len(content), len(plain), 0)
        directory += b"PK\x01\x02\x14\x00" + fields + struct.pack("<HHHII", 0, 0, 0, 0, len(out)) + plain
        out += b"PK\x03\x04" + fields + plain + body
    end = struct.pack("<HHHHIIH", 0, 0, len(files), len(files), len(directory), len(out), 0)
    return out + directory + b"PK\x05\x06" + end


class _ZipKeys:
    def __init__(self, password: bytes) -> None:
        self._keys = [0x12345678, 0x23456789, 0x34567890]
        for byte in password:
            self._update(byte)

    def _update(self, byte: int) -> None:
        keys = self._keys
        keys[0] = _crc_step(keys[0], byte)
        keys[1] = (keys[1] + (keys[0] & 0xFF)) * 134775813 + 1 & 0xFFFFFFFF
        keys[2] = _crc_step(keys[2], keys[1] >> 24)

    def encrypt(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            temp = self._keys[2] | 2
            out.append(byte ^ (temp * (temp ^ 1) >> 8 & 0xFF))
            self._update(byte)
        return bytes(out)


def _crc_table() -> tuple[int, ...]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ 0xEDB88320 if number & 1 else number >> 1  # noqa: PLW2901
        table.append(number)
    return tuple(table)


_CRC = _crc_table()


def _crc_step(crc: int, byte: int) -> int:
    return crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]


def zip_with_method(files: Files, method: int) -> bytes:
    """Write a zip that names a compression method; the content is stored uncompressed."""
    raw = zip_of(dict(files), zipfile.ZIP_STORED)
    out = bytearray(raw)
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        place = raw.find(mark)
        while place >= 0:
            out[place + offset : place + offset + 2] = struct.pack("<H", method)
            place = raw.find(mark, place + 4)
    return bytes(out)


def zip_local_name(files: Files) -> bytes:
    """Write a zip whose local headers have the file's name, while its directory has the name of a text file."""
    name, content = first(files)
    shown = ("readme.txt" * 20)[: len(name)]
    raw = zip_of({name: content})
    at = raw.rfind(name.encode())
    return raw[:at] + shown.encode() + raw[at + len(name) :]


def zip_without_directory(files: Files) -> bytes:
    raw = zip_of(dict(files))
    return raw[: raw.find(b"PK\x01\x02")]


def zip_behind(count: int) -> Callable[[Files], bytes]:
    return lambda files: zip_of({**{f"notes/{number}.txt": b"note" for number in range(count)}, **files})


def nested(pack: Packer, depth: int) -> Packer:
    def pack_deep(files: Files) -> tuple[str, bytes]:
        name, content = first(files)
        for _ in range(depth):
            name, content = pack({name: content})
        return name, content

    return pack_deep


ARCHIVES: dict[str, Packer] = {
    "zip": _named("a.zip", lambda files: zip_of(dict(files))),
    "zip stored": _named("a.zip", lambda files: zip_of(dict(files), zipfile.ZIP_STORED)),
    "zip bzip2": _named("a.zip", lambda files: zip_of(dict(files), zipfile.ZIP_BZIP2)),
    "zip lzma": _named("a.zip", lambda files: zip_of(dict(files), zipfile.ZIP_LZMA)),
    "zip named .bin": _named("a.bin", lambda files: zip_of(dict(files))),
    "zip named .pdf": _named("a.pdf", lambda files: zip_of(dict(files))),
    "zip behind bytes": _named("a.zip", lambda files: b"MIME preamble" * 100 + zip_of(dict(files))),
    "zip behind a picture": _named("a.gif", lambda files: b"GIF89a\1\0\1\0\0\0\0;" + zip_of(dict(files))),
    "zip before bytes": _named("a.zip", lambda files: zip_of(dict(files)) + b"\0" * 2_000),
    "zip behind a zip": _named("a.zip", lambda files: zip_of(dict(files)) + zip_of({"readme.txt": b"nothing"})),
    "zip before a zip": _named("a.zip", lambda files: zip_of({"readme.txt": b"nothing"}) + zip_of(dict(files))),
    "zip with another local name": _named("a.zip", zip_local_name),
    "zip without a directory": _named("a.zip", zip_without_directory),
    "zip behind 1,000 files": _named("a.zip", zip_behind(1_000)),
    "zip behind 9,000 files": _named("a.zip", zip_behind(9_000)),
    "zip with method 99": _named("a.zip", lambda files: zip_with_method(files, 99)),
    "zip with method 9": _named("a.zip", lambda files: zip_with_method(files, 9)),
    "zip with method 98": _named("a.zip", lambda files: zip_with_method(files, 98)),
    "zip with method 93": _named("a.zip", lambda files: zip_with_method(files, 93)),
    "zip encrypted": _named("a.zip", encrypted_zip),
    "zip with folders": lambda files: ("a.zip", zip_of({f"a/b/c/{name}": content for name, content in files.items()})),
    "zip cut off": _named("a.zip", lambda files: zip_of(dict(files))[:-40]),
    "tar": _named("a.tar", tar),
    "tar gnu": _named("a.tar", lambda files: tar(files, tarfile.GNU_FORMAT)),
    "tar v7": _named("a.tar", tar_v7),
    "zip behind a gzip": _named("a.zip", lambda files: gzip.compress(b"note") + zip_of(dict(files))),
    "zip behind a tar": _named("a.zip", lambda files: tar({"note.txt": b"note"}) + zip_of(dict(files))),
    "tar behind a tar": _named("a.tar", lambda files: tar({"note.txt": b"note"}) + tar(files)),
    "tar.gz behind a tar.gz": _named(
        "a.tgz", lambda files: gzip.compress(tar({"note.txt": b"note"})) + gzip.compress(tar(files))
    ),
    "cab with a mark that we do not know": _named("a.cab", lambda files: b"MSCF\1\0\0\0" + zip_of(dict(files))[4:-22]),
    "data file of Outlook": _named("a.pst", lambda files: b"!BDN" + first(files)[1]),
    "tar.gz": _named("a.tgz", lambda files: gzip.compress(tar(files))),
    "tar.bz2": _named("a.tar.bz2", lambda files: bz2.compress(tar(files))),
    "tar.xz": _named("a.tar.xz", lambda files: lzma.compress(tar(files))),
    "tar.lzma": _named("a.tar.lzma", lambda files: lzma.compress(tar(files), lzma.FORMAT_ALONE)),
    "tar.zst": _named("a.tar.zst", by_libarchive("ustar", "zstd")),
    "tar.lz4": _named("a.tar.lz4", by_libarchive("ustar", "lz4")),
    "tar.Z": _named("a.tar.Z", by_libarchive("ustar", "compress")),
    "tar.lz": _named("a.tar.lz", by_libarchive("ustar", "lzip")),
    "gz": _stream("gz", gzip.compress),
    "gz twice": _stream("gz", lambda content: gzip.compress(gzip.compress(content))),
    "bz2": _stream("bz2", bz2.compress),
    "xz": _stream("xz", lzma.compress),
    "zst": _stream("zst", _filtered("zstd")),
    "lz4": _stream("lz4", _filtered("lz4")),
    "Z": _stream("Z", _filtered("compress")),
    "7z": _named("a.7z", by_libarchive("7zip")),
    "7z named .dat": _named("a.dat", by_libarchive("7zip")),
    "iso": _named("a.iso", by_libarchive("iso9660")),
    "iso named .img": _named("a.img", by_libarchive("iso9660")),
    "cpio": _named("a.cpio", by_libarchive("cpio")),
    "ar": _named("a.ar", by_libarchive("ar_bsd")),
    "xar": _named("a.xar", by_libarchive("xar")),
    "warc": _named("a.warc", by_libarchive("warc")),
    "rar4": _named("a.rar", rar4),
    "rar5": _named("a.rar", rar5),
    "rar4 encrypted": _named("a.rar", lambda files: rar4(files, encrypted=True)),
    "rar5 encrypted": _named("a.rar", lambda files: rar5(files, encrypted=True)),
    "rar4 behind 2,000 files": _named(
        "a.rar", lambda files: rar4({**{f"{n}.txt": b"note" for n in range(2_000)}, **files})
    ),
    "rar5 behind 2,000 files": _named(
        "a.rar", lambda files: rar5({**{f"{n}.txt": b"note" for n in range(2_000)}, **files})
    ),
    "rar5 in a program": _named("a.bin", lambda files: b"MZ" + b"\0" * 510 + rar5(files)),
    "cab": _named("a.cab", cab),
    "lha": _named("a.lzh", lha),
    "arj": _named("a.arj", arj),
    "ace": _named("a.ace", ace),
    "udf": _named("a.iso", udf),
    "vhd": _named("a.vhd", vhd),
    "wim": _named("a.wim", wim),
    "dmg": _named("a.dmg", dmg),
}

DEEP: dict[str, Packer] = {
    f"{kind} {depth} deep": nested(ARCHIVES[kind], depth)
    for kind, depths in {"zip": (3, 7, 12, 30), "7z": (3, 22), "tar": (5, 20), "gz": (6, 40), "rar5": (4, 16)}.items()
    for depth in depths
}
