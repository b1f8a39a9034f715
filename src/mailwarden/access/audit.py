"""The audit log: actor, action, time and source address, written in the transaction of the change."""

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.model.scope import Actor, Scope

MAX_EVENTS = 1_000

_RECORD = "SELECT record_deed($1, $2, $3, $4, $5, $6, $7)"
_FIND = """
SELECT number, moment, actor, tenant, action, subject, host(source_address) AS address, request_id, details
FROM audit
WHERE ($1::uuid[] IS NULL OR tenant = ANY ($1))
  AND ($2::text IS NULL OR actor = $2) AND ($3::text IS NULL OR action = $3) AND ($4::text IS NULL OR subject = $4)
  AND ($5::timestamptz IS NULL OR moment >= $5) AND ($6::timestamptz IS NULL OR moment < $6)
  AND ($7::bigint IS NULL OR number < $7)
ORDER BY number DESC LIMIT $8
"""


class AuditEvent(Struct, frozen=True):
    """One audit event; without a tenant it concerns the deployment."""

    number: int
    moment: datetime
    actor: Actor
    tenant: UUID | None
    action: str
    subject: str
    details: Mapping[str, object]


class AuditFilter(Struct, frozen=True):
    """A filter of audit events; None matches all. `before` is the number of the previous page's last event."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None


NO_FILTER = AuditFilter()


async def record_event(
    connection: Connection,
    actor: Actor,
    action: str,
    subject: str,
    details: Mapping[str, object],
    *,
    tenant: UUID | None = None,
) -> None:
    """Write an event inside the transaction of the change."""
    text = msgspec.json.encode(details).decode()
    await connection.execute(_RECORD, actor.name, tenant, action, subject, actor.address, actor.request_id, text)


class AuditStore:
    """Reads the audit log and records accesses; record_event alone writes it, and nothing changes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(
        self, scope: Scope, actor: Actor, action: str, subject: str, details: Mapping[str, object]
    ) -> None:
        """Record an access that changes nothing; it concerns the only tenant of the scope, or the deployment."""
        tenant = next(iter(scope.tenants)) if scope.tenants and len(scope.tenants) == 1 else None
        async with self._database.connection() as connection:
            await record_event(connection, actor, action, subject, details, tenant=tenant)

    async def find(self, scope: Scope, filters: AuditFilter = NO_FILTER, limit: int = 100) -> Sequence[AuditEvent]:
        """Return the matching events of the scope, newest first."""
        asked = (filters.actor, filters.action, filters.subject, filters.since, filters.until, filters.before)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_FIND, scope.uids(), *asked, min(limit, MAX_EVENTS))
        return [_event(row) for row in rows]

    async def pages(self, scope: Scope, filters: AuditFilter = NO_FILTER) -> AsyncIterator[Sequence[AuditEvent]]:
        """Yield all matching events, newest first, a thousand at a time; no connection is held in between."""
        while events := await self.find(scope, filters, MAX_EVENTS):
            yield events
            filters = msgspec.structs.replace(filters, before=events[-1].number)


def _event(row: Row) -> AuditEvent:
    return AuditEvent(
        cast("int", row["number"]),
        cast("datetime", row["moment"]),
        Actor(str(row["actor"]), cast("str | None", row["address"]), str(row["request_id"])),
        cast("UUID | None", row["tenant"]),
        str(row["action"]),
        str(row["subject"]),
        msgspec.json.decode(str(row["details"]), type=dict[str, object]),
    )
