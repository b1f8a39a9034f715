"""Lists: all of a scope, the entries of one, one entry, and which lists a value meets."""

import csv
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from aiohttp import web
from msgspec import UNSET

from mailwarden.console.auth import Page, Takes
from mailwarden.console.list_form import (
    ListPlace,
    ListServices,
    Wish,
    confirmation_of,
    field_of,
    place_of,
    read_comment,
    read_expiry,
    read_number,
    read_wish,
    scope_name,
    scope_of,
    scopes_of,
)
from mailwarden.console.permissions import Right
from mailwarden.console.request import Visit, see_other, told
from mailwarden.errors import (
    EntryTooBroad,
    InvalidEntry,
    ListFull,
    MailwardenError,
    NotFound,
    SchemaViolation,
    TooManyEntries,
)
from mailwarden.lists.catalogue import CATALOGUE, Category, find_list
from mailwarden.lists.change_log import PAGE, Change, Line
from mailwarden.lists.checking import READINGS, Checked
from mailwarden.lists.files import ALL_COLUMNS, Row, cells_of
from mailwarden.lists.scope import ListScope
from mailwarden.lists.service import MAX_ENTRIES, MAX_IMPORT, Preview
from mailwarden.policy.hindsight import Impact
from mailwarden.telemetry.logs import get_logger
from mailwarden.wire.lists import PublicListsEntry

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
        template = "lists/service.html" if visit.is_htmx else "lists/list.html"
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


MAX_SHOWN = 50
FORM_NAMES = (("csv", "CSV: entry, comment, expires"), ("txt", "Text: one entry a line"), ("ndjson", "NDJSON"))


class ListEditsScreen:
    def __init__(self, services: ListServices) -> None:
        self._lists = services.lists
        self._desk = services.desk
        self._hindsight = services.hindsight

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/lists/{name}/add", Right.LISTS_WRITE, self.ask),
            Page("GET", "/lists/{name}/import", Right.LISTS_WRITE, self.ask_for_file),
            Page("POST", "/lists/{name}/preview", Right.LISTS_WRITE, self.preview, Takes.UPLOAD),
            Page("POST", "/lists/{name}/add", Right.LISTS_WRITE, self.add, Takes.UPLOAD),
            Page("POST", "/lists/{name}/delete/preview", Right.LISTS_WRITE, self.preview_deletion),
            Page("POST", "/lists/{name}/delete", Right.LISTS_WRITE, self.delete),
        ]

    async def ask(self, visit: Visit) -> web.StreamResponse:
        """Show the form, filled in from the address: another page may propose an entry."""
        query = visit.query
        wish = Wish(query.get("entry", ""), comment=query.get("comment", ""), expires=query.get("expires", "")[:16])
        return _form(visit, place_of(visit), wish)

    async def ask_for_file(self, visit: Visit) -> web.StreamResponse:
        return _form(visit, place_of(visit), Wish("", from_file=True))

    async def preview(self, visit: Visit) -> web.StreamResponse:
        """Tell what is new, changed and invalid, and what the new entries would have done to the last 30 days."""
        place, wish = place_of(visit), _wish_in_hand(visit)
        try:
            wish = read_wish(visit.form)
            preview = await self._read(place, wish)
            confirmation = confirmation_of(wish, preview.rows)
        except (SchemaViolation, TooManyEntries) as error:
            return _refuse(visit, place, wish, error)
        impact = None
        if preview.fresh and preview.fits:
            impact = await self._look_back(place, sorted(preview.fresh), adds=True)
        template = "lists/preview_part.html" if visit.is_htmx else "lists/preview.html"
        values = {
            "place": place,
            "wish": wish,
            "preview": preview,
            "impact": impact,
            "confirmation": confirmation,
            "shown": MAX_SHOWN,
        }
        return visit.render(template, around(visit, place.scope, values))

    async def add(self, visit: Visit) -> web.StreamResponse:
        """Do what the preview told, all of it or nothing."""
        place, wish = place_of(visit), _wish_in_hand(visit)
        try:
            wish = read_wish(visit.form)
            preview = await self._read(place, wish)
            _check(preview)
            done = await self._desk.bring_in(
                place.scope,
                place.definition.name,
                preview.rows,
                visit.actor,
                action="import" if wish.from_file else "add",
            )
        except (SchemaViolation, TooManyEntries, InvalidEntry, ListFull) as error:
            return _refuse(visit, place, wish, error)
        return see_other(place.path, "entries-added" if done else "nothing-new", scope=place.scope_text)

    async def preview_deletion(self, visit: Visit) -> web.StreamResponse:
        place = place_of(visit)
        present = await self._desk.present(place.scope, place.definition.name, sorted({*_chosen(visit)}))
        names = [each.entry for each in present]
        impact = await self._look_back(place, names, adds=False) if names else None
        values = {"place": place, "entries": present, "impact": impact}
        return visit.render("lists/deletion.html", around(visit, place.scope, values))

    async def delete(self, visit: Visit) -> web.StreamResponse:
        place = place_of(visit)
        gone = await self._lists.delete_entries(place.scope, place.definition.name, _chosen(visit), visit.actor)
        return see_other(place.path, "entries-deleted" if gone else "nothing-deleted", scope=place.scope_text)

    async def _read(self, place: ListPlace, wish: Wish) -> Preview:
        name, comment = place.definition.name, wish.comment or None
        return await self._desk.preview(place.scope, name, wish.text, wish.form, comment=comment, expires=wish.end)

    async def _look_back(self, place: ListPlace, entries: Sequence[str], *, adds: bool) -> Impact:
        name = place.definition.name
        return await self._hindsight.look_back(place.scope, name, entries, adds=adds)


