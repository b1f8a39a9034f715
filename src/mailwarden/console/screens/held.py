"""One held message: who it is for, what became of it for each, and the ways to show, release, delete or take it out.

Security: gives hostile bytes out to those who may have them: in a sandboxed frame as words, or as a file.
"""

from collections.abc import Sequence
from uuid import UUID

from aiohttp import web

from mailwarden.analysis.previews import Previews
from mailwarden.console.page import Page
from mailwarden.console.quarantine import QUARANTINE, Quarantine, reasons_for, uid_in
from mailwarden.console.rights import Right
from mailwarden.console.screens.login import told
from mailwarden.console.screens.preview import framed
from mailwarden.console.templating import HEADERS
from mailwarden.console.visit import Visit, see_other
from mailwarden.errors import (
    EntryTooBroad,
    Forbidden,
    InvalidEntry,
    ListFull,
    MailwardenError,
    MessageNotFound,
    NotReleasable,
    SchemaViolation,
    StorageUnavailable,
)
from mailwarden.history.store import HistoryStore
from mailwarden.message.preview import document_of, notice
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.held import HeldMessage, State
from mailwarden.wire.quarantine import Listed

MAX_TICKS = 100  # recipients who are chosen one by one; of more, all are meant
IN_THE_WAY = (EntryTooBroad, InvalidEntry, ListFull, NotReleasable, SchemaViolation)
UNREADABLE = (NotReleasable, StorageUnavailable)


class HeldScreen:
    def __init__(self, quarantine: Quarantine, history: HistoryStore, previews: Previews) -> None:
        self._quarantine = quarantine
        self._history = history
        self._previews = previews

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/quarantine/{uid}", Right.QUARANTINE_READ, self.show),
            Page("GET", "/quarantine/{uid}/progress", Right.QUARANTINE_READ, self.show_progress, quiet=True),
            Page("POST", "/quarantine/{uid}/release", Right.QUARANTINE_WRITE, self.release),
            Page("POST", "/quarantine/{uid}/delete", Right.QUARANTINE_WRITE, self.delete),
            Page("POST", "/quarantine/{uid}/preview", Right.QUARANTINE_WRITE, self.preview),
            Page("GET", "/quarantine/{uid}/message", Right.QUARANTINE_EXPORT, self.warn),
            Page("POST", "/quarantine/{uid}/message", Right.QUARANTINE_EXPORT, self.export),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        return await self._page(visit, await self._found(visit))

    async def show_progress(self, visit: Visit) -> web.StreamResponse:
        """Have a page that waits for a release opened again once there is something new on it."""
        message = await self._found(visit)
        if message.in_state(State.RELEASING):
            return web.Response(status=204, headers=HEADERS)
        return web.Response(headers={**HEADERS, "HX-Redirect": f"{QUARANTINE}/{message.uid}"})

    async def release(self, visit: Visit) -> web.StreamResponse:
        """Have the message released to those who were chosen; what is in the way is said on its page as it is now."""
        message = await self._found(visit)
        try:
            chosen, allow = _recipients(visit, message), _listed(visit, "allow")
            await self._quarantine.release(visit.scope, message.uid, visit.actor, recipients=chosen, allow=allow)
        except IN_THE_WAY as error:
            return await self._page(visit, await self._found(visit), error)
        return see_other(f"{QUARANTINE}/{message.uid}", "release-allowed" if allow else "release-asked")

    async def delete(self, visit: Visit) -> web.StreamResponse:
        message = await self._found(visit)
        try:
            if not visit.form.ticked("sure"):
                raise SchemaViolation("Nothing was deleted: tick that you know that nothing brings it back.")
            chosen, block = _recipients(visit, message), _listed(visit, "block")
            await self._quarantine.delete(visit.scope, message.uid, visit.actor, recipients=chosen, block=block)
        except IN_THE_WAY as error:
            return await self._page(visit, await self._found(visit), error)
        return see_other(f"{QUARANTINE}/{message.uid}", "held-deleted-blocked" if block else "held-deleted")

    async def preview(self, visit: Visit) -> web.StreamResponse:
        """Show the message in its frame, as words and plain formatting."""
        uid = _uid(visit)
        try:
            raw = await self._quarantine.look_into(visit.scope, uid, visit.actor)
        except UNREADABLE as error:
            return framed(document_of(notice(error.message)))
        try:
            return framed((await self._previews.of(raw)).document)
        finally:
            raw.close()

    async def warn(self, visit: Visit) -> web.StreamResponse:
        return visit.render("quarantine/export.html", message=await self._found(visit), error=None)

    async def export(self, visit: Visit) -> web.StreamResponse:
        """Give the message out as a file that no browser opens."""
        message = await self._found(visit)
        try:
            raw = await self._quarantine.export(visit.scope, message.uid, visit.actor)
        except UNREADABLE as error:
            return told(visit.render("quarantine/export.html", message=message, error=error), error)
        try:
            name = f'attachment; filename="{message.uid}.eml"'
            size = {"Content-Disposition": name, "Content-Length": str(raw.size)}
            response = await visit.begin_stream("message/rfc822", charset=None, **size)
            async for chunk in raw.stream():
                await response.write(chunk)
            await response.write_eof()
            return response
        finally:
            raw.close()

    async def _found(self, visit: Visit) -> HeldMessage:
        """Return the message of the address; a foreign one is answered like one that does not exist."""
        return await self._quarantine.find(visit.scope, _uid(visit))

    async def _page(
        self, visit: Visit, message: HeldMessage, error: MailwardenError | None = None
    ) -> web.StreamResponse:
        waiting = message.in_state(State.HELD)
        address = message.from_address or message.sender
        page = visit.render(
            "quarantine/held.html",
            message=message,
            reason=(await reasons_for(self._history, visit.scope, [message])).get(message.uid, ""),
            waiting=waiting,
            ticks=waiting if 1 < len(waiting) <= MAX_TICKS else (),
            releasing=message.in_state(State.RELEASING),
            failures=[each for each in message.recipients if each.failure],
            releasable=message.is_kept and message.verdict is not Verdict.MALWARE and bool(waiting),
            deletable=bool(waiting) or message.address is not None,
            is_malware=message.verdict is Verdict.MALWARE,
            address=address,
            domain=address.rpartition("@")[2],
            lists=visit.may(Right.LISTS_WRITE),
            error=error,
        )
        return told(page, error) if error else page


