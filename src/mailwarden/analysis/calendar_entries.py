"""What the entries of a calendar say to whom they invite: title, description and place, as calendars show them.

Security: reads hostile text inside a killable worker; bytes, lines and what is kept of them are bounded.
"""

import re
from collections.abc import Iterable
from itertools import islice

from mailwarden.message.charsets import decode_text
from mailwarden.message.message import Part

MAX_BYTES = 256 * 1024
MAX_TEXT = 10_000
_MAX_FIELDS = 100
_FOLD = re.compile(r"\r?\n[ \t]")
_FIELD = re.compile(r"(?im)^(?:SUMMARY|DESCRIPTION|LOCATION|URL)(?:;[^:\r\n]{0,500})?:([^\r\n]{1,20000})")
_ESCAPED = re.compile(r"\\([nN,;\\])")


def read_entries(parts: Iterable[Part]) -> tuple[str, ...]:
    """Return what the calendars of a message say, field by field."""
    calendars = (part for part in parts if part.media_type == "text/calendar" or part.name.lower().endswith(".ics"))
    texts = (_FOLD.sub("", decode_text(part.content[:MAX_BYTES], part.charset)) for part in calendars)
    fields = (match[1] for text in texts for match in _FIELD.finditer(text))
    return tuple(_ESCAPED.sub(_plain, field)[:MAX_TEXT] for field in islice(fields, _MAX_FIELDS))


def _plain(match: re.Match[str]) -> str:
    return "\n" if match[1] in "nN" else match[1]
