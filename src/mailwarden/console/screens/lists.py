"""The Lists screens: show, check, change, import and export lists, and their history.

A preview stores nothing: the form that confirms it sends the rows again, and they are checked again.

Security: reads pasted text and files from third parties; their size and number have limits."""

import csv
import io
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from aiohttp import web
from msgspec import UNSET

from mailwarden.console.auth import BodyType, Page
from mailwarden.console.language import N_, counted
from mailwarden.console.list_form import (
    ListContext,
    ListForm,
    ScopedList,
    confirmation_of,
    field_of,
    read_comment,
    read_expiry,
    read_list_form,
    read_number,
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
from mailwarden.lists.requests import PublicListsEntry
from mailwarden.lists.service import MAX_ENTRIES, MAX_IMPORT, Preview
from mailwarden.lists.store import ListScope
from mailwarden.policy.impact import Impact
from mailwarden.search.query import MAX_CHARACTERS, split_terms
from mailwarden.telemetry.logs import get_logger

# The kind of value that an operator of the message search names.
_OPERATORS: Mapping[str, str] = {
    "from": "sender", "to": "recipient", "domain": "domain", "ip": "ip", "url": "url", "hash": "hash",
    "subject": "subject",
}  # fmt: skip
READING_NAMES: Mapping[str, str] = {
    "": N_("By its form"),
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
                    (ScopedList(scope, each), counts.get(each.name, 0))
                    for each in CATALOGUE
                    if each.category is category
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
        for found in checked.found
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


MAX_SHOWN = 50
FORM_NAMES = (("csv", N_("CSV: entry, comment, expires")), ("txt", N_("Text: one entry a line")), ("ndjson", "NDJSON"))


class ListEditsScreen:
    def __init__(self, context: ListContext) -> None:
        self._list_service = context.list_service
        self._impact_estimator = context.impact_estimator

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/lists/{name}/add", Permission.LISTS_WRITE, self.ask),
            Page("GET", "/lists/{name}/import", Permission.LISTS_WRITE, self.ask_for_file),
            Page("POST", "/lists/{name}/preview", Permission.LISTS_WRITE, self.preview, BodyType.UPLOAD),
            Page("POST", "/lists/{name}/add", Permission.LISTS_WRITE, self.add, BodyType.UPLOAD),
            Page("POST", "/lists/{name}/delete/preview", Permission.LISTS_WRITE, self.preview_deletion),
            Page("POST", "/lists/{name}/delete", Permission.LISTS_WRITE, self.delete),
        ]

    async def ask(self, request: UserRequest) -> web.StreamResponse:
        """Show the form, prefilled from the URL."""
        query = request.query
        list_form = ListForm(
            query.get("entry", ""), comment=query.get("comment", ""), expires=query.get("expires", "")[:16]
        )
        return _form(request, read_target(request), list_form)

    async def ask_for_file(self, request: UserRequest) -> web.StreamResponse:
        return _form(request, read_target(request), ListForm("", from_file=True))

    async def preview(self, request: UserRequest) -> web.StreamResponse:
        """Show new, changed and invalid entries, and the impact of the new ones on the last 30 days."""
        target, list_form = read_target(request), _as_typed(request)
        try:
            list_form = read_list_form(request.form)
            preview = await self._read(target, list_form)
            confirmation = confirmation_of(list_form, preview.rows)
        except (SchemaViolation, TooManyEntries) as error:
            return _refuse(request, target, list_form, error)
        impact = None
        if preview.fresh and preview.fits:
            impact = await self._estimate_impact(target, sorted(preview.fresh), adds=True)
        template = "lists/preview_part.html" if request.is_htmx else "lists/preview.html"
        values = {
            "target": target,
            "list_form": list_form,
            "preview": preview,
            "impact": impact,
            "confirmation": confirmation,
            "shown": MAX_SHOWN,
        }
        return request.render(template, list_values(request, target.scope, values))

    async def add(self, request: UserRequest) -> web.StreamResponse:
        """Add all entries of the preview, or none."""
        target, list_form = read_target(request), _as_typed(request)
        try:
            list_form = read_list_form(request.form)
            preview = await self._read(target, list_form)
            _check(preview)
            done = await self._list_service.import_rows(
                target.scope,
                target.definition.name,
                preview.rows,
                request.actor,
                action="import" if list_form.from_file else "add",
            )
        except (SchemaViolation, TooManyEntries, InvalidEntry, ListFull) as error:
            return _refuse(request, target, list_form, error)
        return see_other(target.path, "entries-added" if done else "nothing-new", scope=target.scope_text)

    async def preview_deletion(self, request: UserRequest) -> web.StreamResponse:
        target = read_target(request)
        present = await self._list_service.present(target.scope, target.definition.name, sorted({*_chosen(request)}))
        names = [each.entry for each in present]
        impact = await self._estimate_impact(target, names, adds=False) if names else None
        values = {"target": target, "entries": present, "impact": impact}
        return request.render("lists/deletion.html", list_values(request, target.scope, values))

    async def delete(self, request: UserRequest) -> web.StreamResponse:
        target = read_target(request)
        gone = await self._list_service.delete_entries(
            target.scope, target.definition.name, _chosen(request), request.actor
        )
        return see_other(target.path, "entries-deleted" if gone else "nothing-deleted", scope=target.scope_text)

    async def _read(self, target: ScopedList, list_form: ListForm) -> Preview:
        name, comment = target.definition.name, list_form.comment or None
        return await self._list_service.preview(
            target.scope, name, list_form.text, list_form.file_format, comment=comment, expires=list_form.end
        )

    async def _estimate_impact(self, target: ScopedList, entries: Sequence[str], *, adds: bool) -> Impact:
        name = target.definition.name
        return await self._impact_estimator.estimate(target.scope, name, entries, adds=adds)


def _form(
    request: UserRequest, target: ScopedList, list_form: ListForm, error: MailwardenError | None = None
) -> web.Response:
    values = {"target": target, "list_form": list_form, "error": error, "forms": FORM_NAMES, "most": MAX_IMPORT}
    template = "lists/import.html" if list_form.from_file else "lists/add.html"
    return request.render(template, list_values(request, target.scope, values))


def _refuse(request: UserRequest, target: ScopedList, list_form: ListForm, error: MailwardenError) -> web.Response:
    """Show the form again with the error; the user must choose a file again."""
    if request.is_htmx:
        raise error
    return with_error_status(_form(request, target, list_form, error), error)


def _as_typed(request: UserRequest) -> ListForm:
    """Return the form as typed, without validation."""
    form = request.form
    if form.text("origin") == "file":
        return ListForm("", comment=form.text("comment"), from_file=True)
    return ListForm(form.raw("entries"), comment=form.text("comment"), expires=form.text("expires")[:16])


def _check(preview: Preview) -> None:
    """Raise an error with the line of every mistake, unless all rows can be added."""
    if preview.seen.invalid:
        details = [
            {"line": bad.line, "entry": bad.text, "reason": bad.reason} for bad in preview.seen.mistakes[:MAX_SHOWN]
        ]
        lines = counted(preview.seen.invalid, "line", "lines")
        raise InvalidEntry(f"{lines} are invalid. Nothing was changed.", details=details)
    if not preview.fits:
        raise ListFull(f"{preview.plan.new:,} entries are new, and there is room for {preview.room:,}.")


def _chosen(request: UserRequest) -> Sequence[str]:
    entries = [entry for entry in request.form.many("entry") if entry]
    if not entries:
        raise SchemaViolation("No entry was chosen: tick some first.")
    if len(entries) > MAX_ENTRIES:
        raise TooManyEntries(f"At most {MAX_ENTRIES} entries are deleted at once.")
    return entries


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


FORMATS: Mapping[str, str] = {"csv": "text/csv", "ndjson": "application/x-ndjson"}

Sink = Callable[[bytes], Awaitable[None]]

log = get_logger("console")


class ListExportScreen:
    def __init__(self, context: ListContext) -> None:
        self._list_service = context.list_service

    def pages(self) -> Sequence[Page]:
        return [Page("GET", "/lists/{name}/export/{format}", Permission.LISTS_READ, self.export)]

    async def export(self, request: UserRequest) -> web.StreamResponse:
        """Stream one snapshot of the list; an error after the first byte aborts the connection."""
        target, form = read_target(request), request.variables["format"]
        if form not in FORMATS:
            raise NotFound("A list is exported as csv or ndjson.")
        name = f'attachment; filename="{target.definition.name}.{form}"'
        response = None
        try:
            async with self._list_service.reading(target.scope, target.definition.name) as reading:
                headers = {"Content-Disposition": name, "X-Entry-Count": str(reading.count)}
                response = await request.begin_stream(FORMATS[form], **headers)
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
            log.warning("list_export_broken", list=target.definition.name, reason=type(error).__name__)
            if request.call.request.transport is not None:
                request.call.request.transport.abort()
            raise ConnectionAbortedError("The export was aborted.") from error
        return response


class CsvLines:
    """Converts the NDJSON lines of a stream to CSV rows."""

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
    """The client closed the connection during an export."""


def _guarded(response: web.StreamResponse) -> Sink:
    async def write(data: bytes) -> None:
        try:
            await response.write(data)
        except ConnectionError as error:  # otherwise it would look like a database error
            raise ReaderGone from error

    return write
