"""What a form asks to be brought into a list: lines that were typed, a file, or rows that a preview gives back.

Security: reads texts that people paste and files that strangers made; what is not UTF-8 is told with its line.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import UNSET, Struct

from mailwarden.console.forms import Form
from mailwarden.console.list_place import read_comment, read_expiry
from mailwarden.errors import SchemaViolation, TooManyEntries
from mailwarden.lists.files import FORMS, Row

MAX_TEXT = 2_000_000  # of a file or a text
MAX_CONFIRMATION = 4_000_000  # a form takes some more
_encode = msgspec.json.Encoder().encode


class Wish(Struct, frozen=True):
    text: str
    form: str = "txt"
    comment: str = ""
    expires: str = ""
    from_file: bool = False

    @property
    def end(self) -> datetime | None:
        return read_expiry(self.expires)


def read_wish(form: Form) -> Wish:
    """Read the lines that were typed, the file that was chosen, or the rows that come back from a preview."""
    upload = form.file("file")
    from_file = form.text("origin") == "file"
    shape = form.text("form") or "txt"
    if shape not in FORMS:
        raise SchemaViolation(f"A file is one of {', '.join(FORMS)}.")
    text, most = form.raw("entries"), MAX_CONFIRMATION
    if upload is not None:
        text, most = "", MAX_TEXT
        if upload.size <= MAX_TEXT:
            # What is not UTF-8 becomes characters that no entry may hold, so that its line is told.
            text = upload.data().decode("utf-8-sig", "surrogateescape")
    if len(text) > most or (upload is not None and upload.size > most):
        raise _too_long()
    if not text.strip():
        raise SchemaViolation("Choose a file with entries in it." if from_file else "Write at least one entry.")
    read_expiry(form.text("expires"))  # a time that cannot be read is told here
    return Wish(text, shape, read_comment(form.text("comment")), form.text("expires"), from_file)


def confirmation_of(wish: Wish, rows: Sequence[Row]) -> str:
    """Return the rows as NDJSON for the form that confirms them; what all of them share is not repeated."""
    lines: list[bytes] = []
    end = wish.end
    for row in rows:
        comment = UNSET if wish.comment and row.comment == wish.comment else row.comment
        expires = UNSET if end is not None and row.expires == end else row.expires
        lines.append(_line(row.entry, comment, expires))
    text = b"\n".join(lines)
    if len(text) > MAX_CONFIRMATION:
        raise _too_long()
    return text.decode()


def _line(entry: str, comment: object, expires: object) -> bytes:
    record: dict[str, object] = {"entry": entry}
    if comment is not UNSET:
        record["comment"] = comment
    if expires is not UNSET:
        record["expires"] = expires
    return _encode(record)


def _too_long() -> TooManyEntries:
    return TooManyEntries(f"The console takes up to {MAX_TEXT:,} bytes at once; use mailwarden lists import for more.")