def _form(visit: Visit, place: ListPlace, wish: Wish, error: MailwardenError | None = None) -> web.Response:
    values = {"place": place, "wish": wish, "error": error, "forms": FORM_NAMES, "most": MAX_IMPORT}
    template = "lists/import.html" if wish.from_file else "lists/add.html"
    return visit.render(template, around(visit, place.scope, values))


def _refuse(visit: Visit, place: ListPlace, wish: Wish, error: MailwardenError) -> web.Response:
    """Show the form again with what is wrong with it; a file has to be chosen again."""
    if visit.is_htmx:
        raise error
    return told(_form(visit, place, wish, error), error)


def _wish_in_hand(visit: Visit) -> Wish:
    """Return what was typed, as it stands: what is wrong with it is yet to be told."""
    form = visit.form
    if form.text("origin") == "file":
        return Wish("", comment=form.text("comment"), from_file=True)
    return Wish(form.raw("entries"), comment=form.text("comment"), expires=form.text("expires")[:16])


def _check(preview: Preview) -> None:
    """Refuse what cannot be done as a whole, with the line of every mistake."""
    if preview.seen.invalid:
        details = [
            {"line": bad.line, "entry": bad.text, "reason": bad.reason} for bad in preview.seen.mistakes[:MAX_SHOWN]
        ]
        lines = "1 line" if preview.seen.invalid == 1 else f"{preview.seen.invalid:,} lines"
        raise InvalidEntry(f"{lines} cannot be taken, and nothing was changed.", details=details)
    if not preview.fits:
        raise ListFull(f"{preview.plan.new:,} entries are new, and there is room for {preview.room:,}.")


def _chosen(visit: Visit) -> Sequence[str]:
    entries = [entry for entry in visit.form.many("entry") if entry]
    if not entries:
        raise SchemaViolation("No entry was chosen: tick some first.")
    if len(entries) > MAX_ENTRIES:
        raise TooManyEntries(f"At most {MAX_ENTRIES} entries are deleted at once.")
    return entries


MAX_CHANGE_ENTRIES = 200  # entries of one change


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
        shown = lines[:MAX_CHANGE_ENTRIES]
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


FORMATS: Mapping[str, str] = {"csv": "text/csv", "ndjson": "application/x-ndjson"}

Sink = Callable[[bytes], Awaitable[None]]

log = get_logger("console")


class ListExportScreen:
    def __init__(self, services: ListServices) -> None:
        self._lists = services.lists

    def pages(self) -> Sequence[Page]:
        return [Page("GET", "/lists/{name}/export/{format}", Right.LISTS_READ, self.export)]

    async def export(self, visit: Visit) -> web.StreamResponse:
        """Stream one snapshot of the list; what goes wrong after the first byte breaks the connection."""
        place, form = place_of(visit), visit.variables["format"]
        if form not in FORMATS:
            raise NotFound("A list is exported as csv or ndjson.")
        name = f'attachment; filename="{place.definition.name}.{form}"'
        response = None
        try:
            async with self._lists.reading(place.scope, place.definition.name) as reading:
                headers = {"Content-Disposition": name, "X-Entry-Count": str(reading.count)}
                response = await visit.begin_stream(FORMATS[form], **headers)
                write = _guarded(response)
                if form == "csv":
                    table = CsvLines(write)
                    await table.begin()
                    await reading.copy_to(table.take)
                else:
                    await reading.copy_to(write)
            await response.write_eof()
        except Exception as error:
            if response is None:
                raise
            log.warning("export broken", list=place.definition.name, problem=type(error).__name__)
            if visit.call.request.transport is not None:
                visit.call.request.transport.abort()
            raise ConnectionAbortedError("The export was broken off.") from error
        return response


class CsvLines:
    """Turns the lines of a stream into rows of CSV as they come."""

    def __init__(self, write: Sink) -> None:
        self._write = write
        self._rest = b""
        self._decoder = msgspec.json.Decoder(PublicListsEntry)

    async def begin(self) -> None:
        await self._write((",".join(ALL_COLUMNS) + "\r\n").encode())

    async def take(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if lines:
            file = io.StringIO()
            table = csv.writer(file)
            for line in lines:
                table.writerow(cells_of(self._decoder.decode(line)))
            await self._write(file.getvalue().encode())


class ReaderGone(Exception):
    """The reader of a file hung up."""


def _guarded(response: web.StreamResponse) -> Sink:
    async def write(data: bytes) -> None:
        try:
            await response.write(data)
        except ConnectionError as error:  # else it would be taken for the database's
            raise ReaderGone from error

    return write
