"""Shows what a change of list entries would do before it is made: the messages of the last 30 days are judged again."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.lists.catalogue import find_list
from mailwarden.lists.checking import matching_entries
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.matching import Match
from mailwarden.lists.store import ListScope
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.policy.candidate_terms import CandidateTerms, candidate_terms
from mailwarden.policy.rejudge import Edit, Outcome, RejudgedMessage
from mailwarden.policy.rules import Policy
from mailwarden.search.count import Count

DAYS = 30
MAX_JUDGED = 1_500
MAX_SHOWN = 100
COUNT_SECONDS = 0.6
READ_SECONDS = 1.4  # after that, an estimate without messages
LOOKUP_SECONDS, JUDGE_SECONDS = 1.2, 1.6  # since the start of the estimate
LEAST_SECONDS = 0.15  # for judging, even if reading took longer
MAX_TENANTS = 20
MESSAGES_A_TURN = 20  # messages to judge before other tasks of the event loop run


class History(Protocol):
    """The queries of the history store that the estimate needs."""

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]: ...

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count: ...  # noqa: ASYNC109


class ChangedMessage(Struct, frozen=True):
    """One message on which the entries act, with its outcome."""

    request: FinishedRequest
    outcome: Outcome


class Sample(Struct, frozen=True):
    """The messages that an estimate is about."""

    since: datetime
    looked_at: int
    total: int  # messages that the change may concern; 0 if they could not be counted
    total_is_exact: bool

    @property
    def is_sampled(self) -> bool:
        """Return whether some messages may not have been read."""
        return not self.total_is_exact or self.looked_at < self.total


class Impact(Sample, frozen=True):
    """The estimate. The counts are about messages that were read and on which the entries act."""

    touched: int
    changed: int
    before: Mapping[Decision, int]
    after: Mapping[Decision, int]
    messages: tuple[ChangedMessage, ...]  # messages whose verdict or decision changes, newest first
    unproved: int = 0
    undetermined: int = 0
    notes: tuple[str, ...] = ()


class ImpactEstimator:
    """Estimates how list changes would have affected past messages."""

    def __init__(self, history: History, entries: EntryStore, policy: Policy) -> None:
        self._history = history
        self._entries = entries
        self._policy = policy

    async def estimate(
        self,
        scope: ListScope,
        list_name: str,
        entries: Sequence[str],
        *,
        adds: bool = True,
    ) -> Impact:
        """Estimate the effect of adding these entries, in stored form, or of deleting them."""
        began = time.monotonic()
        since = datetime.now(UTC) - timedelta(days=DAYS)
        search = candidate_terms(list_name, entries, adds=adds)
        edit = Edit(list_name, frozenset(search.entries), scope.tenant, adds)
        if not search.entries:
            return _nothing(since, search.notes)
        seen_by = Scope.deployment() if scope.tenant is None else Scope.of(scope.tenant)
        looks_up = not adds or find_list(list_name).needs_other_entries
        try:
            limit = MAX_JUDGED // 2 if looks_up else MAX_JUDGED
            requests, count = await read_candidates(self._history, seen_by, search.terms, since, limit)
        except TimeoutError:
            return _nothing(since, (*search.notes, "History did not answer in time: try again."), exact=False)
        trials = [RejudgedMessage(request, edit) for request in requests]
        if not adds:
            trials = [trial for trial in trials if trial.acted or trial.failed]
        others: Mapping[UUID | None, Sequence[Match]] = {}
        left: Sequence[RejudgedMessage] = ()
        if trials and looks_up:
            others, looked_up = await self._others(edit, trials, began + LOOKUP_SECONDS)
            left, trials = trials[looked_up:], trials[:looked_up]
        until = max(began + JUDGE_SECONDS, time.monotonic() + LEAST_SECONDS)
        outcomes = await self._judge(trials, others, until)
        looked_at = len(requests) - len(left) - (len(trials) - len(outcomes))
        return _impact_of(since, search, count, looked_at, outcomes)

    async def _judge(
        self,
        trials: Sequence[RejudgedMessage],
        others: Mapping[UUID | None, Sequence[Match]],
        until: float,
    ) -> list[ChangedMessage]:
        """Judge the newest messages first, until the time is over."""
        outcomes: list[ChangedMessage] = []
        for number, trial in enumerate(trials, 1):
            extra = (*others.get(trial.request.tenant, ()), *others.get(None, ()))
            outcomes.append(ChangedMessage(trial.request, trial.judge(self._policy, extra)))
            if number % MESSAGES_A_TURN == 0:
                await asyncio.sleep(0)
                if time.monotonic() > until:
                    break
        return outcomes

    async def _others(
        self, edit: Edit, trials: Sequence[RejudgedMessage], until: float
    ) -> tuple[Mapping[UUID | None, Sequence[Match]], int]:
        """Look up other current entries that may act instead of these or together with them.

        Return the entries, and the number of messages that were looked up in time.
        """
        keys: dict[UUID | None, dict[str, set[str]]] = {None: {}}
        looked_up = len(trials)
        for number, trial in enumerate(trials):
            if number % MESSAGES_A_TURN == MESSAGES_A_TURN - 1:
                await asyncio.sleep(0)
                if time.monotonic() > until:
                    looked_up = number
                    break
            tenant = trial.request.tenant
            for name, lookup_keys in trial.lookup_keys().items():
                keys[None].setdefault(name, set()).update(lookup_keys)
                if tenant in keys or len(keys) <= MAX_TENANTS:
                    keys.setdefault(tenant, {}).setdefault(name, set()).update(lookup_keys)
        now = datetime.now(UTC)
        matches: dict[UUID | None, list[Match]] = {}
        for owner, lists in keys.items():
            used = await self._entries.counts(ListScope(owner))
            for name, lookup_keys in lists.items():
                if used.get(name) and name in edit.affected:
                    entries = await matching_entries(self._entries, ListScope(owner), name, lookup_keys)
                    matches.setdefault(owner, []).extend(
                        Match(name, entry.entry, owner)
                        for entry in entries
                        if entry.expires is None or datetime.fromisoformat(entry.expires) > now
                    )
        return matches, looked_up


def _impact_of(
    since: datetime, search: CandidateTerms, count: Count, looked_at: int, outcomes: Sequence[ChangedMessage]
) -> Impact:
    touched = [message for message in outcomes if message.outcome.touched]
    changed = [message for message in touched if message.outcome.differs]
    return Impact(
        since=since,
        looked_at=looked_at,
        total=total_of(count, looked_at),
        total_is_exact=count.exact,
        touched=len(touched),
        changed=len(changed),
        before=_counts(message.outcome.decision for message in touched),
        after=_counts(message.outcome.decision_after for message in touched),
        messages=tuple(changed[:MAX_SHOWN]),
        unproved=sum(message.outcome.unproved for message in outcomes),
        undetermined=sum(message.outcome.undetermined for message in outcomes),
        notes=search.notes,
    )


async def read_candidates(
    history: History, scope: Scope, terms: Sequence[str], since: datetime, limit: int
) -> tuple[Sequence[FinishedRequest], Count]:
    """Return the newest messages that a change may concern, and their number; raise TimeoutError if it takes long."""
    async with asyncio.timeout(READ_SECONDS):
        return await asyncio.gather(
            history.candidates(scope, terms, since, limit), history.count(scope, terms, since, COUNT_SECONDS)
        )


def total_of(count: Count, looked_at: int) -> int:
    if count.exact:
        return max(count.counted, looked_at)
    return count.estimate if count.estimate > looked_at else 0


def _nothing(since: datetime, notes: tuple[str, ...], *, exact: bool = True) -> Impact:
    return Impact(since, 0, 0, exact, 0, 0, {}, {}, (), notes=notes)


def _counts(decisions: Iterable[Decision]) -> Mapping[Decision, int]:
    counted = Counter(decisions)
    return {decision: counted[decision] for decision in Decision if counted[decision]}
