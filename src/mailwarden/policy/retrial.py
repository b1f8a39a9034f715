"""Judges a finished guard request once more with other entries in the lists. Pure: the evidence is the one it had.

Of the lists that a change does not touch, what they said then stands. The list that changes, and its rival, are asked
again about what history keeps of the message; entries that acted on something history does not keep go on acting.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.lists.acting import EVERYTHING, ActingLists, Shown
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.findings import ANALYZER, hits_told, report_of, without_allowed_files, without_allowed_links
from mailwarden.lists.kinds.networks import PrefixLengths
from mailwarden.lists.kinds.subjects import SubjectMatcher
from mailwarden.lists.precedence import RIVALS, Match
from mailwarden.message.urls import find_urls, host_of
from mailwarden.model.evidence import Evidence, Status
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.sightings import SightedFile, Sightings
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.decide import DEFAULT_TENANT_TAG, decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import Policy
from mailwarden.policy.weights import for_tenant

ENGINES = frozenset({"clamav"})  # convict a message; only they can tell whether one file was why
_BODIES = frozenset({"text/plain", "text/html"})
_PROFILE = re.compile(r"under the profile (\w+):")
_BY_ADDRESS = frozenset({"ip-block", "ip-allow", "simulation-senders"})
_RELAYS = frozenset({"trusted-relays"})
_TOGETHER = (*map(frozenset, RIVALS), frozenset({"protected-domains", "lookalike-ignore"}))


class Edit(Struct, frozen=True):
    """Entries in stored form that are added to one list, or taken out of it; without a tenant it is a global one."""

    list_name: str
    entries: frozenset[str]
    tenant: UUID | None = None
    adds: bool = True

    @property
    def affected(self) -> frozenset[str]:
        """Return the lists whose entries may win or lose by it; a relay decides which address the others are asked."""
        if self.list_name in _RELAYS:
            return _BY_ADDRESS | _RELAYS
        names = next((names for names in _TOGETHER if self.list_name in names), frozenset({self.list_name}))
        return names if names.isdisjoint(_BY_ADDRESS) else names | _RELAYS

    def concerns(self, hit: ListHit | Match) -> bool:
        """Tell whether this is one of the entries; history keeps the first 200 characters of one."""
        named = hit.list_name == self.list_name and hit.tenant == self.tenant
        return named and (
            hit.entry in self.entries
            or (len(hit.entry) == 200 and any(entry.startswith(hit.entry) for entry in self.entries))
        )


NO_EDIT = Edit("", frozenset())


class Outcome(Struct, frozen=True):
    """What a message was and became, and what it would have been and become."""

    verdict: Verdict
    decision: Decision
    verdict_after: Verdict
    decision_after: Decision
    touched: bool = False  # the entry would have acted, or did
    unproved: bool = False  # it would have, had the sender been authenticated
    untold: bool = False  # history does not hold what decides

    @property
    def differs(self) -> bool:
        return (self.verdict, self.decision) != (self.verdict_after, self.decision_after)


class SmallLists:
    """A few entries that answer as guard's replica does; it remembers what it was asked for."""

    def __init__(self, entries: Iterable[Match]) -> None:
        self._by_key: dict[tuple[str, str], list[Match]] = {}
        self._by_list: dict[str, list[Match]] = {}
        self.asked: dict[str, set[str]] = {}
        for match in dict.fromkeys(entries):
            key = find_list(match.list_name).kind.key(match.entry)
            self._by_key.setdefault((match.list_name, key), []).append(match)
            self._by_list.setdefault(match.list_name, []).append(match)
        self.pretended: frozenset[str] = frozenset()

    def match(self, tenant: UUID, wanted: Mapping[str, Iterable[str]]) -> tuple[Match, ...]:
        del tenant
        found: list[Match] = []
        for name, keys in wanted.items():
            asked = list(keys)
            self.asked.setdefault(name, set()).update(asked)
            if name == "subject-block":
                entries = self._by_list.get(name, [])
                found += [each for each in entries if any(SubjectMatcher([each.entry]).find(text) for text in asked)]
            else:
                found += [each for key in asked for each in self._by_key.get((name, key), ())]
        return tuple(found)

    def prefix_lengths(self, tenant: UUID, list_name: str) -> PrefixLengths:
        del tenant
        if list_name in self.pretended:
            return PrefixLengths(tuple(range(32, 7, -1)), tuple(range(128, 18, -1)))
        return PrefixLengths.of(match.entry for match in self._by_list.get(list_name, ()))

    def in_use(self, tenant: UUID) -> frozenset[str]:
        del tenant
        return frozenset(self.pretended.union(self._by_list))

    def entries_of(self, tenant: UUID, list_name: str, limit: int) -> Sequence[str]:
        del tenant
        return [match.entry for match in self._by_list.get(list_name, ())][:limit]

    def note_hits(self, matches: Iterable[Match]) -> None:
        """Count nothing: nothing was met."""

    async def prepare(self, tenant: UUID) -> None:
        """Be ready at once."""


