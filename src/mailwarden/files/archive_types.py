"""Recognises the format of an archive or packed file by name and content.

Security: looks at hostile bytes; every search is bounded, and it never raises.
"""

import re
from typing import NamedTuple

from mailwarden.files.file_types import HEAD, kind_by_content
from mailwarden.message.file_names import ending_of

ZIP = "zip"
ZIP_END = b"PK\x05\x06"
_ZIP_ENTRY, _ZIP64 = b"PK\x01\x02", b"PK\x06\x07"
_ZIP_STARTS = (b"PK\x03\x04", ZIP_END, b"PK\x07\x08PK\x03\x04", b"PK00PK\x03\x04")
_ZIP_TAIL = 65_557  # the end record with the longest comment

# Formats that libarchive opens, with the names of its readers.
ARCHIVES = {
    "rar": ("rar", "rar5"), "7z": ("7zip",), "cab": ("cab",), "iso": ("iso9660",), "lzh": ("lha",), "tar": ("tar",),
    "cpio": ("cpio",), "ar": ("ar",), "xar": ("xar",), "warc": ("warc",), "rpm": ("cpio",),
}  # fmt: skip
# One file packed by itself: the kind, with the name of libarchive's filter.
STREAMS = {
    "gzip": "gzip", "bzip2": "bzip2", "xz": "xz", "zstandard": "zstd", "lz4": "lz4", "lzip": "lzip",
    "compress": "compress", "lzma": "lzma",
}  # fmt: skip
_VOLUME_PLACES = range(32_769, 32_769 + 64 * 2_048, 2_048)  # a disc may describe itself as ISO 9660 and as UDF
_ARCHIVE_KINDS = frozenset({"zip", "rar", "7z", "gzip", "cab"})
_VOLUME = re.compile(r"\.(?:[rsz]\d\d|\d{3}|part\d+(?:\.rar|\.exe)?)$", re.IGNORECASE)
_UNSUPPORTED_ENDINGS = (
    "ace arj zoo sit sitx sea alz egg sqx uha uc2 ha arc pak bh b1 pea zpaq zpq kgb paq lzo rz dmg wim esd swm vhd "
    "vhdx vmdk img nrg mdf daa uif isz cpt hqx wsz lbr"
)
_OPENED_ENDINGS = (
    "zip zipx rar 7z cab iso udf lzh lha tar cpio ar deb xar pkg rpm warc gz gzip tgz taz bz2 bz tbz tbz2 xz txz zst "
    "tzst lz4 lz tlz z lzma jar"
)
_UNSUPPORTED_NAMES = frozenset(_UNSUPPORTED_ENDINGS.split())
_OPENED_NAMES = frozenset(_OPENED_ENDINGS.split())
# The ending of a packed file and the ending that replaces it after unpacking.
_UNPACKED_ENDINGS = {
    "gz": "", "gzip": "", "z": "", "bz2": "", "bz": "", "xz": "", "lzma": "", "zst": "", "lz4": "", "lz": "",
    "svgz": ".svg", "emz": ".emf", "wmz": ".wmf", "tgz": ".tar", "taz": ".tar", "tbz": ".tar", "tbz2": ".tar",
    "txz": ".tar", "tlz": ".tar", "tzst": ".tar", "cpgz": ".cpio",
}  # fmt: skip
_FRONTED = (b"Rar!\x1a\x07\x00", b"Rar!\x1a\x07\x01\x00", b"7z\xbc\xaf\x27\x1c\x00", b"MSCF\0\0\0\0", b"PK\x03\x04")
_TEXT = bytes({7, 8, 9, 10, 12, 13, 27, *range(32, 256)})


class _Mark(NamedTuple):
    offset: int
    signature: bytes
    kind: str


