"""Judges stored messages again: with other list entries, or with another policy. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.lists.catalogue import Effect, MatchOn, find_list, names_against, names_on, names_with
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.kinds.subjects import SubjectMatcher
from mailwarden.lists.lookup import EVERYTHING, ActingLists, Shown
from mailwarden.lists.matching import Match
from mailwarden.message.urls import find_urls, host_of
from mailwarden.model.evidence import Evidence, Report, Status
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.observables import Observables, ObservedFile
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.model.place import Place
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import (
    ANALYZER,
    report_of,
    without_allowed_files,
    without_allowed_links,
)
from mailwarden.policy.rules import Policy, for_tenant

_BODIES = frozenset({"text/plain", "text/html"})
_BY_ADDRESS = frozenset(names_on(MatchOn.CLIENT_IP))
_RELAYS = frozenset(names_on(MatchOn.RELAY))
_LOOKALIKES = frozenset(names_on(MatchOn.LOOKALIKE))


class Edit(Struct, frozen=True):
    """Entries in stored form to add to one list or to remove from it; without a tenant the list is global."""

    list_name: str
    entries: frozenset[str]
    tenant: UUID | None = None
    adds: bool = True

    @property
    def affected(self) -> frozenset[str]:
        """Return the lists whose matches may change; a trusted relay changes the client IP that other lists look up."""
        if self.list_name in _RELAYS:
            return _BY_ADDRESS | _RELAYS
        names = _LOOKALIKES if self.list_name in _LOOKALIKES else frozenset(names_against(self.list_name))
        return names if names.isdisjoint(_BY_ADDRESS) else names | _RELAYS

    def concerns(self, hit: ListHit | Match) -> bool:
        """Return whether a hit or a match is one of the entries."""
        return hit.list_name == self.list_name and hit.tenant == self.tenant and hit.entry in self.entries


class Outcome(Struct, frozen=True):
    """The verdict and the decision of a message, recorded and after the change."""

    verdict: Verdict
    decision: Decision
    verdict_after: Verdict
    decision_after: Decision
    touched: bool = False  # the entry acts, or acted
    unproved: bool = False  # the entry would act if the sender were authenticated
    undetermined: bool = False  # history lacks a fact that the decision depends on

    @property
    def differs(self) -> bool:
        return (self.verdict, self.decision) != (self.verdict_after, self.decision_after)


class SmallLists:
    """A few entries with the interface of guard's replica; records the keys that were looked up."""

    def __init__(self, entries: Iterable[Match]) -> None:
        self._by_key: dict[tuple[str, str], list[Match]] = {}
        self._by_list: dict[str, list[Match]] = {}
        self.looked_up: dict[str, set[str]] = {}
        for match in dict.fromkeys(entries):
            key = find_list(match.list_name).kind.key(match.entry)
            self._by_key.setdefault((match.list_name, key), []).append(match)
            self._by_list.setdefault(match.list_name, []).append(match)
        self.assumed_in_use: frozenset[str] = frozenset()

    def match(self, tenant: UUID, keys_by_list: Mapping[str, Iterable[str]]) -> tuple[Match, ...]:
        del tenant
        found: list[Match] = []
        for name, keys in keys_by_list.items():
            wanted_keys = list(keys)
            self.looked_up.setdefault(name, set()).update(wanted_keys)
            if find_list(name).kind.matches_text:
                entries = self._by_list.get(name, [])
                found += [
                    entry for entry in entries if any(SubjectMatcher([entry.entry]).find(text) for text in wanted_keys)
                ]
            else:
                found += [each for key in wanted_keys for each in self._by_key.get((name, key), ())]
        return tuple(found)

    def prefix_lengths(self, tenant: UUID, list_name: str) -> PrefixLengths:
        del tenant
        if list_name in self.assumed_in_use:
            return PrefixLengths(tuple(range(32, 7, -1)), tuple(range(128, 18, -1)))
        return PrefixLengths.of(match.entry for match in self._by_list.get(list_name, ()))

    def in_use(self, tenant: UUID) -> frozenset[str]:
        del tenant
        return frozenset(self.assumed_in_use.union(self._by_list))

    def entries_of(self, tenant: UUID, list_name: str, limit: int) -> Sequence[str]:
        del tenant
        return [match.entry for match in self._by_list.get(list_name, ())][:limit]

    def note_hits(self, matches: Iterable[Match]) -> None:
        """Count nothing: no message is scanned."""

    async def prepare(self, tenant: UUID) -> None:
        """Do nothing: the entries are in memory."""


