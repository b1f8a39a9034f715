"""The Quarantine screens: search held messages, release and delete them, one or several.

Security: shows hostile messages as text in a sandboxed frame, and exports them to users with that permission."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.auth import Page
from mailwarden.console.list_form import MAX_CHOICES
from mailwarden.console.message_status import needs_confirmation
from mailwarden.console.message_view import Fact, strongest_of
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, with_error_status
from mailwarden.errors import (
    MailwardenError,
    MessageNotFound,
    NotFound,
    SchemaViolation,
)
from mailwarden.history.store import HistoryStore
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.policy.rules import Policy
from mailwarden.quarantine.model import HeldFilter, HeldMessage, PageCursor, State
from mailwarden.quarantine.service import QuarantineService

QUARANTINE = "/console/quarantine"
ANY = "any"
MAX_FILTER = 500
# States of the filter; the first is the default.
STATES: Mapping[str, str] = {
    State.HELD: "held",
    State.RELEASING: "being released",
    State.RELEASED: "released",
    State.DELETED: "deleted",
    ANY: "any",
}
VERDICTS = tuple(each for each in Verdict if each not in (Verdict.CLEAN, Verdict.UNKNOWN))


class QuarantineSearch(Struct, frozen=True):
    tenant: str = ""
    verdict: str = ""
    state: str = State.HELD
    recipient: str = ""
    sender: str = ""
    subject: str = ""
    after: PageCursor | None = None

    @property
    def is_narrow(self) -> bool:
        """Whether any filter is set."""
        return self != QuarantineSearch(after=self.after)

    def address(self, **changes: object) -> str:
        """Return the URL of the first page of this search, with changes."""
        given = {
            "tenant": self.tenant,
            "verdict": self.verdict,
            "state": "" if self.state == State.HELD else self.state,
            "recipient": self.recipient,
            "sender": self.sender,
            "subject": self.subject,
            **changes,
        }
        asked = urlencode({name: str(value) for name, value in given.items() if value})
        return f"{QUARANTINE}?{asked}" if asked else QUARANTINE

    def to_older(self, last: HeldMessage) -> str:
        """Return the URL of the page after this message."""
        return self.address(after=f"{last.received.astimezone(UTC).isoformat()}_{last.uid}")

    def question(self, tenant: UUID | None) -> HeldFilter:
        return HeldFilter(
            tenant=tenant,
            verdict=Verdict(self.verdict) if self.verdict else None,
            recipient=_address(self.recipient),
            sender=_address(self.sender),
            text=self.subject or None,
            state=None if self.state == ANY else State(self.state),
            after=self.after,
        )


def read_search(query: Mapping[str, str]) -> QuarantineSearch:
    """Return the filters in the URL, or raise SchemaViolation."""
    verdict, state = query.get("verdict", ""), query.get("state", "") or State.HELD
    if verdict and verdict not in list(Verdict):
        raise SchemaViolation("There is no verdict of that name.")
    if state not in STATES:
        raise SchemaViolation("There is no state of that name.")
    return QuarantineSearch(
        tenant=_typed(query, "tenant"),
        verdict=verdict,
        state=state,
        recipient=_typed(query, "recipient"),
        sender=_typed(query, "sender"),
        subject=_typed(query, "subject"),
        after=_place(query.get("after", "")),
    )


def _typed(query: Mapping[str, str], name: str) -> str:
    return query.get(name, "").strip()[:MAX_FILTER]


def _address(text: str) -> str | None:
    """Return an address, or a domain as `@domain`."""
    if not text:
        return None
    return text if "@" in text else f"@{text}"


def _place(text: str) -> PageCursor | None:
    if not text:
        return None
    moment, _, uid = text.partition("_")
    try:
        return PageCursor(datetime.fromisoformat(moment).astimezone(UTC), UUID(uid))
    except (ValueError, OverflowError):
        raise SchemaViolation("The `after` cursor is invalid.") from None


ROWS = 25
MAX_CHOSEN = 50
# Actions on several messages: the button's label and the explanation.
ACTIONS: Mapping[str, tuple[str, str]] = {
    "release": (
        "Release",
        "Each message goes to all recipients that wait for it, without another scan.",
    ),
    "delete": ("Delete", "Each message is deleted for all recipients that wait for it. This cannot be undone."),
}


class Result(Struct, frozen=True):
    """The result for one of several messages."""

    uid: UUID
    subject: str
    failure: str = ""


class ChosenMessage(Struct, frozen=True):
    """A chosen message with its evidence, as the confirmation page shows it."""

    held: HeldMessage
    summary: str  # empty if the reason is no longer in history
    strongest: tuple[Fact, ...]
    is_dangerous: bool


class QuarantineScreen:
    def __init__(self, quarantine: QuarantineService, history: HistoryStore, policy: Policy) -> None:
        self._quarantine = quarantine
        self._history = history
        self._policy = policy

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/quarantine", Permission.QUARANTINE_READ, self.show),
            Page("POST", "/quarantine/chosen", Permission.QUARANTINE_WRITE, self.ask),
            Page("POST", "/quarantine/chosen/do", Permission.QUARANTINE_WRITE, self.do),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        search = read_search(request.query)
        tenant = _tenant_in(request, search)
        found = await self._quarantine.page(request.scope, search.question(tenant), ROWS + 1)
        shown = found[:ROWS]
        finished = await finished_for(self._history, request.scope, shown)
        counts = await self._quarantine.counts(request.scope, tenant)
        return request.render(
            "quarantine/index.html",
            search=search,
            tenants=request.tenants if len(request.tenants) <= MAX_CHOICES else None,
            messages=shown,
            reasons={uid: each.judgement.summary for uid, each in finished.items()},
            older=search.to_older(shown[-1]) if len(found) > ROWS else "",
            counts=sorted(counts.items(), key=lambda each: -each[1]),
            total=sum(counts.values()),
            states=STATES,
            verdicts=VERDICTS,
            actions=ACTIONS,
        )

    async def ask(self, request: UserRequest) -> web.StreamResponse:
        """Show the chosen messages and the action, for confirmation; unknown messages are left out."""
        return self._ask(request, _action_in(request), await self._chosen_messages(request))

    async def do(self, request: UserRequest) -> web.StreamResponse:
        """Apply the action to one message after the other and show the results.

        A release of dangerous messages without the confirmation changes nothing and shows the question again.
        """
        action, uids = _action_in(request), _chosen(request)
        if action == "release" and not request.form.ticked("confirmed"):
            messages = await self._chosen_messages(request, required=False)
            if any(each.is_dangerous and each.held.verdict is not Verdict.MALWARE for each in messages):
                error = SchemaViolation("Nothing was released. Confirm that you have read the evidence.")
                return with_error_status(self._ask(request, action, messages, error), error)
        results = [await self._do_one(request, action, uid) for uid in uids]
        return request.render(
            "quarantine/done.html",
            action=action,
            results=results,
            done=sum(not each.failure for each in results),
        )

    async def _chosen_messages(self, request: UserRequest, *, required: bool = True) -> Sequence[ChosenMessage]:
        """Return the chosen messages of the user's scope, the dangerous ones first."""
        found = [each for uid in _chosen(request) if (each := await self._known(request, uid)) is not None]
        if required and not found:
            raise MessageNotFound("There is no such message in quarantine.")
        finished = await finished_for(self._history, request.scope, found)
        messages = [self._evidence_of(each, finished.get(each.uid)) for each in found]
        return sorted(messages, key=lambda each: not each.is_dangerous)

    def _evidence_of(self, held: HeldMessage, finished: FinishedRequest | None) -> ChosenMessage:
        return ChosenMessage(
            held=held,
            summary=finished.judgement.summary if finished else "",
            strongest=strongest_of(finished.judgement, self._policy) if finished else (),
            is_dangerous=needs_confirmation(held, finished),
        )

    def _ask(
        self,
        request: UserRequest,
        action: str,
        messages: Sequence[ChosenMessage],
        error: MailwardenError | None = None,
    ) -> web.Response:
        malware = [each for each in messages if each.held.verdict is Verdict.MALWARE] if action == "release" else []
        rest = [each for each in messages if each not in malware]
        word, meaning = ACTIONS[action]
        return request.render(
            "quarantine/chosen.html",
            action=action,
            word=word,
            meaning=meaning,
            messages=rest,
            malware=malware,
            dangerous=sum(each.is_dangerous for each in rest) if action == "release" else 0,
            learn=request.form.ticked("learn"),
            error=error,
        )

    async def _do_one(self, request: UserRequest, action: str, uid: UUID) -> Result:
        subject = ""
        try:
            subject = (await self._quarantine.find(request.scope, uid)).subject
            if action == "release":
                learn = request.form.ticked("learn")
                await self._quarantine.release(request.scope, uid, request.actor, learn=learn)
            else:
                await self._quarantine.delete(request.scope, uid, request.actor)
        except MailwardenError as error:
            return Result(uid, subject, error.message)
        return Result(uid, subject)

    async def _known(self, request: UserRequest, uid: UUID) -> HeldMessage | None:
        try:
            return await self._quarantine.find(request.scope, uid)
        except MessageNotFound:
            return None


