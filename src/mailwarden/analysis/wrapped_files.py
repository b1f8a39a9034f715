"""Files wrapped in others: Outlook's TNEF (winmail.dat), uuencoded text, and what an entry of a calendar brings.

Security: reads hostile bytes inside a killable worker; files, names and sizes are bounded, and it never raises.
"""

import binascii
import re
import struct
from collections.abc import Iterator

MAX_FILES = 50
MAX_BYTES = 32 * 1024 * 1024
_MAX_FIELDS = 5_000
_NAME = 255

TNEF = b"\x78\x9f\x3e\x22"
_TITLE, _DATA, _BEGIN = 0x00018010, 0x0006800F, 0x00069002
_UU = re.compile(rb"(?:^|\n)begin(?:-base64)? [0-7]{3,4} ([^\r\n]{1,255})\r?\n")
_UU_ROW = 61
_CALENDAR = b"BEGIN:VCALENDAR"
_FOLD = re.compile(rb"\r?\n[ \t]")
_ATTACHED = re.compile(rb"(?im)^ATTACH((?:;[^:\r\n;]{1,300}){0,10}):([A-Za-z0-9+/=]{4,})")
_FILE_NAME = re.compile(rb"(?i);(?:X-)?(?:FILENAME|APPLE-FILENAME)=\"?([^\";]{1,255})")


def wrapping_of(content: bytes) -> str:
    """Return how files are wrapped in this content, or ""."""
    if content.startswith(TNEF):
        return "tnef"
    if content[:100].lstrip(b"\xef\xbb\xbf \r\n").upper().startswith(_CALENDAR):
        return "calendar" if b"\nATTACH;" in content.upper() else ""
    return "uuencode" if b"begin" in content[:4_096] and _UU.search(content[:4_096]) else ""


def unwrap(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of the files, as far as they can be read."""
    reader = {"tnef": _read_tnef, "uuencode": _read_uu, "calendar": _read_calendar}.get(wrapping_of(content))
    if reader is not None:
        yield from reader(content[:MAX_BYTES])


def _read_tnef(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Go from field to field; a title comes before or after its data, and a new file begins with a field of its own."""
    position, name, data = 6, "", b""
    files = 0
    for _ in range(_MAX_FIELDS):
        head = content[position : position + 9]
        if len(head) < 9 or files >= MAX_FILES:
            break
        _, kind, length = struct.unpack("<BII", head)
        value = content[position + 9 : position + 9 + length]
        position += 9 + length + 2
        if kind == _BEGIN and (name or data):
            yield name, data
            files, name, data = files + 1, "", b""
        elif kind == _TITLE:
            name = value.partition(b"\0")[0].decode("latin-1")[:_NAME]
        elif kind == _DATA:
            data = value
    if name or data:
        yield name, data


def _read_uu(content: bytes) -> Iterator[tuple[str, bytes]]:
    for match in list(_UU.finditer(content))[:MAX_FILES]:
        is_base64 = b"-base64" in match[0]
        end = content.find(b"\n====" if is_base64 else b"\nend", match.end())
        body = content[match.end() : end if end >= 0 else len(content)]
        try:
            data = binascii.a2b_base64(body) if is_base64 else b"".join(map(_row, body.splitlines()))
        except (binascii.Error, ValueError):
            continue
        yield match[1].decode("latin-1").strip(), data


def _read_calendar(content: bytes) -> Iterator[tuple[str, bytes]]:
    for match in list(_ATTACHED.finditer(_FOLD.sub(b"", content)))[:MAX_FILES]:
        name = _FILE_NAME.search(match[1])
        try:
            yield name[1].decode("utf-8", "replace") if name else "", binascii.a2b_base64(match[2])
        except binascii.Error:
            continue


def _row(line: bytes) -> bytes:
    try:
        return binascii.a2b_uu(line[: _UU_ROW + 20])
    except binascii.Error:  # a row with the wrong padding, which old programs wrote
        count = (((line[0] - 32) & 63) * 4 + 5) // 3 if line else 0
        try:
            return binascii.a2b_uu(line[:count])
        except binascii.Error:
            return b""
