"""Changes of a list: entries added, deleted and brought in from a file, each previewed before it is done.

A preview keeps nothing: the form that confirms it sends the rows again, which are read and checked again.
Security: reads texts that people paste and files that strangers made; their size and number are bounded.
"""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.list_place import ListPlace, place_of
from mailwarden.console.list_services import ListServices
from mailwarden.console.list_wish import Wish, confirmation_of, read_wish
from mailwarden.console.page import Page, Takes
from mailwarden.console.rights import Right
from mailwarden.console.screens.lists import around
from mailwarden.console.screens.login import told
from mailwarden.console.visit import Visit, see_other
from mailwarden.errors import InvalidEntry, ListFull, MailwardenError, SchemaViolation, TooManyEntries
from mailwarden.lists.desk import MAX_IMPORT, Preview
from mailwarden.lists.entries import MAX_ENTRIES
from mailwarden.policy.hindsight import Impact

SHOWN = 50
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
            "shown": SHOWN,
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
        details = [{"line": bad.line, "entry": bad.text, "reason": bad.reason} for bad in preview.seen.mistakes[:SHOWN]]
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
