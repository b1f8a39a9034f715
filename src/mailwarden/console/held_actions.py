"""Release and deletion of several held messages: the question with the evidence, each action, and the results.

The screens of quarantine and of messages use it. Every lookup and every action is limited to the user's scope.
"""

from collections.abc import Mapping, Sequence
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.language import N_
from mailwarden.console.message_search import read_back
from mailwarden.console.message_status import needs_confirmation
from mailwarden.console.policy_texts import request_in_language
from mailwarden.console.request import UserRequest
from mailwarden.errors import MailwardenError, SchemaViolation, StorageUnavailable
from mailwarden.history.store import Cursor, HistoryStore
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.policy.facts import Fact, explain
from mailwarden.policy.rules import Policy
from mailwarden.quarantine.model import ActionResult, HeldMessage, State
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


class ChosenMessage(Struct, frozen=True):
    """A chosen message with its evidence, as the confirmation page shows it."""

    held: HeldMessage
    summary: str  # empty if the reason is no longer in history
    facts: tuple[Fact, ...]  # with points against it
    is_dangerous: bool

    @property
    def needs_confirmation(self) -> bool:
        """Whether a release must be confirmed; malware needs no question, as it is never released."""
        return self.is_dangerous and self.held.verdict is not Verdict.MALWARE


class HeldActions:
    def __init__(self, quarantine: QuarantineService, history: HistoryStore, policy: Policy) -> None:
        self._quarantine = quarantine
        self._history = history
        self._policy = policy

    def summary_of(self, finished: FinishedRequest) -> str:
        """Return the reason of a verdict in the language of the page."""
        return request_in_language(finished, self._policy).judgement.summary

    async def chosen(self, request: UserRequest, uids: Sequence[UUID]) -> Sequence[ChosenMessage]:
        """Return the messages of the user's scope with these uids and their evidence; others are left out."""
        return await self.evidence_of(request, [*(await self._quarantine.store.held(request.scope, uids)).values()])

    async def waiting(self, request: UserRequest, places: Sequence[Cursor]) -> list[HeldMessage]:
        """Return the held messages of these rows of history that a recipient waits for; others are left out."""
        keys = [(place.ggrid, place.tenant) for place in places]
        held = await self._quarantine.store.of_rows(request.scope, keys)
        return [held[key] for key in keys if key in held and held[key].in_state(State.HELD)]

    async def evidence_of(self, request: UserRequest, held: Sequence[HeldMessage]) -> Sequence[ChosenMessage]:
        found = await finished_for(self._history, request.scope, held)
        return [self._chosen(each, found.get(each.uid)) for each in held]

    def ask(
        self,
        request: UserRequest,
        action: str,
        chosen: Sequence[ChosenMessage],
        *,
        skipped: int = 0,
        error: MailwardenError | None = None,
    ) -> web.Response:
        """Show the messages and the action for confirmation, the dangerous ones first; `skipped` are not held."""
        messages = sorted(chosen, key=lambda each: not each.is_dangerous)
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

    async def act(self, request: UserRequest, action: str, uids: Sequence[UUID]) -> Sequence[ActionResult]:
        """Release or delete the messages for all recipients that wait for them, all in one transaction."""
        try:
            if action == "release":
                train = request.form.ticked("train")
                return await self._quarantine.store.request_releases(request.scope, uids, request.actor, train=train)
            return await self._quarantine.store.delete_several(request.scope, uids, request.actor)
        except StorageUnavailable as error:
            return [ActionResult(uid, error=error) for uid in uids]

    def show_results(
        self, request: UserRequest, action: str, results: Sequence[ActionResult], *, blocked: bool = False
    ) -> web.Response:
        """Show the result of each message; `blocked` says that values were blocked before."""
        return request.render(
            "quarantine/done.html",
            action=action,
            results=results,
            done=sum(result.error is None for result in results),
            in_doubt=any(isinstance(result.error, StorageUnavailable) and result.error.in_doubt for result in results),
            blocked=blocked,
            back=read_back(request.form.text("back")),
        )

    def _chosen(self, held: HeldMessage, finished: FinishedRequest | None) -> ChosenMessage:
        told = request_in_language(finished, self._policy) if finished else None
        return ChosenMessage(
            held=held,
            summary=told.judgement.summary if told else "",
            facts=explain(told.judgement, self._policy).against[:MAX_FACTS] if told else (),
            is_dangerous=needs_confirmation(held, finished),
        )


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
    places = {message.uid: Cursor(message.ggrid, message.tenant) for message in messages}
    found = await history.find_many(scope, [*places.values()])
    return {uid: found[place] for uid, place in places.items() if place in found}
