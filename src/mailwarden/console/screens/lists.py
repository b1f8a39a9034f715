"""The Lists screen: shows the lists and their entries, and checks a value."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from aiohttp import web
from msgspec import UNSET

from mailwarden.console.auth import Page
from mailwarden.console.language import N_
from mailwarden.console.list_form import (
    ListContext,
    ScopedList,
    field_of,
    read_comment,
    read_expiry,
    read_target,
    scope_name,
    scope_of,
    scopes_of,
)
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other, with_error_status
from mailwarden.errors import (
    EntryTooBroad,
    InvalidEntry,
    InvalidQuery,
    SchemaViolation,
)
from mailwarden.lists.catalogue import CATALOGUE, Category, find_list
from mailwarden.lists.checking import READINGS, Checked
from mailwarden.lists.files import Row
from mailwarden.lists.store import ListScope
from mailwarden.search.query import MAX_CHARACTERS, split_terms

# The kind of value that an operator of the message search names.
_OPERATORS: Mapping[str, str] = {
    "from": "sender", "to": "recipient", "domain": "domain", "ip": "ip", "url": "url", "hash": "hash",
    "subject": "subject",
}  # fmt: skip
READING_NAMES: Mapping[str, str] = {
    "": N_("Detect automatically"),
    "sender": N_("Address of a sender"),
    "recipient": N_("Address of a recipient"),
    "domain": N_("Domain"),
    "ip": N_("IP address"),
    "url": N_("Link"),
    "hash": N_("Hash of a file"),
    "file": N_("Name or type of a file"),
    "subject": N_("Subject"),
    "name": N_("Name of a person"),
}


class ListsScreen:
    def __init__(self, context: ListContext) -> None:
        self._list_service = context.list_service
        self._checker = context.checker

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/lists", Permission.LISTS_READ, self.show),
            Page("GET", "/lists/check", Permission.LISTS_READ, self.check),
            Page("GET", "/lists/{name}", Permission.LISTS_READ, self.show_list),
            Page("GET", "/lists/{name}/entry", Permission.LISTS_READ, self.show_entry),
            Page("POST", "/lists/{name}/entry", Permission.LISTS_WRITE, self.edit),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        scope = scope_of(request)
        counts = await self._list_service.counts(scope)
        groups = [
            (
                category,
                [
                    (ScopedList(scope, definition), counts.get(definition.name, 0))
                    for definition in CATALOGUE
                    if definition.category is category
                ],
            )
            for category in Category
        ]
        return request.render("lists/index.html", list_values(request, scope, {"groups": groups}))

    async def show_list(self, request: UserRequest) -> web.StreamResponse:
        target = read_target(request)
        search, after = request.query.get("q", ""), request.query.get("after", "")
        page = await self._list_service.page(target.scope, target.definition.name, search, after)
        count = (await self._list_service.counts(target.scope)).get(target.definition.name, 0)
        values = {"target": target, "page": page, "count": count, "search": search, "after": after, "today": _now()}
        template = "lists/entries.html" if request.is_htmx else "lists/list.html"
        return request.render(template, list_values(request, target.scope, values))

    async def show_entry(self, request: UserRequest) -> web.StreamResponse:
        return await self._render_entry(request, read_target(request), request.query.get("entry", ""))

    async def edit(self, request: UserRequest) -> web.StreamResponse:
        """Set the comment and the expiry of one entry."""
        target, form = read_target(request), request.form
        kept = await self._list_service.find(target.scope, target.definition.name, form.raw("entry"))
        try:
            comment, expires = read_comment(form.text("comment")), read_expiry(form.text("expires"))
            # A form field has no seconds, so an unchanged expiry is kept as stored.
            untouched = form.text("expires") == field_of(kept.expires)
            row = Row(0, kept.entry, comment, UNSET if untouched else expires)
            await self._list_service.import_rows(
                target.scope, target.definition.name, [row], request.actor, action="edit"
            )
        except (SchemaViolation, InvalidEntry, EntryTooBroad) as error:
            return with_error_status(await self._render_entry(request, target, kept.entry, error.message), error)
        return see_other(f"{target.path}/entry", "entry-changed", scope=target.scope_text, entry=kept.entry)

    async def _render_entry(
        self, request: UserRequest, target: ScopedList, text: str, mistake: str = ""
    ) -> web.Response:
        entry = await self._list_service.find(target.scope, target.definition.name, text)
        values = {
            "target": target,
            "entry": entry,
            "mistake": mistake,
            "expires": field_of(entry.expires),
            "today": _now(),
        }
        return request.render("lists/entry.html", list_values(request, target.scope, values))

    async def check(self, request: UserRequest) -> web.StreamResponse:
        """Show the lists that match a value; users of a tenant do not see comments of global entries."""
        scope, value = scope_of(request), request.query.get("value", "")
        reading = request.query.get("reading", "")
        if reading and reading not in READINGS:
            raise SchemaViolation("Unknown kind of value. Choose one that the page offers.")
        wanted, kind = read_value(value, reading)
        checked = await self._checker.check(scope, wanted, kind or None) if wanted else None
        rows = [] if checked is None else _rows(request, checked)
        values = {
            "value": value,
            "reading": reading,
            "readings": READING_NAMES.items(),
            "checked": checked,
            "rows": rows,
        }
        return request.render("lists/check.html", list_values(request, scope, values))


def read_value(text: str, reading: str) -> tuple[str, str]:
    """Return the value to check and its kind; an operator of the message search names the kind, as in `from:`."""
    text = text.strip()
    try:
        terms = list(split_terms(text[:MAX_CHARACTERS]))
    except InvalidQuery:
        return text, reading
    if reading or len(terms) != 1 or terms[0].negated or terms[0].operator not in _OPERATORS:
        return text, reading
    value = terms[0].value.strip()
    kind = _OPERATORS[terms[0].operator]
    return value, "domain" if kind == "sender" and value and "@" not in value.lstrip("@") else kind


def list_values(request: UserRequest, scope: ListScope, values: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a page together with those that every list page gets."""
    return {
        **values,
        "scopes": scopes_of(request),
        "scope": "global" if scope.tenant is None else str(scope.tenant),
        "scope_name": scope_name(request, scope),
    }


def _rows(request: UserRequest, checked: Checked) -> list[dict[str, object]]:
    return [
        {
            "list": find_list(found.match.list_name),
            "scope": "global" if found.match.tenant is None else "tenant",
            "entry": found.match.entry,
            "comment": found.match.comment if found.match.tenant or request.scope.tenants is None else "",
            "reading": READING_NAMES[found.reading],
            "state": "expired" if found.expired else "acts" if found.match in checked.acting else "loses",
            "shown": found.match.tenant is not None or request.scope.tenants is None,
        }
        for found in checked.found_entries
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
