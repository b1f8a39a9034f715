"""Reads the forms of the list screens: the list and scope, typed entries, an uploaded file, or rows of a preview.

Security: reads pasted text and files from third parties. A line that is not UTF-8 is reported as invalid.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Struct

from mailwarden.console.forms import Form
from mailwarden.console.language import _
from mailwarden.console.request import GLOBAL, UserRequest
from mailwarden.errors import NotFound, SchemaViolation, TooManyEntries
from mailwarden.lists.catalogue import ListDefinition, find_list
from mailwarden.lists.checking import Checker
from mailwarden.lists.files import FORMS, Row
from mailwarden.lists.requests import MAX_COMMENT
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope
from mailwarden.policy.impact import ImpactEstimator

LISTS = "/console/lists"
MAX_CHOICES = 500  # tenants in one menu; with more, a name is typed

MAX_TEXT = 2_000_000  # bytes of a file or a text
MAX_CONFIRMATION = 4_000_000  # characters of a form that confirms a preview
_encode = msgspec.json.Encoder().encode


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
        """Return the URL of a page of this list; empty values are left out."""
        given = {"scope": self.scope_text, **{name: str(value) for name, value in query.items() if value}}
        return f"{self.path}{page}?{urlencode(given, quote_via=quote)}"


def scope_of(request: UserRequest) -> ListScope:
    """Return the scope named by the form or the URL; a tenant is named by its name or its UUID."""
    text = request.form.text("scope") or request.query.get("scope", "")
    if name := request.query.get("tenant", "").strip():
        known = next((tenant.uid for tenant in request.tenants if name in (tenant.name, str(tenant.uid))), None)
        if known is None:
            raise NotFound("There is no such tenant.")
        text = str(known)
    return request.list_scope(text)


def read_target(request: UserRequest) -> ScopedList:
    return ScopedList(scope_of(request), find_list(request.variables["name"]))


def scopes_of(request: UserRequest) -> list[tuple[str, str]] | None:
    """Return the scopes that a user may choose from, or None if there are too many for a menu."""
    if len(request.tenants) > MAX_CHOICES:
        return None
    tenants = [(str(tenant.uid), _("Tenant %(name)s") % {"name": tenant.name}) for tenant in request.tenants]
    return [(GLOBAL, _("Global: every tenant")), *tenants] if request.scope.tenants is None else tenants


def scope_name(request: UserRequest, scope: ListScope) -> str:
    return (
        _("every tenant")
        if scope.tenant is None
        else _("tenant %(name)s") % {"name": request.tenant_name(scope.tenant)}
    )


def read_expiry(text: str) -> datetime | None:
    """Return the time in a field, in UTC if it has no zone, or None if the field is empty."""
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
    """Return a stored time in the format of a form field."""
    return stored[:16] if stored else ""


def read_comment(text: str) -> str:
    if len(text) > MAX_COMMENT:
        raise SchemaViolation(f"A comment has at most {MAX_COMMENT:,} characters.")
    return text


def read_number(text: str) -> int:
    """Return the number of a change, or raise NotFound."""
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise NotFound("There is no such change.")
    return int(text)


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
    """Read typed lines, an uploaded file, or the rows that a preview sends back."""
    upload = form.file("file")
    from_file = form.text("origin") == "file"
    shape = form.text("form") or "txt"
    if shape not in FORMS:
        raise SchemaViolation(f"A file is one of {', '.join(FORMS)}.")
    text, most = form.raw("entries"), MAX_CONFIRMATION
    if upload is not None:
        text, most = "", MAX_TEXT
        if upload.size <= MAX_TEXT:
            # Bytes that are not UTF-8 become characters that no entry may contain, so that their line is reported.
            text = upload.data().decode("utf-8-sig", "surrogateescape")
    if len(text) > most or (upload is not None and upload.size > most):
        raise _too_long()
    if not text.strip():
        raise SchemaViolation("Choose a file with entries in it." if from_file else "Write at least one entry.")
    read_expiry(form.text("expires"))  # rejects an invalid time before the preview
    return ListForm(text, shape, read_comment(form.text("comment")), form.text("expires"), from_file)


def confirmation_of(list_form: ListForm, rows: Sequence[Row]) -> str:
    """Return the rows as NDJSON for the confirming form, without the comment and expiry that the form sends once."""
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


class ListContext(Struct, frozen=True):
    """The services that the screens of the lists use."""

    list_service: ListService
    checker: Checker
    impact_estimator: ImpactEstimator