async def held_line(quarantine: Quarantine, visit: Visit, request: FinishedRequest) -> HeldMessage | None:
    """Return the held message of an analysis for its page, or None where nothing is held."""
    if not visit.may(Right.QUARANTINE_READ):
        return None
    try:
        return await quarantine.of_ggrid(visit.scope, request.tenant, request.ggrid)
    except MessageNotFound:
        return None


def _uid(visit: Visit) -> UUID:
    return uid_in(visit.variables["uid"])


def _recipients(visit: Visit, message: HeldMessage) -> Sequence[str] | None:
    """Return who was chosen of those who still wait, or None for all of them.

    Nobody is released to twice because a page was old.
    """
    waiting = message.in_state(State.HELD)
    if not visit.form.ticked("some"):
        return None
    chosen = {each.lower() for each in visit.form.many("to")}
    if not chosen:
        raise SchemaViolation("Choose a recipient at least.")
    left = [each for each in waiting if each.lower() in chosen]
    if not left:
        raise NotReleasable("None of those waits for this message any more.")
    return None if len(left) == len(waiting) else left


def _listed(visit: Visit, name: str) -> Listed | None:
    """Return what of the sender is to be listed; it takes the right to change lists as well."""
    given = visit.form.text(name)
    if not given:
        return None
    if not visit.may(Right.LISTS_WRITE):
        raise Forbidden("Your role does not change lists. An administrator can change it.")
    try:
        return Listed(given)
    except ValueError:
        raise SchemaViolation("A sender is listed by address or by domain.") from None
