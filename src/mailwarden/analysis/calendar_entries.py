"""What calendars and contacts say to people: title, description and place, their links, and the pages inside.

Security: reads hostile text inside a killable worker; limits that stop the reader are recorded in the coverage.
"""

import binascii
import re
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from mailwarden.message.coverage import Coverage
from mailwarden.message.file_names import ending_of
from mailwarden.message.limits import LIMITS
from mailwarden.model.place import Place

_TYPES = frozenset(
    {"text/calendar", "text/x-calendar", "text/x-vcalendar", "application/calendar", "application/ics", "text/vcard",
     "text/x-vcard", "text/directory"}
)  # fmt: skip
_ENDINGS = frozenset({"ics", "ical", "ifb", "icalendar", "vcs", "vcf", "vcard"})
_BEGIN = re.compile(rb"\s*(?:\xef\xbb\xbf)?begin:v(?:calendar|card)", re.IGNORECASE)
_FOLD = re.compile(r"\r?\n[ \t]|\r[ \t]")  # RFC 5545, 3.1
_SOFT_BREAK = re.compile(r"=\r?\n")  # vCalendar 1.0 writes quoted-printable
_FIELD = re.compile(r"(?im)^((?:[\w-]{1,60}\.)?[\w-]{1,60})((?:;(?:\"[^\"\r\n]*\"|[^:\"\r\n])*)?):([^\r\n]+)")
_CODED = re.compile(r"[A-Za-z0-9+/= \t]+")
_ESCAPED = re.compile(r"\\([nN,;:\\])")
_READ = frozenset(
    {"SUMMARY", "DESCRIPTION", "LOCATION", "COMMENT", "CONTACT", "URL", "NOTE", "FN", "ORG", "TITLE", "LABEL"}
)
_PAGES = frozenset({"X-ALT-DESC", "STYLED-DESCRIPTION"})


class Calendar(Struct, frozen=True):
    entries: tuple[str, ...] = ()  # what is shown, field by field
    links: tuple[str, ...] = ()  # the other values, which may hold addresses
    pages: tuple[str, ...] = ()


def is_calendar(media_type: str, name: str, content: bytes) -> bool:
    return media_type in _TYPES or ending_of(name) in _ENDINGS or bool(_BEGIN.match(content))


def read_calendar(text: str, coverage: Coverage, place: Place) -> Calendar:
    """Read the fields of a calendar or of contacts, each value once."""
    unfolded = _FOLD.sub("", text)
    if "quoted-printable" in unfolded.lower():
        unfolded = _SOFT_BREAK.sub("", unfolded)
    entries: dict[str, None] = {}
    others: dict[str, None] = {}
    pages: dict[str, None] = {}
    for name, parameters, written in coverage.first(_fields(unfolded), "calendar_fields", place):
        value = _decoded(parameters.upper(), written)
        if name in _PAGES or "text/html" in parameters.lower():
            pages[value] = None
        elif name in _READ:
            entries[value] = None
        else:
            others[f"{parameters} {value}"] = None
    if not entries and not others:  # declared as a calendar, and shown as the text that it is
        others[text] = None
        pages |= {text: None} if "<" in text else {}
    return Calendar(tuple(entries), tuple(others), tuple(pages))


def _decoded(parameters: str, value: str) -> str:
    """Undo the encoding that vCard 2.1 and 3.0 allow a value."""
    if "QUOTED-PRINTABLE" in parameters:
        return binascii.a2b_qp(value.encode("utf-8", "replace")).decode("utf-8", "replace")
    if "ENCODING=B" in parameters and _CODED.fullmatch(value) and len(value) < LIMITS.url:
        with suppress(binascii.Error, UnicodeDecodeError):
            return binascii.a2b_base64(value).decode("utf-8")
    return value


def _fields(text: str) -> Iterator[tuple[str, str, str]]:
    for match in _FIELD.finditer(text):
        name = match[1].rpartition(".")[2].upper()
        yield name, match[2], _ESCAPED.sub(_plain, match[3])


def _plain(match: re.Match[str]) -> str:
    return "\n" if match[1] in "nN" else match[1]