class Retrial:
    """One message that is judged once more."""

    def __init__(self, request: FinishedRequest, edit: Edit) -> None:
        self.request = request
        self._edit = edit
        report = next((each for each in request.evidence.reports if each.analyzer == ANALYZER), None)
        self.failed = report is not None and report.status is not Status.FINISHED
        self._said = [] if report is None else [*hits_told(report.findings, request.tenant)]
        self._rest = Evidence(tuple(each for each in request.evidence.reports if each.analyzer != ANALYZER))
        told = tuple(hit.value for hit in self._said if hit.list_name in ("url-block", "url-allow"))
        self._sightings = _sightings_of(request, (*told, *_urls_of(request)))
        # Whether all pages of a host are allowed cannot be told from some of them: then what engines said stands.
        pages = edit.list_name == "url-allow" and any("/" in entry for entry in edit.entries)
        self._links = replace(self._sightings, urls=()) if pages else self._sightings

    @property
    def met(self) -> bool:
        """Tell whether an entry that is to go acted then."""
        return any(self._edit.concerns(hit) for hit in self._said)

    def asks(self) -> Mapping[str, set[str]]:
        """Return under which keys further entries of the affected lists would matter."""
        lists = SmallLists(self._entries(()))
        lists.pretended = self._edit.affected
        self._look_up(lists)
        return lists.asked

    def judge(self, policy: Policy, others: Iterable[Match], profiles: Mapping[UUID, Profile]) -> Outcome:
        """Return what would have been; `others` are entries of the affected lists that may have lost then."""
        verdict, decision = self.request.judgement.verdict, self.request.ruling.decision
        same = Outcome(verdict, decision, verdict, decision)
        if self.failed:
            return Outcome(verdict, decision, verdict, decision, untold=True)
        listing, found = self._listing(others)
        touched = self.met if not self._edit.adds else any(self._edit.concerns(hit) for hit in listing.acting)
        if not touched:
            unproved = any(self._edit.concerns(hit) for hit in found.unproved)
            return Outcome(verdict, decision, verdict, decision, unproved=unproved) if unproved else same
        profile = self._profile(profiles)
        before = self._decided(policy, self._old_listing(), profile)
        after = self._decided(policy, listing, profile)
        if before is None or after is None:
            return Outcome(verdict, decision, verdict, decision, touched=True, untold=True)
        if before == after:  # rules may have changed since: only what the entry changes is told
            after = verdict, decision
        return Outcome(verdict, decision, *after, touched=True)

    def decide_anew(self, policy: Policy, profile: Profile) -> Decision | None:
        """Return what a policy decides with the lists as they were, or None where only an engine could tell."""
        decided = self._decided(policy, self._old_listing(), profile)
        return decided and decided[1]

    def _entries(self, others: Iterable[Match]) -> list[Match]:
        """Return the entries of the affected lists as the change leaves them."""
        affected = self._edit.affected
        known = [_match(hit) for hit in self._said if hit.list_name in affected]
        if self._edit.list_name not in _RELAYS:  # the message came the way it came
            others = [match for match in others if match.list_name not in _RELAYS]
        entries = [match for match in (*known, *others) if self._edit.adds or not self._edit.concerns(match)]
        if self._edit.adds:
            entries += [Match(self._edit.list_name, entry, self._edit.tenant) for entry in self._edit.entries]
        return entries

    def _look_up(self, lists: SmallLists) -> Listing:
        request = self.request
        shown = Shown(request.envelope, request.summary, self._sightings, frozenset(EVERYTHING))
        return ActingLists(lists).look_up(request.tenant, shown, self._rest)

    def _listing(self, others: Iterable[Match]) -> tuple[Listing, Listing]:
        """Return what the lists would have said, and what of it was found anew."""
        affected = self._edit.affected
        found = self._look_up(SmallLists(self._entries(others)))
        again = self._look_up(SmallLists(_match(hit) for hit in self._said if hit.list_name in affected))
        seen = {_match(hit) for hit in again.acting}
        kept = [
            hit
            for hit in self._said
            if hit.list_name not in affected
            or (_match(hit) not in seen and (self._edit.adds or not self._edit.concerns(hit)))
        ]
        acting = (*kept, *found.acting)
        return Listing(acting, found.unproved, found.allowed_urls, self._allowed_files(acting)), found

    def _old_listing(self) -> Listing:
        return Listing(tuple(self._said), allowed_files=self._allowed_files(self._said))

    def _allowed_files(self, acting: Iterable[ListHit]) -> frozenset[str]:
        """Return the files of the message itself that are allowed; what is inside another is not a file by itself."""
        files = {part.sha256 for part in self.request.summary.parts}
        return frozenset(hit.value for hit in acting if hit.list_name == "file-hash-allow" and hit.value in files)

    def _decided(self, policy: Policy, listing: Listing, profile: Profile) -> tuple[Verdict, Decision] | None:
        """Judge and decide with this listing, or return None where only an engine could tell."""
        policy = for_tenant(policy, self.request.weights)
        reports = without_allowed_links(self._rest, listing, self._links).reports
        evidence = Evidence((*reports, report_of(listing, 0.0)))
        judgement = judge(evidence, policy)
        eased = None
        if listing.allowed_files:
            accused = any(each.analyzer in ENGINES and each.findings for each in evidence.reports)
            cleared = "list.file-hash-allow" in self.request.ruling.tags
            if accused and not cleared:
                return None
            rest = without_allowed_files(evidence, listing, self._sightings.files, engines_clear=accused)
            eased = judge(rest, policy)
        by = AssignedBy.DEFAULT if DEFAULT_TENANT_TAG in self.request.ruling.tags else AssignedBy.REQUEST
        assignment = Assignment(self.request.tenant, by, profile)
        session_open = self.request.ruling.decision is Decision.BOUNCE
        ruling = decide(judgement, assignment, policy, session_open=session_open, listing=listing, eased=eased)
        return judgement.verdict, ruling.decision

    def _profile(self, profiles: Mapping[UUID, Profile]) -> Profile:
        """Return the profile of then, as the trace names it, or where it does not, that of now."""
        for step in self.request.ruling.trace:
            if step.step == "profile" and (named := _PROFILE.search(step.outcome)):
                return Profile(named[1])
        return profiles.get(self.request.tenant, self.request.profile)


def _match(hit: ListHit) -> Match:
    return Match(hit.list_name, hit.entry, hit.tenant)


def _urls_of(request: FinishedRequest) -> Iterable[str]:
    """Yield the links that history keeps, with those that their texts show; a host without one is its first page."""
    links = request.summary.links
    linked = {link.host or host_of(link.target) for link in links}
    yield from (link.target for link in links)
    yield from (url for link in links for url in find_urls(link.text))
    yield from (f"http://{host}/" for host in request.summary.url_hosts if host not in linked)


def _sightings_of(request: FinishedRequest, urls: tuple[str, ...]) -> Sightings:
    """Return what lists can meet of what history keeps."""
    return Sightings(
        urls=urls,
        files=tuple(
            SightedFile(
                place=f"part {part.path} ({part.name})" if part.name else f"part {part.path}",
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
