"""The data of sender history, and the interface of its store."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope


class ContactStats(Struct, frozen=True, order=True):
    """How many messages a contact sent, on how many days, and how many days ago the first one came."""

    messages: int = 0
    days: int = 0
    age: int = 0


class ContactCount(Struct, frozen=True, order=True):
    """The number of messages of one contact on one day; `contact` is a digest, see senders/lookup.py."""

    tenant: UUID
    contact: bytes
    day: date
    messages: int


class ContactRecord(Struct, frozen=True):
    """Everything stored about one contact, as removed and restored."""

    contact: bytes
    messages: int
    days: int
    first_seen: date
    last_seen: date


class DomainStats(Struct, frozen=True):
    """How many groups of tenants had good and bad mail of a domain, on how many days, and for how many days."""

    good: int = 0
    bad: int = 0
    days: int = 0
    age: int = 0


class DomainCount(Struct, frozen=True, order=True):
    """A sighting of a domain; `good` and `bad` have the bit of one group of tenants (senders/domain_memory.py)."""

    domain: bytes
    good: int
    bad: int
    day: date


class SenderAnswer(Struct, frozen=True):
    """The stats of contacts, messages and domains, each by its digest; those never seen are missing."""

    contacts: Mapping[bytes, ContactStats] = {}
    domains: Mapping[bytes, DomainStats] = {}


class SenderCounts(Struct, frozen=True):
    """The additions of some messages to the history of senders."""

    day: date
    contacts: tuple[ContactCount, ...] = ()
    messages: tuple[tuple[UUID, bytes], ...] = ()
    domains: tuple[DomainCount, ...] = ()
    domain_keys: tuple[bytes, ...] = ()  # under which the counter remembers `domains`
    relations: tuple[bytes, ...] = ()  # those of `contacts` that are counted once a day


Counting = Callable[[Sequence[FinishedRequest]], SenderCounts]


class SenderStore(Protocol):
    """Stores how often senders wrote to a tenant and its recipients, under keyed digests instead of addresses."""

    async def salt(self, scope: Scope) -> bytes:
        """Return the key of this deployment's digests."""

    async def stats(
        self, scope: Scope, contacts: Sequence[tuple[UUID, bytes]], messages: Sequence[tuple[UUID, bytes]] = ()
    ) -> Mapping[bytes, ContactStats]:
        """Return the stats of these contacts and messages of tenants; those that were never seen are missing."""

    async def lookup(
        self,
        scope: Scope,
        contacts: Sequence[tuple[UUID, bytes]],
        messages: Sequence[tuple[UUID, bytes]],
        domains: Sequence[bytes],
    ) -> SenderAnswer:
        """Return contacts and messages as `stats`, and domains, in one statement.

        Domains belong to no tenant: only the deployment's scope sees them.
        """

    async def add_domains(self, scope: Scope, counts: Sequence[DomainCount]) -> None:
        """Add sightings to the memory of domains; only the deployment's scope may."""

    async def add(self, scope: Scope, counts: Sequence[ContactCount]) -> None:
        """Add the messages of a day to their contacts."""

    async def add_messages(self, scope: Scope, messages: Sequence[tuple[UUID, bytes]], day: date) -> None:
        """Remember messages of tenants; those that are remembered already keep their day."""

    async def subtract(self, scope: Scope, tenant: UUID, contacts: Sequence[bytes]) -> None:
        """Subtract one message from each contact."""

    async def remove(self, scope: Scope, tenant: UUID, contacts: Sequence[bytes]) -> Sequence[ContactRecord]:
        """Delete these contacts of a tenant and return their records."""

    async def restore(self, scope: Scope, tenant: UUID, records: Sequence[ContactRecord]) -> None:
        """Add removed records to the messages counted since."""

    async def delete_unseen(self, scope: Scope, before: date) -> int:
        """Delete contacts last seen before that day, in small transactions; return their number."""

    async def delete_domains(self, scope: Scope, before: date, before_of_one: date) -> int:
        """Delete domains last seen before that day, those of one group of tenants before the other; return how many.

        Only the deployment's scope may.
        """

    async def delete_messages(self, scope: Scope, before: date) -> int:
        """Delete messages remembered before that day, in small transactions; return their number."""
