"""Where on the lists a person is: the scope and the list that the address names, and the ways from there."""

from datetime import UTC, datetime
from urllib.parse import quote, urlencode

from msgspec import Struct

from mailwarden.console.visit import GLOBAL, Visit
from mailwarden.errors import NotFound, SchemaViolation
from mailwarden.lists.catalogue import ListDefinition, find_list
from mailwarden.lists.scope import ListScope
from mailwarden.wire.lists import MAX_COMMENT

LISTS = "/console/lists"
MAX_CHOICES = 500  # tenants in one menu; beyond that a name is typed


class ListPlace(Struct, frozen=True):
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


def scope_of(visit: Visit) -> ListScope:
    """Return the scope that the form or the address names; a tenant may be named by its name as well."""
    text = visit.form.text("scope") or visit.query.get("scope", "")
    if name := visit.query.get("tenant", "").strip():
        known = next((each.uid for each in visit.tenants if name in (each.name, str(each.uid))), None)
        if known is None:
            raise NotFound("There is no such tenant.")
        text = str(known)
    return visit.list_scope(text)


def place_of(visit: Visit) -> ListPlace:
    return ListPlace(scope_of(visit), find_list(visit.variables["name"]))


def scopes_of(visit: Visit) -> list[tuple[str, str]] | None:
    """Return the scopes that a person may choose from, or None where there are too many for a menu."""
    if len(visit.tenants) > MAX_CHOICES:
        return None
    tenants = [(str(each.uid), f"Tenant {each.name}") for each in visit.tenants]
    return [(GLOBAL, "Global: every tenant"), *tenants] if visit.scope.tenants is None else tenants


def scope_name(visit: Visit, scope: ListScope) -> str:
    return "every tenant" if scope.tenant is None else f"tenant {visit.tenant_name(scope.tenant)}"


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
