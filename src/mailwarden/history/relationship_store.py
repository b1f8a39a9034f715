"""Who has written to whom, in PostgreSQL: counts under digests, one row for each pair of a tenant."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.pool import Database, Row
from mailwarden.history.partitions import today
from mailwarden.model.scope import Scope

MOST = 1_000_000  # beyond which nobody counts
FORGET_BATCH = 5_000

_SALT = "SELECT salt FROM relationship_salt"
_KNOWN = """
SELECT pair, messages, days, $3::date - first_seen AS age FROM unnest($1::uuid[], $2::bytea[]) AS asked (tenant, pair)
JOIN relationships USING (tenant, pair)
"""
_LEARN = """
INSERT INTO relationships AS known (tenant, pair, messages, days, first_seen, last_seen)
SELECT tenant, pair, messages, 1, day, day
FROM unnest($1::uuid[], $2::bytea[], $3::integer[], $4::date[]) AS given (tenant, pair, messages, day)
ON CONFLICT (tenant, pair) DO UPDATE SET
    messages = least(known.messages + EXCLUDED.messages, $5),
    days = known.days + (EXCLUDED.last_seen > known.last_seen)::integer,
    last_seen = greatest(known.last_seen, EXCLUDED.last_seen)
"""
_FORGET = """
DELETE FROM relationships WHERE (tenant, pair) IN (
    SELECT tenant, pair FROM relationships WHERE last_seen < $1 AND ($2::uuid[] IS NULL OR tenant = ANY($2)) LIMIT $3
)
"""
_TAKE = """
DELETE FROM relationships WHERE tenant = $1 AND pair = ANY ($2::bytea[])
RETURNING pair, messages, days, first_seen, last_seen
"""
_GIVE_BACK = """
INSERT INTO relationships AS known (tenant, pair, messages, days, first_seen, last_seen)
SELECT $1, pair, messages, days, first_seen, last_seen
FROM unnest($2::bytea[], $3::integer[], $4::integer[], $5::date[], $6::date[])
    AS given (pair, messages, days, first_seen, last_seen)
ON CONFLICT (tenant, pair) DO UPDATE SET
    messages = least(known.messages + EXCLUDED.messages, $7),
    days = known.days + EXCLUDED.days,
    first_seen = least(known.first_seen, EXCLUDED.first_seen),
    last_seen = greatest(known.last_seen, EXCLUDED.last_seen)
"""
_UNLEARN = """
UPDATE relationships SET messages = greatest(messages - 1, 0)
WHERE tenant = $1 AND pair = ANY ($2::bytea[])
"""


class Bond(Struct, frozen=True, order=True):
    """How often, on how many days, and since how many days a pair has been seen."""

    messages: int = 0
    days: int = 0
    age: int = 0


class Sighting(Struct, frozen=True, order=True):
    """One pair that was seen so often on a day."""

    tenant: UUID
    pair: bytes
    day: date
    messages: int


class Memory(Struct, frozen=True):
    """All that is known of one pair, taken out to be given back."""

    pair: bytes
    messages: int
    days: int
    first_seen: date
    last_seen: date


class RelationshipStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def salt(self, scope: Scope) -> bytes:
        """Return what the digests of this deployment are made with."""
        async with self._database.connection() as connection:
            salt = await connection.fetchval(_SALT)
        return salt if isinstance(salt, bytes) else b""

    async def known(self, scope: Scope, asked: Sequence[tuple[UUID, bytes]]) -> Mapping[bytes, Bond]:
        """Return what is known of these pairs of tenants; one that is not there has never been seen."""
        seen = [(tenant, pair) for tenant, pair in asked if scope.allows(tenant)]
        if not seen:
            return {}
        async with self._database.connection() as connection:
            columns = [tenant for tenant, _ in seen], [pair for _, pair in seen]
            rows = await connection.fetch(_KNOWN, *columns, today())
        return {bytes(row["pair"]): _bond(row) for row in rows}  # type: ignore[call-overload]

    async def learn(self, scope: Scope, sightings: Sequence[Sighting]) -> None:
        """Count the sightings; in the same order in every guard, so that two cannot wait for each other."""
        rows = sorted(each for each in sightings if scope.allows(each.tenant))
        if not rows:
            return
        columns = (
            [each.tenant for each in rows],
            [each.pair for each in rows],
            [each.messages for each in rows],
            [each.day for each in rows],
        )
        async with self._database.connection() as connection:
            await connection.execute(_LEARN, *columns, MOST)

    async def unlearn(self, scope: Scope, tenant: UUID, pairs: Sequence[bytes]) -> None:
        """Count one message less of each pair."""
        if scope.allows(tenant):
            async with self._database.connection() as connection:
                await connection.execute(_UNLEARN, tenant, sorted(pairs))

    async def take(self, scope: Scope, tenant: UUID, pairs: Sequence[bytes]) -> Sequence[Memory]:
        """Forget these pairs of a tenant; return what was known of them."""
        if not scope.allows(tenant):
            return []
        async with self._database.connection() as connection:
            rows = await connection.fetch(_TAKE, tenant, sorted(pairs))
        return [msgspec.convert(dict(cast("Mapping[str, object]", row)), Memory) for row in rows]

    async def give_back(self, scope: Scope, tenant: UUID, memories: Sequence[Memory]) -> None:
        """Know again what was taken, beside what has been seen since."""
        if not scope.allows(tenant) or not memories:
            return
        rows = sorted(memories, key=lambda each: each.pair)
        columns = (
            [each.pair for each in rows],
            [each.messages for each in rows],
            [each.days for each in rows],
            [each.first_seen for each in rows],
            [each.last_seen for each in rows],
        )
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, tenant, *columns, MOST)

    async def forget(self, scope: Scope, before: date) -> int:
        """Forget the pairs that were not seen since that day, in steps that hold nobody up; return how many went."""
        tenants = None if scope.tenants is None else list(scope.tenants)
        gone = 0
        async with self._database.connection() as connection:
            while True:
                done = int((await connection.execute(_FORGET, before, tenants, FORGET_BATCH)).rpartition(" ")[2])
                gone += done
                if done < FORGET_BATCH:
                    return gone


def _bond(row: Row) -> Bond:
    return Bond(*(cast("int", row[name]) for name in ("messages", "days", "age")))
