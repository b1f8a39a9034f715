"""Shows what a change would do before it is made: of list entries, and of the weight of a rule for one tenant.

The messages of the last 30 days are judged again with the change; for weights, one message also proposes them.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.lists.catalogue import Effect, ListDefinition, MatchOn, find_list
from mailwarden.lists.checking import matching_entries
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.kinds.networks import is_network
from mailwarden.lists.kinds.people import person_of
from mailwarden.lists.matching import Match
from mailwarden.lists.store import ListScope
from mailwarden.message.urls import host_of
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant
from mailwarden.policy.counterfactual import by_rule
from mailwarden.policy.judge import RECOGNISED_BULK
from mailwarden.policy.rejudge import Edit, Outcome, RejudgedMessage, Side, judge_again, without_lists
from mailwarden.policy.rules import Policy, Rule, bounds_of, for_tenant
from mailwarden.search.count import Count
from mailwarden.search.terms import address_term, domain_term, hash_term, network_term, word_terms, words_of

MAX_ENTRIES = 500  # of one change; more entries have terms that match half of history
_SHORTEST_PREFIX = {4: 16, 6: 32}  # the shortest prefix with a term in history
_MOST_NETWORKS = 256


class CandidateTerms(Struct, frozen=True):
    """The terms of the messages to search for (none: all messages), the entries tried, and notes for the user."""

    terms: tuple[str, ...]
    entries: tuple[str, ...]
    notes: tuple[str, ...] = ()


def candidate_terms(list_name: str, entries: Sequence[str], *, adds: bool) -> CandidateTerms:
    """Return the terms of the messages that these entries, in stored form, may match."""
    definition = find_list(list_name)
    notes = [definition.history_note, "" if adds else definition.history_note_deleted]
    notes = [*filter(None, notes)]
    chosen = tuple(entries[:MAX_ENTRIES])
    if len(chosen) < len(entries):
        notes.append(f"Only the first {MAX_ENTRIES} of {len(entries):,} entries were tried.")
    if MatchOn.FILE in definition.match_on and any(len(entry) != 64 for entry in chosen):
        notes.append("History stores SHA-256 only: matches of SHA-1 and MD5 are unknown.")
        chosen = tuple(entry for entry in chosen if len(entry) == 64)
    terms: dict[str, None] = {}
    for entry in chosen:
        entry_terms = _terms(definition, entry, adds=adds)
        if not entry_terms:
            notes.append("Nothing leads from these entries to their messages, so the newest of all were looked at.")
            return CandidateTerms((), chosen, tuple(dict.fromkeys(notes)))
        terms.update(dict.fromkeys(entry_terms))
    if MatchOn.SUBJECT in definition.match_on and any(_edge_only(entry) for entry in chosen):
        notes.append("Only subjects that hold these words whole were looked at.")
    return CandidateTerms(tuple(terms), chosen, tuple(dict.fromkeys(notes)))


def _terms(definition: ListDefinition, entry: str, *, adds: bool) -> tuple[str, ...]:
    """Return terms of which every matching message has at least one; none if no such term exists."""
    if definition.effect is Effect.NO_LOOKALIKE:
        return ("tag:sender.lookalike-domain",) if adds else (f"tag:{definition.tag}",)
    if definition.effect is Effect.PROTECTED_DOMAIN:
        return () if adds else ("tag:sender.lookalike-domain",)
    values: Iterable[MatchOn] = definition.match_on
    if not _BY_ADDRESS.isdisjoint(values):
        values = [value for value in values if (value in _BY_ADDRESS) is is_network(entry)]
    term_groups = [_TERMS[value](entry) if value in _TERMS else () for value in values]
    return tuple(term for terms in term_groups for term in terms) if all(term_groups) else ()


def _host_or_address(field: str, entry: str) -> tuple[str, ...]:
    return (address_term(field, entry) if "@" in entry else domain_term(field, entry.removeprefix("*.")),)


def _name(entry: str) -> tuple[str, ...]:
    words = word_terms("name", person_of(entry).name)
    return (max(words, key=len),) if words else ()


def _networks(entry: str) -> tuple[str, ...]:
    network = ip_network(entry)
    least = _SHORTEST_PREFIX[network.version]
    if network.prefixlen >= least:
        return (network_term(network),)
    if 1 << (least - network.prefixlen) > _MOST_NETWORKS:
        return ()
    return tuple(map(network_term, network.subnets(new_prefix=least)))


def _subject(entry: str) -> tuple[str, ...]:
    """Return the longest word of a text, an inner one if possible: one at the edge may be part of a longer word."""
    if entry.startswith("/"):
        return ()
    words = words_of(entry)
    chosen = words[1:-1] or words
    return (f"subject:{max(chosen, key=len)}",) if chosen else ()


def _edge_only(entry: str) -> bool:
    return not entry.startswith("/") and len(words_of(entry)) < 3


_BY_ADDRESS = frozenset({MatchOn.CLIENT_IP, MatchOn.RELAY})
_TERMS: Mapping[MatchOn, Callable[[str], tuple[str, ...]]] = {
    MatchOn.CLIENT_IP: _networks,
    MatchOn.RELAY: _networks,
    MatchOn.SENDER: lambda entry: _host_or_address("from", entry),
    MatchOn.SENDER_DOMAIN: lambda entry: _host_or_address("from", entry),
    MatchOn.SENDER_NAME: _name,
    MatchOn.RECIPIENT: lambda entry: _host_or_address("to", entry),
    MatchOn.URL: lambda entry: (domain_term("url", host_of(f"http://{entry.removeprefix('*.')}")),),
    MatchOn.FILE: lambda entry: (hash_term(entry),),
    MatchOn.SUBJECT: _subject,
}

DAYS = 30
MAX_JUDGED = 1_500
MAX_SHOWN = 100
COUNT_SECONDS = 0.6
READ_SECONDS = 1.4  # after that, an estimate without messages
LOOKUP_SECONDS, JUDGE_SECONDS = 1.2, 1.6  # since the start of the estimate
LEAST_SECONDS = 0.15  # for judging, even if reading took longer
MAX_TENANTS = 20
_TURN = 20  # messages to judge before other tasks of the event loop run


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
            requests, count = await _read(self._history, seen_by, search.terms, since, limit)
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
            if number % _TURN == 0:
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
            if number % _TURN == _TURN - 1:
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
        total=_total(count, looked_at),
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


async def _read(
    history: History, scope: Scope, terms: Sequence[str], since: datetime, limit: int
) -> tuple[Sequence[FinishedRequest], Count]:
    """Return the newest messages that a change may concern, and their number; raise TimeoutError if it takes long."""
    async with asyncio.timeout(READ_SECONDS):
        return await asyncio.gather(
            history.candidates(scope, terms, since, limit), history.count(scope, terms, since, COUNT_SECONDS)
        )


def _total(count: Count, looked_at: int) -> int:
    if count.exact:
        return max(count.counted, looked_at)
    return count.estimate if count.estimate > looked_at else 0


def _nothing(since: datetime, notes: tuple[str, ...], *, exact: bool = True) -> Impact:
    return Impact(since, 0, 0, exact, 0, 0, {}, {}, (), notes=notes)


def _counts(decisions: Iterable[Decision]) -> Mapping[Decision, int]:
    counted = Counter(decisions)
    return {decision: counted[decision] for decision in Decision if counted[decision]}


_NOT_CLEAN = tuple(f"verdict:{verdict}" for verdict in Verdict if verdict not in (Verdict.CLEAN, Verdict.UNKNOWN))

Bounds = tuple[int, int]


class Proposal(Struct, frozen=True):
    """The weight nearest to the present one that changes the result of a message, and that result."""

    weight: int
    verdict: Verdict
    decision: Decision


class TunableRule(Struct, frozen=True):
    """A rule that argues against a message, with its present weight for the tenant."""

    rule: Rule
    points: int  # in this message
    weight: int
    bounds: Bounds
    proposal: Proposal | None = None

    @property
    def is_fixed(self) -> bool:
        return self.bounds[0] == self.bounds[1]


class WeightImpact(Sample, frozen=True):
    """The estimate: messages to which the rule applies, judged with the present weight and with another."""

    touched: int = 0
    changed: int = 0
    delivered: int = 0  # instead of held
    held: int = 0  # instead of delivered
    undetermined: int = 0  # only an engine knows the result
    messages: tuple[ChangedMessage, ...] = ()  # whose verdict or decision changes, newest first
    in_time: bool = True


def weight_of(rule: Rule, weights: Mapping[str, int]) -> int:
    """Return the weight that the rule has for a tenant, within the bounds of the rule."""
    least, most = bounds_of(rule)
    return max(least, min(most, weights.get(rule.id, rule.weight)))


def judged(request: FinishedRequest, policy: Policy, profile: Profile) -> Side | None:
    """Judge and decide a stored message by this policy, or return None if only an engine knows the result."""
    judgement, decision = judge_again(request, policy, without_lists(request.evidence), request.listing, profile)
    return Side(judgement.verdict, decision) if decision else None


def enforced_profile(tenant: Tenant) -> Profile:
    """Return the profile to compare by: `monitor` delivers nearly everything and would show no difference."""
    return Profile.BALANCED if tenant.profile is Profile.MONITOR else tenant.profile


class Tuner:
    """One message and the rules against it, judged with other weights of its tenant."""

    def __init__(self, request: FinishedRequest, policy: Policy, tenant: Tenant) -> None:
        self._request = request
        self._policy = policy
        self._tenant = tenant
        self._profile = enforced_profile(tenant)

    def result(self, rule_id: str = "", weight: int = 0) -> Side | None:
        """Return the result with the present weights of the tenant, one of them changed if a rule is named."""
        weights = {**self._tenant.weights, rule_id: weight} if rule_id else self._tenant.weights
        return judged(self._request, for_tenant(self._policy, weights), self._profile)

    def rules(self, settable: Callable[[Rule], Bounds]) -> tuple[TunableRule, ...]:
        """Return the rules against the message, those that change its result alone first, then by their points.

        `settable` returns the bounds within which the user may set a weight.
        """
        rules_by_id = {rule.id: rule for rule in self._policy.rules}
        present = self.result()
        tunable_rules = []
        for rule_id, reasons in by_rule(self._request.judgement).items():
            if (rule := rules_by_id.get(rule_id)) is not None:
                weight, bounds = weight_of(rule, self._tenant.weights), settable(rule)
                proposal = self._proposal(rule, weight, bounds[0], present) if present else None
                points = sum(reason.weight for reason in reasons)
                tunable_rules.append(TunableRule(rule, points, weight, bounds, proposal))
        return tuple(sorted(tunable_rules, key=_most_useful))

    def _proposal(self, rule: Rule, weight: int, least: int, present: Side) -> Proposal | None:
        """Lower the weight until the message is delivered, or else until its verdict changes."""
        lowest = self.result(rule.id, least) if least < weight else None
        if lowest is None or lowest == present:
            return None
        delivers = lowest.decision is Decision.DELIVER and present.decision is not Decision.DELIVER
        enough, too_much = least, weight  # the weights with and without the effect that are nearest so far
        while too_much - enough > 1:
            middle = (enough + too_much) // 2
            side = self.result(rule.id, middle)
            reached = side is not None and (side.decision is Decision.DELIVER if delivers else side != present)
            enough, too_much = (middle, too_much) if reached else (enough, middle)
        side = self.result(rule.id, enough) or lowest
        return Proposal(enough, side.verdict, side.decision)


def _most_useful(tunable_rule: TunableRule) -> tuple[bool, bool, bool, int]:
    delivers = tunable_rule.proposal is not None and tunable_rule.proposal.decision is Decision.DELIVER
    return not delivers, tunable_rule.proposal is None, tunable_rule.is_fixed, -tunable_rule.points


class WeightEstimator:
    """Estimates how another weight would have affected past messages of a tenant."""

    def __init__(self, history: History, policy: Policy) -> None:
        self._history = history
        self._policy = policy

    async def estimate(self, tenant: Tenant, rule: Rule, weight: int) -> WeightImpact:
        """Judge the messages of 30 days with the present weights and with this weight."""
        began = time.monotonic()
        since = datetime.now(UTC) - timedelta(days=DAYS)
        before = for_tenant(self._policy, tenant.weights)
        after = for_tenant(self._policy, {**tenant.weights, rule.id: weight})
        terms = terms_of_rule(rule, lowered=weight < weight_of(rule, tenant.weights))
        try:
            requests, count = await _read(self._history, Scope.of(tenant.uid), terms, since, MAX_JUDGED)
        except TimeoutError:
            return WeightImpact(since, 0, 0, total_is_exact=False, in_time=False)
        until = max(began + JUDGE_SECONDS, time.monotonic() + LEAST_SECONDS)
        looked_at, outcomes = 0, list[ChangedMessage]()
        for request in requests:
            looked_at += 1
            if applies(rule, request):
                outcomes.append(ChangedMessage(request, _outcome(request, before, after, enforced_profile(tenant))))
            if looked_at % _TURN == 0:
                await asyncio.sleep(0)
                if time.monotonic() > until:
                    break
        return _weight_impact_of(since, looked_at, count, outcomes)


def terms_of_rule(rule: Rule, *, lowered: bool) -> tuple[str, ...]:
    """Return the terms of the messages to search for: the tag of the rule, if every match of the rule has it.

    A lower weight changes nothing about a clean message, except for rules that ease others.
    """
    if rule.tag and not rule.restrains:
        return (f"tag:{rule.tag}",)
    return _NOT_CLEAN if lowered and rule.weight > 0 else ()


def applies(rule: Rule, request: FinishedRequest) -> bool:
    """Return whether the message has the first finding of the rule; others are sought when it is judged."""
    needed = rule.needs[0]
    return needed == RECOGNISED_BULK or any(finding.name == needed for _, finding in request.evidence.findings)


def _outcome(request: FinishedRequest, before: Policy, after: Policy, profile: Profile) -> Outcome:
    left, right = judged(request, before, profile), judged(request, after, profile)
    if left is None or right is None:
        verdict, decision = request.judgement.verdict, request.ruling.decision
        return Outcome(verdict, decision, verdict, decision, touched=True, undetermined=True)
    return Outcome(left.verdict, left.decision, right.verdict, right.decision, touched=True)


def _weight_impact_of(
    since: datetime, looked_at: int, count: Count, outcomes: Sequence[ChangedMessage]
) -> WeightImpact:
    changed = [message for message in outcomes if message.outcome.differs]
    return WeightImpact(
        since=since,
        looked_at=looked_at,
        total=_total(count, looked_at),
        total_is_exact=count.exact,
        touched=len(outcomes),
        changed=len(changed),
        delivered=sum(_goes(message.outcome, to=Decision.DELIVER) for message in changed),
        held=sum(_goes(message.outcome, to=Decision.QUARANTINE) for message in changed),
        undetermined=sum(message.outcome.undetermined for message in outcomes),
        messages=tuple(sorted(changed, key=_delivered_first)[:MAX_SHOWN]),
    )


def _goes(outcome: Outcome, *, to: Decision) -> bool:
    """Return whether the change delivers a message that was held, or holds one that was delivered."""
    other = Decision.QUARANTINE if to is Decision.DELIVER else Decision.DELIVER
    return outcome.decision is other and outcome.decision_after is to


def _delivered_first(message: ChangedMessage) -> bool:
    """Sort by what matters most; the order of time stays within each kind."""
    return message.outcome.decision is message.outcome.decision_after