def _tenant_in(request: UserRequest, search: QuarantineSearch) -> UUID | None:
    """Return the tenant by name or UUID, or raise NotFound."""
    if not search.tenant:
        return None
    for tenant in request.tenants:
        if search.tenant.casefold() in (str(tenant.uid), tenant.name.casefold()):
            return tenant.uid
    raise NotFound("There is no such tenant.")


def _action_in(request: UserRequest) -> str:
    action = request.form.text("action")
    if action not in ACTIONS:
        raise SchemaViolation("Choose an action: release or delete.")
    return action


def _chosen(request: UserRequest) -> Sequence[UUID]:
    """Return the chosen messages without duplicates."""
    uids = list(dict.fromkeys(uid_in(text) for text in request.form.many("uid")))
    if not uids:
        raise SchemaViolation("No message is chosen: tick some first.")
    if len(uids) > MAX_CHOSEN:
        raise SchemaViolation(f"Choose {MAX_CHOSEN} messages at most.")
    return uids


def uid_in(text: str) -> UUID:
    """Return the uid that a path or a form names, or raise MessageNotFound."""
    try:
        return UUID(text)
    except ValueError:
        raise MessageNotFound("There is no such message in quarantine.") from None


async def finished_for(
    history: HistoryStore, scope: Scope, messages: Sequence[HeldMessage]
) -> Mapping[UUID, FinishedRequest]:
    """Return the row in history of each held message, as far as history still has it."""
    found = await asyncio.gather(*(history.find(scope.narrowed(message.tenant), message.ggrid) for message in messages))
    return {message.uid: finished for message, finished in zip(messages, found, strict=True) if finished is not None}