class RejudgedMessage:
    """One message that is judged again with an edit."""

    def __init__(self, request: FinishedRequest, edit: Edit) -> None:
        self.request = request
        self._edit = edit
        self.failed = lists_failed(request.evidence)
        self._recorded_hits = request.listing.acting
        self._rest = without_lists(request.evidence)
        matched = tuple(hit.value for hit in request.listing.of(*names_on(MatchOn.URL)))
        stored = (*matched, *_stored_urls(request))
        self._observables = observables_of(request, (*stored, *_start_pages(request)))
        # A few pages cannot show that all pages of a host are allowed: then the findings of engines stay.
        self._all_pages = edit.list_name not in names_with(Effect.NO_URL_FINDING) or all(
            "/" not in entry for entry in edit.entries
        )
        self._links = self._observables if self._all_pages else replace(self._observables, urls=stored)

    @property
    def acted(self) -> bool:
        """Return whether an entry to remove acted on the message."""
        return any(self._edit.concerns(hit) for hit in self._recorded_hits)

    def lookup_keys(self) -> Mapping[str, set[str]]:
        """Return the keys under which other entries of the affected lists would matter."""
        lists = SmallLists(self._entries(()))
        lists.assumed_in_use = self._edit.affected
        self._look_up(lists)
        return lists.looked_up

    def judge(self, policy: Policy, others: Iterable[Match]) -> Outcome:
        """Return the outcome; `others` are current entries of the affected lists that may act instead."""
        verdict, decision = self.request.judgement.verdict, self.request.ruling.decision
        same = Outcome(verdict, decision, verdict, decision)
        if self.failed:
            return Outcome(verdict, decision, verdict, decision, undetermined=True)
        listing, found = self._listing(others)
        touched = self.acted if not self._edit.adds else any(self._edit.concerns(hit) for hit in listing.acting)
        if not touched:
            unproved = any(self._edit.concerns(hit) for hit in found.unproved)
            return Outcome(verdict, decision, verdict, decision, unproved=unproved) if unproved else same
        before = self._decided(policy, self.request.listing)
        after = self._decided(policy, listing)
        unrecorded = self.request.listing.shortened and not self._edit.adds
        if before is None or after is None or unrecorded:
            return Outcome(verdict, decision, verdict, decision, touched=True, undetermined=True)
        if before == after:  # the policy may have changed since: report only the effect of the entry
            after = verdict, decision
        return Outcome(verdict, decision, *after, touched=True)

    def _entries(self, others: Iterable[Match]) -> list[Match]:
        """Return the entries of the affected lists after the change."""
        affected = self._edit.affected
        known = [_match(hit) for hit in self._recorded_hits if hit.list_name in affected]
        if self._edit.list_name not in _RELAYS:  # the recorded route of the message stays
            others = [match for match in others if match.list_name not in _RELAYS]
        entries = [match for match in (*known, *others) if self._edit.adds or not self._edit.concerns(match)]
        if self._edit.adds:
            entries += [Match(self._edit.list_name, entry, self._edit.tenant) for entry in self._edit.entries]
        return entries

    def _look_up(self, lists: SmallLists) -> Listing:
        request = self.request
        shown = Shown(request.envelope, request.summary, self._observables, frozenset(EVERYTHING))
        return ActingLists(lists).look_up(request.tenant, shown, self._rest)

    def _listing(self, others: Iterable[Match]) -> tuple[Listing, Listing]:
        """Return the listing after the change, and the part of it that was looked up again."""
        affected = self._edit.affected
        found = self._look_up(SmallLists(self._entries(others)))
        again = self._look_up(SmallLists(_match(hit) for hit in self._recorded_hits if hit.list_name in affected))
        seen = {_match(hit) for hit in again.acting}
        kept = [
            hit
            for hit in self._recorded_hits
            if hit.list_name not in affected
            or (_match(hit) not in seen and (self._edit.adds or not self._edit.concerns(hit)))
        ]
        acting = (*kept, *found.acting)
        listing = replace(
            self.request.listing,
            acting=acting,
            unproved=found.unproved,
            allowed_urls=found.allowed_urls,
            allowed_files=self._allowed_files(acting),
        )
        return listing, found

    def _allowed_files(self, acting: Iterable[ListHit]) -> frozenset[str]:
        """Return the allowed files among the parts of the message; a file inside another cannot be allowed alone."""
        files = {*self.request.listing.allowed_files, *(part.sha256 for part in self.request.summary.parts)}
        clearing = names_with(Effect.CLEARED_FILE)
        return frozenset(hit.value for hit in acting if hit.list_name in clearing and hit.value in files)

    def _decided(self, policy: Policy, listing: Listing) -> tuple[Verdict, Decision] | None:
        """Judge and decide with this listing, or return None if only an engine knows the result."""
        rest = without_allowed_links(self._rest, listing, self._links, all_pages=self._all_pages)
        judgement, decision = judge_again(self.request, for_tenant(policy, self.request.weights), rest, listing)
        return (judgement.verdict, decision) if decision else None