_OPENED = (
    _Mark(0, b"Rar!\x1a\x07", "rar"), _Mark(0, b"7z\xbc\xaf\x27\x1c", "7z"), _Mark(0, b"MSCF\0\0\0\0", "cab"),
    _Mark(32_769, b"CD001", "iso"), _Mark(0, b"xar!", "xar"), _Mark(257, b"ustar", "tar"),
    _Mark(0, b"070701", "cpio"), _Mark(0, b"070702", "cpio"), _Mark(0, b"070707", "cpio"),
    _Mark(0, b"!<arch>\n", "ar"), _Mark(0, b"\xed\xab\xee\xdb", "rpm"), _Mark(0, b"WARC/", "warc"),
    _Mark(0, b"\x1f\x8b", "gzip"), _Mark(0, b"\xfd7zXZ\0", "xz"), _Mark(0, b"\x28\xb5\x2f\xfd", "zstandard"),
    _Mark(0, b"\x04\x22\x4d\x18", "lz4"), _Mark(0, b"\x02\x21\x4c\x18", "lz4"), _Mark(0, b"LZIP", "lzip"),
    _Mark(0, b"\x1f\x9d", "compress"),
)  # fmt: skip
# Formats that we recognise and cannot open.
_UNSUPPORTED = (
    _Mark(7, b"**ACE**", "ace"), _Mark(20, b"\xdc\xa7\xc4\xfd", "zoo"), _Mark(0, b"SIT!", "StuffIt"),
    _Mark(0, b"StuffIt", "StuffIt"), _Mark(0, b"ALZ\x01", "alz"), _Mark(0, b"EGGA", "egg"),
    _Mark(0, b"hsqs", "SquashFS"), _Mark(0, b"sqsh", "SquashFS"), _Mark(0, b"MSWIM\0", "WIM"),
    _Mark(0, b"conectix", "VHD"), _Mark(0, b"vhdxfile", "VHDX"), _Mark(0, b"KDMV", "VMDK"),
    _Mark(0, b"QFI\xfb", "QCOW"), _Mark(0, b"ITSF", "compiled help"), _Mark(0, b"LRZI", "lrzip"),
    _Mark(0, b"\x89LZO\0\r\n\x1a\n", "lzop"), _Mark(0, b"ISc(", "InstallShield"),
    _Mark(0, b"SZDD\x88\xf0\x27\x33", "compress.exe"), _Mark(0, b"KWAJ\x88\xf0\x27\xd1", "compress.exe"),
    _Mark(0, b"zPQ", "ZPAQ"), _Mark(0, b"7kSt", "ZPAQ"), _Mark(0, b"ArC\x01", "FreeArc"), _Mark(0, b"UHA", "UHARC"),
    _Mark(0, b"\0\x05\x16\0", "AppleSingle"), _Mark(0, b"\x1f\xa0", "SCO compress"), _Mark(0, b"\x1f\x1e", "pack"),
    _Mark(0, b"bvx2", "LZFSE"), _Mark(0, b"YAA1", "Apple Archive"), _Mark(0, b"AA01", "Apple Archive"),
    _Mark(0, b"DAA\0", "DAA"), _Mark(0, b"!BDN", "Outlook data"),
    _Mark(0, b"(This file must be converted with BinHex", "BinHex"),
)  # fmt: skip


