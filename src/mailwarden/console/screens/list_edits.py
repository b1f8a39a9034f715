"""The page that adds and deletes entries of a list, also from files.

A preview stores nothing: the form that confirms it sends the rows again, and they are checked again.

Security: reads pasted text and files from third parties; their size and number have limits.
"""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.auth import BodyType, Page
from mailwarden.console.language import N_, counted
from mailwarden.console.list_form import (
    ListContext,
    ListForm,
    ScopedList,
    confirmation_of,
    read_list_form,
    read_target,
)
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other, with_error_status
from mailwarden.console.screens.lists import list_values
from mailwarden.errors import (
    InvalidEntry,
    ListFull,
    MailwardenError,
    SchemaViolation,
    TooManyEntries,
)
from mailwarden.lists.service import MAX_ENTRIES, MAX_IMPORT, Preview
from mailwarden.policy.impact import Impact

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
    if preview.survey.invalid:
        details = [
            {"line": bad.line, "entry": bad.text, "reason": bad.reason} for bad in preview.survey.mistakes[:MAX_SHOWN]
        ]
        lines = counted(preview.survey.invalid, "line", "lines")
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
