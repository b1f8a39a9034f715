"""What a form asks to be brought into a list: lines that were typed, a file, or rows that a preview gives back.

Security: reads texts that people paste and files that strangers made; what is not UTF-8 is told with its line.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Struct

from mailwarden.console.forms import Form
from mailwarden.console.request import GLOBAL, UserRequest
from mailwarden.errors import NotFound, SchemaViolation, TooManyEntries
from mailwarden.lists.catalogue import ListDefinition, find_list
from mailwarden.lists.checking import Checker
from mailwarden.lists.files import FORMS, Row
from mailwarden.lists.scope import ListScope
from mailwarden.lists.service import ListDesk, Lists
from mailwarden.policy.impact import ImpactEstimator
from mailwarden.wire.lists import MAX_COMMENT

LISTS = "/console/lists"
MAX_CHOICES = 500  # tenants in one menu; beyond that a name is typed


class ScopedList(Struct, frozen=True):
    """One list of one scope."""

    scope: ListScope
    definition: ListDefinition

    @property
    def scope_text(self) -> str:
        return GLOBAL if self.scope.tenant is None else str(self.scope.tenant)

    @property
    def max_size(self) -> int:
        return self.definition.max_size(in_tenant=self.scope.tenant is not None)

    @property
    def path(self) -> str:
        return f"{LISTS}/{self.definition.name}"

    def to(self, page: str = "", **query: object) -> str:
        """Return the address of a page of this list; what is empty is left out of it."""
        given = {"scope": self.scope_text, **{name: str(value) for name, value in query.items() if value}}
        return f"{self.path}{page}?{urlencode(given, quote_via=quote)}"


def scope_of(request: UserRequest) -> ListScope:
    """Return the scope that the form or the address names; a tenant may be named by its name as well."""
    text = request.form.text("scope") or request.query.get("scope", "")
    if name := request.query.get("tenant", "").strip():
        known = next((each.uid for each in request.tenants if name in (each.name, str(each.uid))), None)
        if known is None:
            raise NotFound("There is no such tenant.")
        text = str(known)
    return request.list_scope(text)


def read_target(request: UserRequest) -> ScopedList:
    return ScopedList(scope_of(request), find_list(request.variables["name"]))


def scopes_of(request: UserRequest) -> list[tuple[str, str]] | None:
    """Return the scopes that a person may choose from, or None where there are too many for a menu."""
    if len(request.tenants) > MAX_CHOICES:
        return None
    tenants = [(str(each.uid), f"Tenant {each.name}") for each in request.tenants]
    return [(GLOBAL, "Global: every tenant"), *tenants] if request.scope.tenants is None else tenants


def scope_name(request: UserRequest, scope: ListScope) -> str:
    return "every tenant" if scope.tenant is None else f"tenant {request.tenant_name(scope.tenant)}"


def read_expiry(text: str) -> datetime | None:
    """Return the moment of a field, which is in UTC where it names no zone, or None where it is empty."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SchemaViolation(f"`{text[:40]}` is no time such as 2027-01-31T12:00.") from None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise SchemaViolation("The time cannot be written in UTC.") from None


def field_of(stored: str | None) -> str:
    """Return a stored time as the field of a form shows it."""
    return stored[:16] if stored else ""


def read_comment(text: str) -> str:
    if len(text) > MAX_COMMENT:
        raise SchemaViolation(f"A comment has at most {MAX_COMMENT:,} characters.")
    return text


def read_number(text: str) -> int:
    """Return the number of a change, or raise NotFound for what is none."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise NotFound("There is no such change.")
    return int(text)


MAX_TEXT = 2_000_000  # of a file or a text
MAX_CONFIRMATION = 4_000_000  # a form takes some more
_encode = msgspec.json.Encoder().encode


class ListForm(Struct, frozen=True):
    text: str
    file_format: str = "txt"
    comment: str = ""
    expires: str = ""
    from_file: bool = False

    @property
    def end(self) -> datetime | None:
        return read_expiry(self.expires)


def read_list_form(form: Form) -> ListForm:
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
    return ListForm(text, shape, read_comment(form.text("comment")), form.text("expires"), from_file)


def confirmation_of(list_form: ListForm, rows: Sequence[Row]) -> str:
    """Return the rows as NDJSON for the form that confirms them; what all of them share is not repeated."""
    lines: list[bytes] = []
    end = list_form.end
    for row in rows:
        comment = UNSET if list_form.comment and row.comment == list_form.comment else row.comment
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


class ListServices(Struct, frozen=True):
    lists: Lists
    desk: ListDesk
    checker: Checker
    impact_estimator: ImpactEstimator
