"""Files that are written as text inside another: uuencode, yEnc, bare base64, and attachments of calendar entries.

Security: reads hostile bytes inside a killable worker; every decoder is linear in its input, and it never raises.
"""

import binascii
import re
from collections.abc import Iterator

from mailwarden.files.archive_types import is_text
from mailwarden.files.container import Entry, Opening, SeenFile
from mailwarden.files.file_types import HEAD, kind_by_content
from mailwarden.message.decoding import find_encoded, is_base64

_CALENDAR = b"BEGIN:VCALENDAR"
_FOLD = re.compile(rb"\r?\n[ \t]|\r[ \t]")
_ATTACHED = re.compile(rb"(?im)^(?:[\w-]{1,60}\.)?ATTACH((?:;(?:\"[^\"\r\n]*\"|[^:\"\r\n])*)?):([^\r\n]+)")
_DATA = re.compile(rb"(?i)data:[^,]{0,500};base64,")
_CODED = re.compile(rb"[A-Za-z0-9+/= \t]*")
_FILE_NAME = re.compile(rb"(?i);(?:X-)?(?:FILENAME|APPLE-FILENAME|ORACLE-FILENAME)=(?:\"([^\"]*)\"|([^\";:]*))")
_CODED_NAMES = (".b64", ".base64", ".mim", ".txt")


def is_calendar(file: SeenFile) -> bool:
    return _plain(file.content)[: len(_CALENDAR)].upper() == _CALENDAR


def _plain(content: bytes) -> bytes:
    """Return a text without what calendar programs skip before it; in UTF-8 if it is in UTF-16."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        content = content.decode("utf-16", "replace").encode("utf-8", "replace")
    return content.lstrip(b"\xef\xbb\xbf \t\r\n")


def is_encoded(file: SeenFile) -> bool:
    content = file.content
    if b"begin" not in content or kind_by_content(content[:HEAD]):
        return False
    return next(find_encoded(content), None) is not None


def is_base64_file(file: SeenFile) -> bool:
    return is_text(file.content[:HEAD]) and is_base64(file.content)


def read_encoded(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    for name, content in find_encoded(file.content):
        opening.check_time(file.place)
        yield Entry(name, content)


def read_base64_file(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    try:
        content = binascii.a2b_base64(file.content)
    except binascii.Error:
        content = binascii.a2b_base64(file.content.translate(None, b"=\r\n \t")[: len(file.content) // 4 * 4] + b"==")
    name = next((file.name[: -len(end)] for end in _CODED_NAMES if file.name.lower().endswith(end)), file.name)
    if opening.read([content], len(file.content), file.place) is not None:
        yield Entry(name, content)


def read_calendar(file: SeenFile, opening: Opening) -> Iterator[Entry]:
    """Yield the files of calendar entries (RFC 5545 3.8.1.1)."""
    for match in _ATTACHED.finditer(_FOLD.sub(b"", _plain(file.content)).replace(b"\r", b"\n")):
        opening.check_time(file.place)
        name = _FILE_NAME.search(match[1])
        data = _DATA.match(match[2])
        if not data and not _CODED.fullmatch(match[2]):
            continue  # an address, which is read with the other fields
        try:
            content = binascii.a2b_base64(match[2][data.end() if data else 0 :])
        except binascii.Error:
            opening.damaged(file.place, "a file of a calendar entry cannot be decoded")
            continue
        yield Entry((name[1] or name[2] or b"").decode("utf-8", "replace") if name else "", content)
