"""The page of the changes of a list, which can be undone."""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.list_form import (
    ListContext,
    read_number,
    read_target,
)
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other
from mailwarden.console.screens.lists import list_values
from mailwarden.lists.change_log import PAGE, Change, Line
from mailwarden.lists.requests import PublicListsEntry

MAX_CHANGE_ENTRIES = 200  # shown of one change


class ListChangesScreen:
    def __init__(self, context: ListContext) -> None:
        self._list_service = context.list_service

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/lists/{name}/history", Permission.LISTS_READ, self.show),
            Page("GET", "/lists/{name}/history/{number}", Permission.LISTS_READ, self.show_change),
            Page("POST", "/lists/{name}/history/{number}/undo", Permission.LISTS_WRITE, self.undo),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        target = read_target(request)
        before = read_number(request.query.get("before", "") or "0")
        changes = await self._list_service.changes(target.scope, target.definition.name, before)
        older = changes[-1].number if len(changes) == PAGE else None
        values = {"target": target, "changes": changes, "before": before, "older": older}
        return request.render("lists/history.html", list_values(request, target.scope, values))

    async def show_change(self, request: UserRequest) -> web.StreamResponse:
        """Show a change and which of its entries changed again since; undo skips those."""
        target = read_target(request)
        change, lines = await self._list_service.change(
            target.scope, target.definition.name, read_number(request.variables["number"])
        )
        shown = lines[:MAX_CHANGE_ENTRIES]
        names = sorted(line.entry for line in shown)
        present = {
            each.entry: each for each in await self._list_service.present(target.scope, target.definition.name, names)
        }
        rows = [(line, _is_unchanged(change, line, present.get(line.entry))) for line in shown]
        values = {"target": target, "change": change, "rows": rows, "more": len(lines) - len(shown)}
        return request.render("lists/change.html", list_values(request, target.scope, values))

    async def undo(self, request: UserRequest) -> web.StreamResponse:
        target = read_target(request)
        number = read_number(request.variables["number"])
        done = await self._list_service.undo(target.scope, target.definition.name, number, request.actor)
        if not done.number:
            path, code = f"{target.path}/history/{number}", "nothing-to-undo"
        else:
            path, code = f"{target.path}/history/{done.number}", "undone-partly" if done.left else "undone"
        return see_other(path, code, scope=target.scope_text)


def _is_unchanged(change: Change, line: Line, now: PublicListsEntry | None) -> bool:
    """Return whether the entry has not changed since the change."""
    if line.after is None or now is None:
        return line.after is None and now is None
    return (now.updated, now.updated_by) == (change.moment, change.actor)