def judge_again(
    request: FinishedRequest, policy: Policy, rest: Evidence, listing: Listing, profile: Profile | None = None
) -> tuple[Judgement, Decision | None]:
    """Judge and decide by these findings and entries, with all other inputs of the decision as recorded.

    `rest` is evidence without the report of the lists. The decision is None if only an engine knows whether it
    convicted the message for the allowed files alone.
    """
    evidence = Evidence((*rest.reports, _lists_report(request.evidence, listing)))
    judgement = judge(evidence, policy)
    rest_judgement = None
    if listing.allowed_files:
        convicted = any(report.convicts_files and report.findings for report in evidence.reports)
        cleared = _is_cleared(request, listing.allowed_files) if convicted else False
        if cleared is None:
            return judgement, None
        rest_judgement = judge(
            without_allowed_files(evidence, listing, observables_of(request).files, engines_clear=cleared), policy
        )
    ruling = decide(
        judgement,
        Assignment(request.tenant, request.assigned_by, profile or request.profile),
        policy,
        session_open=request.session_open,
        listing=listing,
        rest_judgement=rest_judgement,
    )
    return judgement, Decision.QUARANTINE if ruling.decision in request.unshared else ruling.decision


def _is_cleared(request: FinishedRequest, allowed: frozenset[str]) -> bool | None:
    """Return whether the engines clear the message without these files, or None if they were not called for that.

    A message that is clean without some files is also clean without more of them.
    """
    if request.cleared_files and request.cleared_files <= allowed:
        return True
    return False if allowed == request.listing.allowed_files else None


def lists_failed(evidence: Evidence) -> bool:
    """Return whether the list lookup of the message failed."""
    return any(report.analyzer == ANALYZER and report.status is not Status.FINISHED for report in evidence.reports)


def without_lists(evidence: Evidence) -> Evidence:
    return Evidence(tuple(report for report in evidence.reports if report.analyzer != ANALYZER))


def _lists_report(evidence: Evidence, listing: Listing) -> Report:
    """Return the report of the lists for a listing; a failed report stays."""
    failed = (
        report for report in evidence.reports if report.analyzer == ANALYZER and report.status is not Status.FINISHED
    )
    return next(failed, None) or report_of(listing, 0.0)


def _match(hit: ListHit) -> Match:
    return Match(hit.list_name, hit.entry, hit.tenant)


def _stored_urls(request: FinishedRequest) -> Iterable[str]:
    """Yield the stored links and the URLs in their texts."""
    links = request.summary.links
    yield from (link.target for link in links)
    yield from (url for link in links for url in find_urls(link.text))


def _start_pages(request: FinishedRequest) -> Iterable[str]:
    """Yield the start page of each host without a stored link."""
    linked = {link.host or host_of(link.target) for link in request.summary.links}
    yield from (f"http://{host}/" for host in request.summary.url_hosts if host not in linked)


def observables_of(request: FinishedRequest, urls: tuple[str, ...] = ()) -> Observables:
    """Return the observables that history stores."""
    return Observables(
        urls=urls,
        files=tuple(
            ObservedFile(
                place=Place(part=part.path, name=part.name),
                name=part.listed_name or part.name,
                media_type=part.media_type,
                sha256=part.sha256,
                is_body=part.media_type in _BODIES and not part.name,
            )
            for part in request.summary.parts
        ),
        relays=_relays_of(request),
    )


