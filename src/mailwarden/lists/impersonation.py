"""Finds senders with the name of a protected person or a domain that looks like a protected one.

Security: compares names that senders choose. A lookup takes a few steps, however many domains are protected.
"""

import asyncio
import time
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

from mailwarden.lists.catalogue import Effect, names_with
from mailwarden.lists.kinds.domains import candidates_for_domain, fold_domain
from mailwarden.lists.kinds.people import candidates_for_name, person_of
from mailwarden.lists.kinds.senders import fold_address
from mailwarden.lists.matching import ListMatcher, Match, Seen, hit_of, winner
from mailwarden.message.lookalikes import label_of, one_edit, read_as_latin, skeleton
from mailwarden.message.urls import registrable_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.listing import ListHit
from mailwarden.model.place import area

MIN_EDITED = 5  # one letter is too much of a shorter name: `abc` and `abd` are two honest names
MIN_ALIKE = 3

(PEOPLE,) = names_with(Effect.PROTECTED_PERSON)
(DOMAINS,) = names_with(Effect.PROTECTED_DOMAIN)
(IGNORED,) = names_with(Effect.NO_LOOKALIKE)
MAX_ENTRIES = 20_000  # of a tenant's and the global list together
_FRESH = 0.8  # seconds; a change of the list is seen after so long
_KEPT = 256  # tenants
_FEW = 200  # below it a thread costs more than the work


class Lookalikes:
    """The protected domains of one scope, ready to be compared with."""

    def __init__(self, domains: Iterable[str]) -> None:
        self._protected = frozenset(domains)
        self._alike: dict[str, list[str]] = defaultdict(list)
        self._halves: dict[tuple[bool, str], list[str]] = defaultdict(list)
        for domain in sorted(self._protected):
            label = label_of(domain)
            self._alike[skeleton(label)].append(domain)
            if len(label) >= MIN_EDITED:
                for half in _halves(label, len(label)):
                    self._halves[half].append(domain)

    def find(self, domain: str) -> str:
        """Return the protected domain that this one imitates, or ""; a protected domain imitates none."""
        domain = fold_domain(domain.strip())
        if not domain or domain in self._protected or registrable_domain(domain) in self._protected:
            return ""
        label = label_of(domain)
        if len(label) >= MIN_ALIKE:
            for protected in self._alike.get(skeleton(label), ()):
                if label_of(protected) != label:
                    return protected
        return next((protected for protected in self._near(label) if one_edit(label, label_of(protected))), "")

    def _near(self, label: str) -> Iterator[str]:
        """Yield those that share a half with the label: one edit leaves the other half of a name as it was."""
        if len(label) >= MIN_EDITED - 1:
            for length in (len(label) - 1, len(label), len(label) + 1):
                for half in _halves(label, length):
                    yield from self._halves.get(half, ())


def candidates_for_shown_name(name: str) -> list[str]:
    """Return the keys of the kind `person` for a name as it is written, without an address that is written behind it,
    and as a reader of Latin takes it for.
    """
    spellings = [name, name.partition("<")[0]] if "<" in name else [name]
    if not name.isascii():
        spellings += map(read_as_latin, spellings[:])
    return [*dict.fromkeys(key for spelling in spellings for key in candidates_for_name(spelling))]


def _halves(label: str, length: int) -> tuple[tuple[bool, str], tuple[bool, str]]:
    """Return the first and the last half that a name of this length shares with the label."""
    size = (length - 1) // 2
    return (False, label[:size]), (True, label[-size:])


class _Kept(NamedTuple):
    looked: float
    domains: tuple[str, ...]
    lookalikes: Lookalikes


class Impersonation:
    """Keeps, for the tenants that were asked for last, the protected domains in the form they are compared in."""

    def __init__(self, matcher: ListMatcher) -> None:
        self._matcher = matcher
        self._kept: OrderedDict[UUID, _Kept] = OrderedDict()

    def find(self, tenant: UUID, message: Seen, in_use: frozenset[str]) -> Iterator[ListHit]:
        if PEOPLE in in_use and (person := self._person(tenant, message)):
            yield person
        if DOMAINS in in_use:
            yield from self._domains(tenant, message)

    def _person(self, tenant: UUID, message: Seen) -> ListHit | None:
        """Return the protected person whose name the sender uses with another address."""
        name = message.summary.from_name
        keys = candidates_for_shown_name(name)
        matches = self._matcher.match(tenant, {PEOPLE: keys}) if keys else ()
        address = fold_address(message.summary.from_address)
        if any(person_of(match.entry).address == address for match in matches):
            return None
        won = winner(matches)
        return hit_of(won, f"{name} <{message.summary.from_address}>", area("From")) if won else None

    def _domains(self, tenant: UUID, message: Seen) -> Iterator[ListHit]:
        """Yield what the sender, or who an answer goes to, imitates; or the entry that knows it as honest."""
        addresses = (message.summary.from_address, message.envelope.sender, message.summary.reply_to)
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
