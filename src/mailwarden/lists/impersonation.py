"""Senders that bear the name of a protected person, or a domain that looks like a protected one.

Security: compares names that strangers chose; a look-up is bounded, and what is compared with is built once.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from mailwarden.lists.kinds.domains import candidates_for_domain
from mailwarden.lists.kinds.people import person_of
from mailwarden.lists.kinds.senders import fold_address
from mailwarden.lists.lookalikes import Lookalikes, candidates_for_shown_name
from mailwarden.lists.matching import ListMatcher, Seen, hit_of
from mailwarden.lists.precedence import Match, winner
from mailwarden.message.urls import registrable_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.listing import ListHit
from mailwarden.model.place import area

PEOPLE, DOMAINS, IGNORED = "protected-people", "protected-domains", "lookalike-ignore"
MAX_ENTRIES = 20_000  # what the lists of a tenant and of the deployment hold together
_FRESH = 0.8  # seconds; a change of the list is seen after so long
_KEPT = 256  # tenants
_FEW = 200  # so many are ready sooner than a thread is


class _Kept(NamedTuple):
    looked: float
    domains: tuple[str, ...]
    lookalikes: Lookalikes


class Impersonation:
    """Keeps, for the tenants that were asked for last, the protected domains in the form they are compared in."""

    def __init__(self, matcher: ListMatcher) -> None:
        self._matcher = matcher
        self._kept: OrderedDict[UUID, _Kept] = OrderedDict()

    def find(self, tenant: UUID, seen: Seen, in_use: frozenset[str]) -> Iterator[ListHit]:
        if PEOPLE in in_use and (person := self._person(tenant, seen)):
            yield person
        if DOMAINS in in_use:
            yield from self._domains(tenant, seen)

    def _person(self, tenant: UUID, seen: Seen) -> ListHit | None:
        """Return the protected person whose name the sender bears with an address that is not that person's."""
        name = seen.summary.from_name
        keys = candidates_for_shown_name(name)
        matches = self._matcher.match(tenant, {PEOPLE: keys}) if keys else ()
        address = fold_address(seen.summary.from_address)
        if any(person_of(match.entry).address == address for match in matches):
            return None
        won = winner(matches)
        return hit_of(won, f"{name} <{seen.summary.from_address}>", area("From")) if won else None

    def _domains(self, tenant: UUID, seen: Seen) -> Iterator[ListHit]:
        """Yield what the sender, or who an answer goes to, imitates; or the entry that knows it as honest."""
        addresses = (seen.summary.from_address, seen.envelope.sender, seen.summary.reply_to)
        for domain in dict.fromkeys(filter(None, map(domain_of, addresses))):
            entry = self._lookalikes(tenant).find(domain)
            if not entry:
                continue
            if ignored := winner(self._ignored(tenant, domain)):
                yield hit_of(ignored, domain)
            elif won := winner(self._matcher.match(tenant, {DOMAINS: (entry,)})):
                yield hit_of(won, domain)

    def _ignored(self, tenant: UUID, domain: str) -> tuple[Match, ...]:
        keys = {*candidates_for_domain(domain), *candidates_for_domain(registrable_domain(domain))}
        return self._matcher.match(tenant, {IGNORED: sorted(keys)})

    async def prepare(self, tenant: UUID) -> None:
        """Have the protected domains ready as they are now; many of them are made ready beside the loop."""
        kept = self._kept.get(tenant)
        now = time.monotonic()
        if kept and now - kept.looked < _FRESH:
            return
        domains = tuple(self._matcher.entries_of(tenant, DOMAINS, MAX_ENTRIES))
        if kept and kept.domains == domains:
            lookalikes = kept.lookalikes
        elif len(domains) > _FEW:
            lookalikes = await asyncio.to_thread(Lookalikes, domains)
        else:
            lookalikes = Lookalikes(domains)
        self._kept[tenant] = _Kept(now, domains, lookalikes)
        self._kept.move_to_end(tenant)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _lookalikes(self, tenant: UUID) -> Lookalikes:
        """Return what was made ready; where nothing was, or it was dropped since, it is made here."""
        kept = self._kept.get(tenant)
        return kept.lookalikes if kept else Lookalikes(self._matcher.entries_of(tenant, DOMAINS, MAX_ENTRIES))
