"""What kind of archive something is by its content, and what a file is called that is packed for itself.

Security: looks at hostile bytes; every search is bounded, and it never raises.
"""

# Recognised by their first bytes, with the offset of those; these we do not open.
_SEALED = (
    (0, b"Rar!\x1a\x07", "rar"), (0, b"7z\xbc\xaf\x27\x1c", "7z"), (0, b"MSCF", "cab"), (7, b"**ACE**", "ace"),
    (0, b"\x60\xea", "arj"), (32_769, b"CD001", "iso"), (0, b"xar!", "xar"), (2, b"-lh", "lzh"),
    (0, b"\x28\xb5\x2f\xfd", "zstandard"), (0, b"\x1f\x9d", "compress"), (0, b"LZIP", "lzip"),
)  # fmt: skip
STREAMS = frozenset({"gzip", "bzip2", "xz"})  # these pack one file and name it after themselves
# What stands in place of the ending of a packed file once it is unpacked.
_PACKED_ENDINGS = {
    "gz": "", "gzip": "", "z": "", "bz2": "", "bz": "", "xz": "", "lzma": "", "svgz": ".svg",
    "tgz": ".tar", "taz": ".tar", "tbz": ".tar", "tbz2": ".tar", "txz": ".tar",
}  # fmt: skip
ZIP_END = b"PK\x05\x06"
_ZIP_TAIL = 65_557  # bytes of a zip in which its end stands
_MAX_FRONT = 1024 * 1024  # bytes before an archive that its programs skip
_FRONTED = {"rar": (b"Rar!\x1a\x07\x00", b"Rar!\x1a\x07\x01\x00"), "7z": (b"7z\xbc\xaf\x27\x1c\x00",)}


def archive_kind(content: bytes) -> str:
    """Tell an archive by its content, never by its name."""
    if content[:4] in (b"PK\x03\x04", b"PK\x05\x06") or content[:8] == b"PK\x07\x08PK\x03\x04":
        return "zip"
    if content[:3] == b"\x1f\x8b\x08":
        return "gzip"
    if content[:3] == b"BZh" and content[4:10] in (b"1AY&SY", b"\x17\x72\x45\x38\x50\x90"):
        return "bzip2"
    if content[:6] == b"\xfd7zXZ\x00":
        return "xz"
    if content[257:262] == b"ustar":
        return "tar"
    for offset, magic, kind in _SEALED:
        if content[offset : offset + len(magic)] == magic and (kind != "arj" or len(content) > 40):
            return kind
    # A zip may stand behind other bytes: readers start from its end.
    return "zip" if ends_as_zip(content) else ""


def name_within(name: str) -> str:
    """Return what the one file is called that is packed under a name, as programs call it that unpack it."""
    stem, _, ending = name.rpartition(".")
    if not stem or ending.lower() not in _PACKED_ENDINGS:
        return name or "content"
    return stem + _PACKED_ENDINGS[ending.lower()]


def drop_front(name: str, content: bytes) -> bytes:
    """Return what is called a RAR or 7z archive from where it begins: programs that open it skip what is before."""
    marks = _FRONTED.get(name[-4:].lower().rpartition(".")[2], ())
    if not marks or archive_kind(content):
        return content
    places = (content.find(mark, 0, _MAX_FRONT) for mark in (each for both in _FRONTED.values() for each in both))
    first = min((place for place in places if place > 0), default=0)
    return content[first:]


def ends_as_zip(content: bytes) -> bool:
    return content.rfind(ZIP_END, max(len(content) - _ZIP_TAIL, 0)) > 0
