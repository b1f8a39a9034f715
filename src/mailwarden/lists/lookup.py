"""Looks a message up in the lists of its tenant and of the deployment, and returns the acting entries."""

from collections.abc import Iterable
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.lists.catalogue import CATALOGUE, Category, Effect, MatchOn, find_list, names_on, names_with
from mailwarden.lists.impersonation import DOMAINS, Impersonation
from mailwarden.lists.kinds.domains import candidates_for_domain
from mailwarden.lists.kinds.networks import candidates_for_ip
from mailwarden.lists.matching import (
    ListMatcher,
    Match,
    Seen,
    Value,
    hit_of,
    hits_of,
    identity_of,
    keys_of,
    needs_of,
    values_of,
)
from mailwarden.message.received import canonical_address
from mailwarden.message.urls import registrable_domain
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.observables import Observable, Observables
from mailwarden.model.place import Place
from mailwarden.model.record import MessageSummary

_LET_THROUGH = frozenset({Category.ALLOW, Category.EXEMPT})
_FOR_EVERY_VALUE = tuple(definition.name for definition in CATALOGUE if definition.needs_every_value)


EVERYTHING = tuple(observable for observable in Observable if observable is not Observable.CONTENTS)


class Shown(Struct, frozen=True):
    """The data of a message that the lists match, and the kinds of data that were collected."""

    envelope: Envelope
    summary: MessageSummary
    observables: Observables
    collected_kinds: frozenset[Observable]


class ActingLists:
    """The lists as guard uses them: the data that they need of a message, and the entries that act on it."""

    def __init__(self, matcher: ListMatcher) -> None:
        self._matcher = matcher
        self._impersonation = Impersonation(matcher)

    async def prepare(self, tenant: UUID) -> None:
        """Have ready what takes long to make ready; raise StorageUnavailable where the lists were never copied."""
        await self._matcher.prepare(tenant)
        if DOMAINS in self._matcher.in_use(tenant):
            await self._impersonation.prepare(tenant)

    def wanted(self, tenant: UUID) -> tuple[Observable, ...]:
        """Return what has to be looked for in a message of this tenant; nothing where no list has entries."""
        return needs_of(self._matcher.in_use(tenant))

    def look_up(self, tenant: UUID, shown: Shown, evidence: Evidence) -> Listing:
        """Return the entries that act on the message.

        A list that came into use after the message was looked through acts from the next message on.
        """
        envelope, summary, observables = shown.envelope, shown.summary, shown.observables
        in_use = self._matcher.in_use(tenant)
        if not shown.collected_kinds.issuperset(needs_of(in_use)):
            in_use = frozenset(name for name in in_use if shown.collected_kinds.issuperset(needs_of(frozenset({name}))))
        if evidence.has(AMBIGUOUS_SENDER):  # no entry that lets mail through acts on it, or outweighs one that blocks
            in_use = frozenset(name for name in in_use if find_list(name).category not in _LET_THROUGH)
        if not in_use:
            return Listing()
        identity = identity_of(evidence, envelope, summary, observables)
        message = Seen(envelope, summary, observables, identity, tuple(_urls_of(evidence)))
        address, relays = self._origin(tenant, message, in_use)
        lengths = {
            name: self._matcher.prefix_lengths(tenant, name) for name in names_on(MatchOn.CLIENT_IP) if name in in_use
        }
        values = values_of(message, address, in_use, lengths)
        keys = keys_of(values, in_use)
        value_hits = list(hits_of(values, self._matcher.match(tenant, keys))) if keys else []
        listing = _listing(values, value_hits, observables)
        more = (*relays, *self._impersonation.find(tenant, message, in_use))
        return replace(listing, acting=(*listing.acting, *more))

    def protects(self, tenant: UUID, domain: str) -> bool:
        """Return whether a domain, or one above it, is protected."""
        if DOMAINS not in self._matcher.in_use(tenant):
            return False
        names = (*candidates_for_domain(domain), *candidates_for_domain(registrable_domain(domain)))
        return bool(self._matcher.match(tenant, {DOMAINS: names}))

    def count(self, listing: Listing) -> None:
        """Count the entries that acted on a message that is kept."""
        if listing.acting:
            self._matcher.note_hits([Match(h.list_name, h.entry, h.tenant, h.comment) for h in listing.acting])

    def _origin(self, tenant: UUID, message: Seen, in_use: frozenset[str]) -> tuple[str, tuple[ListHit, ...]]:
        """Return the address the message comes from: the first that is no trusted relay, back along its way."""
        address = message.envelope.remote_address or ""
        trusting = [name for name in names_on(MatchOn.RELAY) if name in in_use]
        if not trusting or not address:
            return address, ()
        lengths = {name: self._matcher.prefix_lengths(tenant, name) for name in trusting}
        skipped: list[ListHit] = []
        way = list(message.observables.relays)
        if way and _same(way[0], address):
            del way[0]  # the border MTA has written its own line already
        while matches := self._matcher.match(tenant, {n: candidates_for_ip(address, lengths[n]) for n in trusting}):
            skipped.append(hit_of(matches[0], address))
            if not way:
                return "", tuple(skipped)  # the hop before the relay is unknown
            address = way.pop(0)
        return address, tuple(skipped)


def _same(left: str, right: str) -> bool:
    return canonical_address(left) == canonical_address(right)


def _urls_of(evidence: Evidence) -> Iterable[str]:
    """Yield the links that findings are about."""
    for _, finding in evidence.findings:
        url = finding.facts.get("url")
        if isinstance(url, str):
            yield url


def _listing(values: Iterable[Value], value_hits: list[tuple[Value, ListHit]], observables: Observables) -> Listing:
    """Sort the hits: acting entries, entries for an authenticated sender only, and allowed URLs and files."""
    acting: dict[tuple[str, str, UUID | None, Place], ListHit] = {}
    for value, hit in value_hits:
        if value.proved and hit.list_name not in _FOR_EVERY_VALUE:
            acting.setdefault((hit.list_name, hit.entry, hit.tenant, hit.place), hit)
    for name in _FOR_EVERY_VALUE:
        exempt = {value.shown: hit for value, hit in value_hits if hit.list_name == name}
        if exempt and all(value.shown in exempt for value in values if name in value.keys):
            # One recipient who is not exempt gets the most severe decision, and with it all of them do.
            acting.update({(name, hit.entry, hit.tenant, hit.place): hit for hit in exempt.values()})
    allowing_urls, clearing_files = names_with(Effect.NO_URL_FINDING), names_with(Effect.CLEARED_FILE)
    top = {file.sha256 for file in observables.files}
    return Listing(
        acting=tuple(acting.values()),
        unproved=tuple(hit for value, hit in value_hits if not value.proved),
        allowed_urls=frozenset(value.shown for value, hit in value_hits if hit.list_name in allowing_urls),
        allowed_files=frozenset(v.shown for v, hit in value_hits if hit.list_name in clearing_files and v.shown in top),
    )
