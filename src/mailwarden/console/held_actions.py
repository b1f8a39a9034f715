"""Release and deletion of several held messages: the question with the evidence, each action, and the results.

The screens of quarantine and of messages use it. Every lookup and every action is limited to the user's scope.
"""

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.language import N_
from mailwarden.console.message_search import read_back
from mailwarden.console.message_status import needs_confirmation
from mailwarden.console.policy_texts import request_in_language
from mailwarden.console.request import UserRequest
from mailwarden.errors import MailwardenError, MessageNotFound, SchemaViolation
from mailwarden.history.store import Cursor, HistoryStore
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.policy.facts import Fact, explain
from mailwarden.policy.rules import Policy
from mailwarden.quarantine.model import HeldMessage, State
from mailwarden.quarantine.service import QuarantineService

MAX_CHOSEN = 50
MAX_FACTS = 3  # of each chosen message
# Actions on several messages: the button's label and the explanation.
ACTIONS: Mapping[str, tuple[str, str]] = {
    "release": (
        N_("Release"),
        N_("Each message goes to all recipients that wait for it, without another scan."),
    ),
    "delete": (N_("Delete"), N_("Each message is deleted for all recipients that wait for it. This cannot be undone.")),
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
    facts: tuple[Fact, ...]  # with points against it
    is_dangerous: bool


class HeldActions:
    def __init__(self, quarantine: QuarantineService, history: HistoryStore, policy: Policy) -> None:
        self._quarantine = quarantine
        self._history = history
        self._policy = policy

    def summary_of(self, finished: FinishedRequest) -> str:
        """Return the reason of a verdict in the language of the page."""
        return request_in_language(finished, self._policy).judgement.summary

    async def known(self, request: UserRequest, uids: Sequence[UUID]) -> list[HeldMessage]:
        """Return the messages of the user's scope with these uids; others are left out."""
        return [each for uid in uids if (each := await self._known(request, uid)) is not None]

    async def waiting(self, request: UserRequest, places: Sequence[Cursor]) -> list[HeldMessage]:
        """Return the held messages of these rows of history that a recipient waits for; others are left out."""
        found = [await self._held(request, place) for place in places]
        return [each for each in found if each is not None and each.in_state(State.HELD)]

    async def ask(
        self,
        request: UserRequest,
        action: str,
        held: Sequence[HeldMessage],
        *,
        skipped: int = 0,
        error: MailwardenError | None = None,
    ) -> web.Response:
        """Show the messages and the action for confirmation, the dangerous ones first; `skipped` are not held."""
        messages = sorted(await self._evidence_of(request, held), key=lambda each: not each.is_dangerous)
        malware = (
            [message for message in messages if message.held.verdict is Verdict.MALWARE] if action == "release" else []
        )
        rest = [message for message in messages if message not in malware]
        word, meaning = ACTIONS[action]
        return request.render(
            "quarantine/chosen.html",
            action=action,
            word=word,
            meaning=meaning,
            messages=rest,
            malware=malware,
            skipped=skipped,
            dangerous=sum(each.is_dangerous for each in rest) if action == "release" else 0,
            train=request.form.ticked("train"),
            back=read_back(request.form.text("back")),
            error=error,
        )

    async def needs_confirmation(self, request: UserRequest, held: Sequence[HeldMessage]) -> bool:
        """Return whether one of the messages is dangerous; malware needs no question, as it is never released."""
        messages = await self._evidence_of(request, held)
        return any(message.is_dangerous and message.held.verdict is not Verdict.MALWARE for message in messages)

    async def act(self, request: UserRequest, action: str, uid: UUID) -> Result:
        """Release or delete one message for all recipients that wait for it."""
        subject = ""
        try:
            subject = (await self._quarantine.find(request.scope, uid)).subject
            if action == "release":
                train = request.form.ticked("train")
                await self._quarantine.release(request.scope, uid, request.actor, train=train)
            else:
                await self._quarantine.delete(request.scope, uid, request.actor)
        except MailwardenError as error:
            return Result(uid, subject, error.message)
        return Result(uid, subject)

    def show_results(
        self, request: UserRequest, action: str, results: Sequence[Result], *, blocked: bool = False
    ) -> web.Response:
        """Show the result of each message; `blocked` says that values were blocked before."""
        return request.render(
            "quarantine/done.html",
            action=action,
            results=results,
            done=sum(not result.failure for result in results),
            blocked=blocked,
            back=read_back(request.form.text("back")),
        )

    async def _evidence_of(self, request: UserRequest, held: Sequence[HeldMessage]) -> Sequence[ChosenMessage]:
        found = await finished_for(self._history, request.scope, held)
        return [self._chosen(each, found.get(each.uid)) for each in held]

    def _chosen(self, held: HeldMessage, finished: FinishedRequest | None) -> ChosenMessage:
        told = request_in_language(finished, self._policy) if finished else None
        return ChosenMessage(
            held=held,
            summary=told.judgement.summary if told else "",
            facts=explain(told.judgement, self._policy).against[:MAX_FACTS] if told else (),
            is_dangerous=needs_confirmation(held, finished),
        )

    async def _known(self, request: UserRequest, uid: UUID) -> HeldMessage | None:
        try:
            return await self._quarantine.find(request.scope, uid)
        except MessageNotFound:
            return None

    async def _held(self, request: UserRequest, place: Cursor) -> HeldMessage | None:
        try:
            return await self._quarantine.of_ggrid(request.scope, place.tenant, place.ggrid)
        except MessageNotFound:
            return None


def action_in(request: UserRequest) -> str:
    """Return the action of the pressed button, or raise SchemaViolation."""
    action = request.form.text("action")
    if action not in ACTIONS:
        raise SchemaViolation("Choose an action: release or delete.")
    return action


async def finished_for(
    history: HistoryStore, scope: Scope, messages: Sequence[HeldMessage]
) -> Mapping[UUID, FinishedRequest]:
    """Return the row in history of each held message, as far as history still has it."""
    found = await asyncio.gather(*(history.find(scope.narrowed(message.tenant), message.ggrid) for message in messages))
    return {message.uid: finished for message, finished in zip(messages, found, strict=True) if finished is not None}