def _relays_of(request: FinishedRequest) -> tuple[str, ...]:
    addresses = [hop.address for hop in request.summary.hops]
    return tuple(addresses[: addresses.index("")] if "" in addresses else addresses)


MAX_RULES = 5  # per message, those that differ most


class Stored(Struct, frozen=True):
    """One stored message: its evidence and its tenant. With its request, the lists act as recorded."""

    name: str
    evidence: Evidence
    assignment: Assignment
    request: FinishedRequest | None = None


class Side(Struct, frozen=True):
    verdict: Verdict
    decision: Decision


class RuleChange(Struct, frozen=True):
    """The weight of one rule in a message, before and after; 0 if it does not match."""

    rule: str
    before: int
    after: int


class Change(Struct, frozen=True):
    name: str
    before: Side
    after: Side
    rules: tuple[RuleChange, ...]


class Difference(Struct, frozen=True):
    """The messages by verdict and by decision, each as (before, after), and the messages that change."""

    looked_at: int
    verdicts: Mapping[Verdict, tuple[int, int]]
    decisions: Mapping[Decision, tuple[int, int]]
    changes: tuple[Change, ...]
    undetermined: int = 0  # an allowed file was convicted, and only an engine knows the result without it


class PolicyChoice(Struct, frozen=True):
    """A policy, and a profile if it is not the tenant's own."""

    policy: Policy
    profile: Profile | None = None


def stored_of(request: FinishedRequest) -> Stored:
    assignment = Assignment(request.tenant, request.assigned_by, request.profile, request.weights)
    return Stored(str(request.ggrid), request.evidence, assignment, request)


def compare(messages: Iterable[Stored], before: PolicyChoice, after: PolicyChoice) -> Difference:
    """Judge each message by both policies and return the difference."""
    verdicts: tuple[Counter[Verdict], Counter[Verdict]] = Counter(), Counter()
    decisions: tuple[Counter[Decision], Counter[Decision]] = Counter(), Counter()
    changes = []
    looked_at = undetermined = 0
    for message in messages:
        looked_at += 1
        left, right = _judge(message, before), _judge(message, after)
        if left is None or right is None:
            undetermined += 1
            continue
        sides = [Side(judgement.verdict, decision) for judgement, decision in (left, right)]
        for number, side in enumerate(sides):
            verdicts[number][side.verdict] += 1
            decisions[number][side.decision] += 1
        if sides[0] != sides[1]:
            changes.append(Change(message.name, sides[0], sides[1], _rules_between(left[0], right[0])))
    return Difference(
        looked_at,
        {each: (verdicts[0][each], verdicts[1][each]) for each in Verdict if verdicts[0][each] or verdicts[1][each]},
        {each: (decisions[0][each], decisions[1][each]) for each in Decision if any(side[each] for side in decisions)},
        tuple(changes),
        undetermined,
    )


def _judge(message: Stored, point: PolicyChoice) -> tuple[Judgement, Decision] | None:
    policy = for_tenant(point.policy, message.assignment.weights)
    profile = point.profile or message.assignment.profile
    if (request := message.request) is not None:
        judgement, decision = judge_again(request, policy, without_lists(request.evidence), request.listing, profile)
        return (judgement, decision) if decision else None
    judgement = judge(message.evidence, policy)
    return judgement, decide(judgement, replace(message.assignment, profile=profile), policy).decision


def _rules_between(left: Judgement, right: Judgement) -> tuple[RuleChange, ...]:
    """Return the rules whose weights differ, the largest difference first."""
    before, after = _weights(left), _weights(right)
    found = [RuleChange(rule, before[rule], after[rule]) for rule in before.keys() | after.keys()]
    differing = [each for each in found if each.before != each.after]
    return tuple(sorted(differing, key=lambda each: (-abs(each.after - each.before), each.rule))[:MAX_RULES])


def _weights(judgement: Judgement) -> Counter[str]:
    weights: Counter[str] = Counter()
    for reason in judgement.reasons:
        weights[reason.rule] += reason.weight
    return weights
