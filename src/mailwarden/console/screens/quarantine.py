"""Quarantine: what is held, the newest first, with filters; several can be released or deleted at once."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.held_search import STATES, VERDICTS, HeldSearch, read_search
from mailwarden.console.list_place import MAX_CHOICES
from mailwarden.console.page import Page
from mailwarden.console.quarantine import Quarantine, reasons_for, uid_in
from mailwarden.console.rights import Right
from mailwarden.console.visit import Visit
from mailwarden.errors import MailwardenError, MessageNotFound, NotFound, SchemaViolation
from mailwarden.history.store import HistoryStore
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.held import HeldMessage

ROWS = 25
MAX_CHOSEN = 50
# What can be done to several: what the button says, and what it means.
DEEDS: Mapping[str, tuple[str, str]] = {
    "release": ("Release", "Each goes to everybody who waits for it, unscanned. Its tenant learns that such are fine."),
    "delete": ("Delete", "Each is deleted for everybody who waits for it. Nothing brings it back."),
}


class Result(Struct, frozen=True):
    """What came of one of several."""

    uid: UUID
    subject: str
    failure: str = ""


class QuarantineScreen:
    def __init__(self, quarantine: Quarantine, history: HistoryStore) -> None:
        self._quarantine = quarantine
        self._history = history

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/quarantine", Right.QUARANTINE_READ, self.show),
            Page("POST", "/quarantine/chosen", Right.QUARANTINE_WRITE, self.ask),
            Page("POST", "/quarantine/chosen/do", Right.QUARANTINE_WRITE, self.do),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        search = read_search(visit.query)
        tenant = _tenant_in(visit, search)
        found = await self._quarantine.page(visit.scope, search.question(tenant), ROWS + 1)
        shown = found[:ROWS]
        counts = await self._quarantine.counts(visit.scope, tenant)
        return visit.render(
            "quarantine/index.html",
            search=search,
            tenants=visit.tenants if len(visit.tenants) <= MAX_CHOICES else None,
            messages=shown,
            reasons=await reasons_for(self._history, visit.scope, shown),
            older=search.to_older(shown[-1]) if len(found) > ROWS else "",
            counts=sorted(counts.items(), key=lambda each: -each[1]),
            total=sum(counts.values()),
            states=STATES,
            verdicts=VERDICTS,
            deeds=DEEDS,
        )

    async def ask(self, visit: Visit) -> web.StreamResponse:
        """Tell what is about to be done to which messages; what there is not is left out."""
        deed = _deed_in(visit)
        messages = [each for uid in _chosen(visit) if (each := await self._known(visit, uid)) is not None]
        if not messages:
            raise MessageNotFound("There is no such message in quarantine.")
        malware = [each for each in messages if each.verdict is Verdict.MALWARE] if deed == "release" else []
        rest = [each for each in messages if each not in malware]
        word, meaning = DEEDS[deed]
        return visit.render(
            "quarantine/chosen.html", deed=deed, word=word, meaning=meaning, messages=rest, malware=malware
        )

    async def do(self, visit: Visit) -> web.StreamResponse:
        """Do it to one after the other, and tell what came of each."""
        deed = _deed_in(visit)
        results = [await self._do_one(visit, deed, uid) for uid in _chosen(visit)]
        return visit.render(
            "quarantine/done.html",
            deed=deed,
            results=results,
            done=sum(not each.failure for each in results),
        )

    async def _do_one(self, visit: Visit, deed: str, uid: UUID) -> Result:
        subject = ""
        try:
            subject = (await self._quarantine.find(visit.scope, uid)).subject
            if deed == "release":
                await self._quarantine.release(visit.scope, uid, visit.actor)
            else:
                await self._quarantine.delete(visit.scope, uid, visit.actor)
        except MailwardenError as error:
            return Result(uid, subject, error.message)
        return Result(uid, subject)

    async def _known(self, visit: Visit, uid: UUID) -> HeldMessage | None:
        try:
            return await self._quarantine.find(visit.scope, uid)
        except MessageNotFound:
            return None


def _tenant_in(visit: Visit, search: HeldSearch) -> UUID | None:
    """Return the tenant that is meant, by uid or name; one of others does not exist for this person."""
    if not search.tenant:
        return None
    for tenant in visit.tenants:
        if search.tenant.casefold() in (str(tenant.uid), tenant.name.casefold()):
            return tenant.uid
    raise NotFound("There is no such tenant.")


def _deed_in(visit: Visit) -> str:
    deed = visit.form.text("deed")
    if deed not in DEEDS:
        raise SchemaViolation("Say what is to be done: release or delete.")
    return deed


def _chosen(visit: Visit) -> Sequence[UUID]:
    """Return the messages that were ticked, each once."""
    uids = list(dict.fromkeys(uid_in(text) for text in visit.form.many("uid")))
    if not uids:
        raise SchemaViolation("No message is chosen: tick some first.")
    if len(uids) > MAX_CHOSEN:
        raise SchemaViolation(f"Choose {MAX_CHOSEN} messages at most.")
    return uids