def archive_kind(content: bytes) -> str:
    """Return the kind of archive by the first bytes, or "zip" by the last ones; never by the name."""
    if content.startswith(_ZIP_STARTS):
        return ZIP
    for offset, signature, kind in _OPENED:
        if content[offset : offset + len(signature)] == signature:
            return kind
    if content[:3] == b"BZh" and content[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return "bzip2"
    if content[2:4] in (b"-l", b"-p") and content[6:7] == b"-":  # -lh5-, -lz4-, -pm2-
        return "lzh"
    if _is_old_tar(content):
        return "tar"
    if _is_lzma(content):
        return "lzma"
    if content[:2] in (b"\xc7\x71", b"\x71\xc7") and len(content) > 26:
        return "cpio"
    # A ZIP may follow other bytes: readers start from its end.
    return ZIP if ends_as_zip(content) else ""


def archive_kinds(name: str, content: bytes) -> tuple[str, ...]:
    """Return every kind of archive that some program opens a file as, the kind by its first bytes first.

    The name chooses the program. Some programs read the directory of a ZIP at the end, others the descriptor of a disc.
    """
    kinds = [archive_kind(skip_front(name, content))]
    if ends_as_zip(content):
        kinds.append(ZIP)
    if content[32_769:32_774] == b"CD001":
        kinds.append("iso")
    return tuple(dict.fromkeys(filter(None, kinds)))


def unsupported_kind(name: str, content: bytes) -> str:
    """Return the kind of a container that we cannot open, or ""."""
    for offset, signature, kind in _UNSUPPORTED:
        if content[offset : offset + len(signature)] == signature:
            return kind
    if content[:2] == b"\x60\xea" and len(content) > 40:
        return "arj"
    if content[-512:-508] == b"koly":
        return "DMG"
    if any(content[place : place + 5] == b"BEA01" for place in _VOLUME_PLACES):
        return "UDF"
    head = content[:HEAD]  # not inspection: the beginning decides the type
    if archive_kind(skip_front(name, content)):
        return ""
    if (kind := kind_by_content(head)) in _ARCHIVE_KINDS:
        return kind
    if kind or is_text(head):
        return ""
    ending = ending_of(name)
    if _VOLUME.search(name.rstrip(". ")):
        return "volume of a divided archive"
    if ending in _UNSUPPORTED_NAMES or ending in _OPENED_NAMES:
        return ending
    return ""


def is_text(head: bytes) -> bool:
    return not head.translate(None, _TEXT)


def name_within(name: str) -> str:
    """Return the name that programs give the single file in a packed file."""
    stem, _, ending = name.rpartition(".")
    if not stem or ending.lower() not in _UNPACKED_ENDINGS:
        return name or "content"
    return stem + _UNPACKED_ENDINGS[ending.lower()]


def names_within(name: str) -> tuple[str, ...]:
    """Return the names of a file that may be packed several times: the reader unpacks all layers at once."""
    names = [name_within(name)]
    while names[-1] != (inner := name_within(names[-1])):
        names.append(inner)
    return tuple(names)


def skip_front(name: str, content: bytes) -> bytes:
    """Return an archive from where it begins: archive programs skip other bytes before it, such as a stub."""
    if ending_of(name) not in _OPENED_NAMES or archive_kind(content):
        return content
    places = (content.find(mark) for mark in _FRONTED)
    return content[min((place for place in places if place > 0), default=0) :]


def ends_as_zip(content: bytes) -> bool:
    """Return whether the directory of a ZIP is at the end, behind any other bytes."""
    start = max(len(content) - _ZIP_TAIL, 0)
    end = len(content)
    while (end := content.rfind(ZIP_END, start, end)) > 0:
        size, offset = int.from_bytes(content[end + 12 : end + 16], "little"), content[end + 16 : end + 20]
        places = (max(end - size, 0), int.from_bytes(offset, "little"))
        if any(content[place : place + 4] == _ZIP_ENTRY for place in places) or content[end - 20 : end - 16] == _ZIP64:
            return True
    return False


def _is_old_tar(content: bytes) -> bool:
    """Return whether this is a tar from before POSIX, which has no signature, by the checksum of its first header."""
    header = content[:512]  # not inspection: the header of a tar entry
    if len(header) < 512 or not header[0] or header[:8] == header[148:156]:
        return False
    field = header[148:156].strip(b" \0")
    if not 1 <= len(field) <= 7 or field.translate(None, b"01234567"):
        return False
    unsigned = sum(header) - sum(header[148:156]) + 8 * 32
    rest = (*header[:148], *header[156:])  # not inspection: all but the checksum itself
    signed = unsigned - 256 * sum(byte > 127 for byte in rest)
    return int(field, 8) in {unsigned, signed}


def _is_lzma(content: bytes) -> bool:
    """Return whether this is an LZMA stream without a container: usual properties, dictionary and size."""
    if content[:1] != b"\x5d" or len(content) < 14:
        return False
    dictionary, size = int.from_bytes(content[1:5], "little"), int.from_bytes(content[5:13], "little")
    usual = any(dictionary in {1 << power, 3 << power >> 1} for power in range(12, 31))
    return usual and (size == (1 << 64) - 1 or size < 1 << 40) and content[13] == 0
