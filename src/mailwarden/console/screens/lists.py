"""Lists: all of a scope, the entries of one, one entry, and which lists a value meets."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from aiohttp import web
from msgspec import UNSET

from mailwarden.console.list_place import (
    ListPlace,
    field_of,
    place_of,
    read_comment,
    read_expiry,
    scope_name,
    scope_of,
    scopes_of,
)
from mailwarden.console.list_services import ListServices
from mailwarden.console.page import Page
from mailwarden.console.rights import Right
from mailwarden.console.screens.login import told
from mailwarden.console.visit import Visit, see_other
from mailwarden.errors import EntryTooBroad, InvalidEntry, SchemaViolation
from mailwarden.lists.catalogue import CATALOGUE, Category, find_list
from mailwarden.lists.checking import READINGS, Checked
from mailwarden.lists.files import Row
from mailwarden.lists.scope import ListScope

READING_NAMES: Mapping[str, str] = {
    "": "By its form",
    "sender": "Address of a sender",
    "recipient": "Address of a recipient",
    "domain": "Domain",
    "ip": "IP address",
    "url": "Link",
    "hash": "Hash of a file",
    "file": "Name or type of a file",
    "subject": "Subject",
    "name": "Name of a person",
}


class ListsScreen:
    def __init__(self, services: ListServices) -> None:
        self._desk = services.desk
        self._checker = services.checker

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/lists", Right.LISTS_READ, self.show),
            Page("GET", "/lists/check", Right.LISTS_READ, self.check),
            Page("GET", "/lists/{name}", Right.LISTS_READ, self.show_list),
            Page("GET", "/lists/{name}/entry", Right.LISTS_READ, self.show_entry),
            Page("POST", "/lists/{name}/entry", Right.LISTS_WRITE, self.edit),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        scope = scope_of(visit)
        counts = await self._desk.counts(scope)
        groups = [
            (
                category,
                [(ListPlace(scope, each), counts.get(each.name, 0)) for each in CATALOGUE if each.category is category],
            )
            for category in Category
        ]
        return visit.render("lists/index.html", around(visit, scope, {"groups": groups}))

    async def show_list(self, visit: Visit) -> web.StreamResponse:
        place = place_of(visit)
        search, after = visit.query.get("q", ""), visit.query.get("after", "")
        page = await self._desk.page(place.scope, place.definition.name, search, after)
        count = (await self._desk.counts(place.scope)).get(place.definition.name, 0)
        values = {"place": place, "page": page, "count": count, "search": search, "after": after, "today": _now()}
        template = "lists/entries.html" if visit.is_htmx else "lists/list.html"
        return visit.render(template, around(visit, place.scope, values))

    async def show_entry(self, visit: Visit) -> web.StreamResponse:
        return await self._render_entry(visit, place_of(visit), visit.query.get("entry", ""))

    async def edit(self, visit: Visit) -> web.StreamResponse:
        """Set the comment and the end of one entry; what a field shows is what the entry gets."""
        place, form = place_of(visit), visit.form
        kept = await self._desk.find(place.scope, place.definition.name, form.raw("entry"))
        try:
            comment, expires = read_comment(form.text("comment")), read_expiry(form.text("expires"))
            # A field has no seconds: an end that was not touched stays as it is.
            untouched = form.text("expires") == field_of(kept.expires)
            row = Row(0, kept.entry, comment, UNSET if untouched else expires)
            await self._desk.bring_in(place.scope, place.definition.name, [row], visit.actor, action="edit")
        except (SchemaViolation, InvalidEntry, EntryTooBroad) as error:
            return told(await self._render_entry(visit, place, kept.entry, error.message), error)
        return see_other(f"{place.path}/entry", "entry-changed", scope=place.scope_text, entry=kept.entry)

    async def _render_entry(self, visit: Visit, place: ListPlace, text: str, mistake: str = "") -> web.Response:
        entry = await self._desk.find(place.scope, place.definition.name, text)
        values = {
            "place": place,
            "entry": entry,
            "mistake": mistake,
            "expires": field_of(entry.expires),
            "today": _now(),
        }
        return visit.render("lists/entry.html", around(visit, place.scope, values))

    async def check(self, visit: Visit) -> web.StreamResponse:
        """Tell which lists a value meets; of what is global a tenant's person learns no comment."""
        scope, value = scope_of(visit), visit.query.get("value", "")
        reading = visit.query.get("reading", "")
        if reading and reading not in READINGS:
            raise SchemaViolation("A value is read in one of the ways that the page offers.")
        checked = await self._checker.check(scope, value, reading or None) if value.strip() else None
        rows = [] if checked is None else _rows(visit, checked)
        values = {
            "value": value,
            "reading": reading,
            "readings": READING_NAMES.items(),
            "checked": checked,
            "rows": rows,
        }
        return visit.render("lists/check.html", around(visit, scope, values))


def around(visit: Visit, scope: ListScope, values: Mapping[str, object]) -> dict[str, object]:
    """Return what every page of lists is given, and what this one is given besides."""
    return {
        **values,
        "scopes": scopes_of(visit),
        "scope": "global" if scope.tenant is None else str(scope.tenant),
        "scope_name": scope_name(visit, scope),
    }


def _rows(visit: Visit, checked: Checked) -> list[dict[str, object]]:
    return [
        {
            "list": find_list(found.match.list_name),
            "scope": "global" if found.match.tenant is None else "tenant",
            "entry": found.match.entry,
            "comment": found.match.comment if found.match.tenant or visit.scope.tenants is None else "",
            "reading": READING_NAMES[found.reading],
            "state": "expired" if found.expired else "acts" if found.match in checked.acting else "loses",
            "shown": found.match.tenant is not None or visit.scope.tenants is None,
        }
        for found in checked.found
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
