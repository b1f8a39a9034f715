"""Hindsight: what a change of a list would have done to the messages of the last 30 days, answered from history.

Messages that the entries may have met are found by what history is searched by, and each is judged once more with
the entries in the lists, or out of them. Where there are more than can be judged in time, the newest are, and the
answer says so.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.history.store import Count
from mailwarden.lists.checking import met_by
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.matching import Match
from mailwarden.lists.scope import ListScope
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.policy.reach import Reach, reach_of
from mailwarden.policy.retrial import Edit, Outcome, Retrial
from mailwarden.policy.rules import Policy

DAYS = 30
MAX_JUDGED = 1_500
MAX_SHOWN = 100
COUNT_SECONDS = 0.6
READ_SECONDS = 1.4  # then an answer without messages is better than none
ASK_SECONDS, JUDGE_SECONDS = 1.2, 1.6  # since the beginning
LEAST_SECONDS = 0.15  # to judge, however long the rest took
MAX_TENANTS = 20
_TURN = 20  # messages that are judged before others get a turn

# Lists where an entry that did not act then may act now that another is there.
ASKED_WHEN_ADDED = frozenset({"recipient-exempt", "protected-people", "protected-domains", "trusted-relays"})


class History(Protocol):
    """Where finished guard requests are found."""

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]: ...

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count: ...  # noqa: ASYNC109


class ChangedMessage(Struct, frozen=True):
    """One message that the entries touch."""

    request: FinishedRequest
    outcome: Outcome


class Impact(Struct, frozen=True):
    """What would have been. The counts are of the messages looked at that the entries touch."""

    since: datetime
    looked_at: int
    total: int  # messages that the entries may have met; 0 where they could not even be counted
    total_is_exact: bool
    touched: int
    changed: int
    before: Mapping[Decision, int]
    after: Mapping[Decision, int]
    messages: tuple[ChangedMessage, ...]  # those whose verdict or decision changes, newest first
    unproved: int = 0
    untold: int = 0
    notes: tuple[str, ...] = ()

    @property
    def is_sampled(self) -> bool:
        """Tell whether there may be messages that were not looked at."""
        return not self.total_is_exact or self.looked_at < self.total


class Hindsight:
    """Answers what changes of lists would have done."""

    def __init__(self, history: History, entries: EntryStore, policy: Policy) -> None:
        self._history = history
        self._entries = entries
        self._policy = policy

    async def look_back(
        self,
        scope: ListScope,
        list_name: str,
        entries: Sequence[str],
        *,
        adds: bool = True,
    ) -> Impact:
        """Tell what these entries, in stored form, would have done; or what would have been without them."""
        began = time.monotonic()
        since = datetime.now(UTC) - timedelta(days=DAYS)
        reach = reach_of(list_name, entries, adds=adds)
        edit = Edit(list_name, frozenset(reach.entries), scope.tenant, adds)
        if not reach.entries:
            return _nothing(since, reach.notes)
        seen_by = Scope.deployment() if scope.tenant is None else Scope.of(scope.tenant)
        asks = not adds or list_name in ASKED_WHEN_ADDED
        try:
            async with asyncio.timeout(READ_SECONDS):
                requests, count = await asyncio.gather(
                    self._history.candidates(seen_by, reach.terms, since, MAX_JUDGED // 2 if asks else MAX_JUDGED),
                    self._history.count(seen_by, reach.terms, since, COUNT_SECONDS),
                )
        except TimeoutError:
            return _nothing(since, (*reach.notes, "History did not answer in time: try again."), told=False)
        trials = [Retrial(request, edit) for request in requests]
        if not adds:
            trials = [trial for trial in trials if trial.met or trial.failed]
        others: Mapping[UUID | None, Sequence[Match]] = {}
        left: Sequence[Retrial] = ()
        if trials and asks:
            others, asked = await self._others(edit, trials, began + ASK_SECONDS)
            left, trials = trials[asked:], trials[:asked]
        until = max(began + JUDGE_SECONDS, time.monotonic() + LEAST_SECONDS)
        outcomes = await self._judge(trials, others, until)
        looked_at = len(requests) - len(left) - (len(trials) - len(outcomes))
        return _told(since, reach, count, looked_at, outcomes)

    async def _judge(
        self,
        trials: Sequence[Retrial],
        others: Mapping[UUID | None, Sequence[Match]],
        until: float,
    ) -> list[ChangedMessage]:
        """Judge the newest first, for as long as there is time."""
        outcomes: list[ChangedMessage] = []
        for number, trial in enumerate(trials, 1):
            extra = (*others.get(trial.request.tenant, ()), *others.get(None, ()))
            outcomes.append(ChangedMessage(trial.request, trial.judge(self._policy, extra)))
            if number % _TURN == 0:
                await asyncio.sleep(0)
                if time.monotonic() > until:
                    break
        return outcomes

    async def _others(
        self, edit: Edit, trials: Sequence[Retrial], until: float
    ) -> tuple[Mapping[UUID | None, Sequence[Match]], int]:
        """Look up which other entries there are now that may act where these do not, or together with them.

        Return them, and for how many of the messages there was time to ask.
        """
        keys: dict[UUID | None, dict[str, set[str]]] = {None: {}}
        asked_of = len(trials)
        for number, trial in enumerate(trials):
            if number % _TURN == _TURN - 1:
                await asyncio.sleep(0)
                if time.monotonic() > until:
                    asked_of = number
                    break
            tenant = trial.request.tenant
            for name, asked in trial.asks().items():
                keys[None].setdefault(name, set()).update(asked)
                if tenant in keys or len(keys) <= MAX_TENANTS:
                    keys.setdefault(tenant, {}).setdefault(name, set()).update(asked)
        now = datetime.now(UTC)
        found: dict[UUID | None, list[Match]] = {}
        for owner, lists in keys.items():
            used = await self._entries.counts(ListScope(owner))
            for name, asked in lists.items():
                if used.get(name) and name in edit.affected:
                    entries = await met_by(self._entries, ListScope(owner), name, asked)
                    found.setdefault(owner, []).extend(
                        Match(name, each.entry, owner)
                        for each in entries
                        if each.expires is None or datetime.fromisoformat(each.expires) > now
                    )
        return found, asked_of


def _told(since: datetime, reach: Reach, count: Count, looked_at: int, outcomes: Sequence[ChangedMessage]) -> Impact:
    touched = [each for each in outcomes if each.outcome.touched]
    changed = [each for each in touched if each.outcome.differs]
    estimate = count.estimate if count.estimate > looked_at else 0
    return Impact(
        since=since,
        looked_at=looked_at,
        total=max(count.counted, looked_at) if count.exact else estimate,
        total_is_exact=count.exact,
        touched=len(touched),
        changed=len(changed),
        before=_counts(each.outcome.decision for each in touched),
        after=_counts(each.outcome.decision_after for each in touched),
        messages=tuple(changed[:MAX_SHOWN]),
        unproved=sum(each.outcome.unproved for each in outcomes),
        untold=sum(each.outcome.untold for each in outcomes),
        notes=reach.notes,
    )


def _nothing(since: datetime, notes: tuple[str, ...], *, told: bool = True) -> Impact:
    return Impact(since, 0, 0, told, 0, 0, {}, {}, (), notes=notes)


def _counts(decisions: Iterable[Decision]) -> Mapping[Decision, int]:
    counted = Counter(decisions)
    return {decision: counted[decision] for decision in Decision if counted[decision]}
