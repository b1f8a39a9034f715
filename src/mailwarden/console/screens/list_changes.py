"""The history of a list: who changed what from where, each change in full, and undoing it."""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.list_place import place_of, read_number
from mailwarden.console.list_services import ListServices
from mailwarden.console.page import Page
from mailwarden.console.rights import Right
from mailwarden.console.screens.lists import around
from mailwarden.console.visit import Visit, see_other
from mailwarden.lists.ledger import PAGE, Change, Line
from mailwarden.wire.lists import PublicListsEntry

SHOWN = 200  # entries of one change


class ListChangesScreen:
    def __init__(self, services: ListServices) -> None:
        self._desk = services.desk

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/lists/{name}/history", Right.LISTS_READ, self.show),
            Page("GET", "/lists/{name}/history/{number}", Right.LISTS_READ, self.show_change),
            Page("POST", "/lists/{name}/history/{number}/undo", Right.LISTS_WRITE, self.undo),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        place = place_of(visit)
        before = read_number(visit.query.get("before", "") or "0")
        changes = await self._desk.changes(place.scope, place.definition.name, before)
        older = changes[-1].number if len(changes) == PAGE else None
        values = {"place": place, "changes": changes, "before": before, "older": older}
        return visit.render("lists/history.html", around(visit, place.scope, values))

    async def show_change(self, visit: Visit) -> web.StreamResponse:
        """Show a change with what became of its entries since: undoing leaves those alone that were changed again."""
        place = place_of(visit)
        change, lines = await self._desk.change(
            place.scope, place.definition.name, read_number(visit.variables["number"])
        )
        shown = lines[:SHOWN]
        names = sorted(line.entry for line in shown)
        present = {each.entry: each for each in await self._desk.present(place.scope, place.definition.name, names)}
        rows = [(line, _is_so(change, line, present.get(line.entry))) for line in shown]
        values = {"place": place, "change": change, "rows": rows, "more": len(lines) - len(shown)}
        return visit.render("lists/change.html", around(visit, place.scope, values))

    async def undo(self, visit: Visit) -> web.StreamResponse:
        place = place_of(visit)
        number = read_number(visit.variables["number"])
        done = await self._desk.undo(place.scope, place.definition.name, number, visit.actor)
        if not done.number:
            path, code = f"{place.path}/history/{number}", "nothing-to-undo"
        else:
            path, code = f"{place.path}/history/{done.number}", "undone-partly" if done.left else "undone"
        return see_other(path, code, scope=place.scope_text)


def _is_so(change: Change, line: Line, now: PublicListsEntry | None) -> bool:
    """Tell whether an entry is still as the change left it."""
    if line.after is None or now is None:
        return line.after is None and now is None
    return (now.updated, now.updated_by) == (change.moment, change.actor)
