"""Campaigns in PostgreSQL: a fixed number of index lookups for each message, however large a campaign is.

Messages of known campaigns only read. New references are written under one lock for all guards, which read once more
under it: two guards that see a campaign at the same time give it one id.
"""

from collections.abc import Sequence
from datetime import date
from typing import cast
from uuid import UUID, uuid4

from msgspec import Struct

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.rows import read
from mailwarden.history.campaigns import Match, Reference, keys_to_store, match
from mailwarden.model.record import CampaignIds
from mailwarden.model.scope import Scope
from mailwarden.model.similarity import Similarity

DELETE_BATCH = 2_000
_LOCK = 0x6D7763616D7061  # serializes guards that store references
# LIMIT keeps each key a lookup in the index, also with wrong statistics of the tables.
_OF_TENANT = """
SELECT wanted.tenant, wanted.key, found.* FROM unnest($1::uuid[], $2::bigint[]) AS wanted (tenant, key), LATERAL (
    SELECT reference, own, shared, sketch, last_seen FROM campaign_keys JOIN campaign_references USING (reference)
    WHERE campaign_keys.key = wanted.key AND campaign_keys.tenant = wanted.tenant LIMIT 1
) AS found
"""
_OF_ANY_TENANT = """
SELECT wanted.key, found.* FROM unnest($1::bigint[]) AS wanted (key), LATERAL (
    SELECT reference, own, shared, sketch, last_seen FROM campaign_keys JOIN campaign_references USING (reference)
    WHERE campaign_keys.key = wanted.key LIMIT 1
) AS found
"""
_ADD = """
WITH added AS (
    INSERT INTO campaign_references (tenant, own, shared, sketch, keys, last_seen)
    SELECT tenant, own, shared, sketch, keys::bigint[], $6
    FROM unnest($1::uuid[], $2::uuid[], $3::uuid[], $4::bytea[], $5::text[])
         AS given (tenant, own, shared, sketch, keys)
    RETURNING reference, tenant, keys
)
INSERT INTO campaign_keys (key, tenant, reference)
SELECT unnest(keys) AS key, tenant, reference FROM added ORDER BY key, tenant, reference
ON CONFLICT (key, tenant) DO NOTHING
"""
# Another guard that updates the same rows writes the same day.
_SEEN = """
UPDATE campaign_references SET last_seen = $2 WHERE reference IN (
    SELECT reference FROM campaign_references WHERE reference = ANY($1::bigint[]) AND last_seen < $2
    ORDER BY reference FOR UPDATE SKIP LOCKED
)
"""
_DELETE = """
WITH deleted AS (
    DELETE FROM campaign_references WHERE reference IN (
        SELECT reference FROM campaign_references
        WHERE last_seen < $1 AND ($2::uuid[] IS NULL OR tenant = ANY($2)) LIMIT $3
    ) RETURNING reference, tenant, keys
), keys AS (
    DELETE FROM campaign_keys USING (SELECT reference, tenant, unnest(keys) AS key FROM deleted) AS old
    WHERE campaign_keys.key = old.key AND campaign_keys.tenant = old.tenant AND campaign_keys.reference = old.reference
)
SELECT count(*) FROM deleted
"""
_BEGIN = "SET LOCAL lock_timeout = '2s'; SET LOCAL synchronous_commit = off"

TenantKey = tuple[UUID, int]


class _New(Struct, frozen=True):
    """A reference to store."""

    tenant: UUID
    reference: Reference
    keys: tuple[int, ...]


class _Found(Struct):
    """References by tenant and key, and those of any tenant by key."""

    own: dict[TenantKey, Reference]
    shared: dict[int, Reference]

    def match(self, tenant: UUID, similarity: Similarity) -> Match | None:
        values = [key.value for key in similarity.keys]
        return match(similarity, {key: self.own[tenant, key] for key in values if (tenant, key) in self.own})

    def campaign(self, found: Match | None, similarity: Similarity) -> CampaignIds:
        """Return the campaign of a match, or a new one; a new one may share mail of other tenants."""
        if found:
            return found.reference.campaign
        elsewhere = match(similarity, self.shared)
        # Random ids say nothing about the time or the order in which other tenants had mail.
        return CampaignIds(uuid4(), elsewhere.reference.campaign.shared if elsewhere else uuid4())

    def add(self, new: _New) -> None:
        for key in new.keys:
            self.own.setdefault((new.tenant, key), new.reference)
            self.shared.setdefault(key, new.reference)


class PostgresqlCampaignStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def assign(
        self, scope: Scope, messages: Sequence[tuple[UUID, Similarity]], day: date
    ) -> Sequence[CampaignIds | None]:
        assigned: list[CampaignIds | None] = [None] * len(messages)
        comparable = [number for number, (tenant, each) in enumerate(messages) if each.keys and scope.allows(tenant)]
        if not comparable:
            return assigned
        async with self._database.connection() as connection:
            known = await _read(connection, [messages[number] for number in comparable], day)
            found = {number: known.match(*messages[number]) for number in comparable}
            assigned = [each.reference.campaign if (each := found.get(n)) else None for n in range(len(messages))]
            writing = [number for number in comparable if keys_to_store(messages[number][1], found[number])]
            if writing:
                added = await _add(connection, [messages[number] for number in writing], day)
                for number, campaign in zip(writing, added, strict=True):
                    assigned[number] = campaign
        return assigned

    async def delete_unseen(self, scope: Scope, before: date) -> int:
        deleted = 0
        while True:
            async with self._database.connection() as connection:
                batch = cast("int", await connection.fetchval(_DELETE, before, scope.uids(), DELETE_BATCH))
            deleted += batch
            if batch < DELETE_BATCH:
                return deleted


async def _add(connection: Connection, messages: Sequence[tuple[UUID, Similarity]], day: date) -> list[CampaignIds]:
    """Assign messages one after the other, and store those that later ones are compared with."""
    campaigns: list[CampaignIds] = []
    new: list[_New] = []
    async with connection.transaction():
        await connection.execute(_BEGIN)
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        known = await _read(connection, messages, day)
        known.shared = await _read_shared(connection, messages)
        for tenant, similarity in messages:
            found = known.match(tenant, similarity)
            campaign = known.campaign(found, similarity)
            campaigns.append(campaign)
            if keys := keys_to_store(similarity, found):
                each = _New(tenant, Reference(campaign, similarity.sketch), keys)
                known.add(each)
                new.append(each)
        if new:
            await connection.execute(_ADD, *_columns(new), day)
    return campaigns


def _columns(new: Sequence[_New]) -> tuple[object, ...]:
    return (
        [each.tenant for each in new],
        [each.reference.campaign.own for each in new],
        [each.reference.campaign.shared for each in new],
        [each.reference.sketch for each in new],
        [f"{{{','.join(map(str, each.keys))}}}" for each in new],
    )


async def _read(connection: Connection, messages: Sequence[tuple[UUID, Similarity]], day: date) -> _Found:
    """Return the references that the keys of these messages lead to, and note that they were seen on this day."""
    wanted = sorted({(tenant, key.value) for tenant, each in messages for key in each.keys})
    rows = await connection.fetch(_OF_TENANT, [tenant for tenant, _ in wanted], [key for _, key in wanted])
    if stale := {read(row, "reference", int) for row in rows if read(row, "last_seen", date) < day}:
        await connection.execute(_SEEN, sorted(stale), day)
    return _Found({(read(row, "tenant", UUID), read(row, "key", int)): _reference(row) for row in rows}, {})


async def _read_shared(connection: Connection, messages: Sequence[tuple[UUID, Similarity]]) -> dict[int, Reference]:
    wanted = sorted({key.value for _, each in messages for key in each.keys})
    rows = await connection.fetch(_OF_ANY_TENANT, wanted)
    return {read(row, "key", int): _reference(row) for row in rows}


def _reference(row: Row) -> Reference:
    campaign = CampaignIds(read(row, "own", UUID), read(row, "shared", UUID))
    return Reference(campaign, read(row, "sketch", bytes))
