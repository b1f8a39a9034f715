"""The audit: who did what, when and from where, written in the same transaction as what it records."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.access.tenants import uids_of
from mailwarden.database.pool import Connection, Database
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope

MAX_DEEDS = 1_000

_RECORD = "SELECT record_deed($1, $2, $3, $4, $5, $6, $7)"
_NEWEST = """
SELECT number, moment, actor, tenant, action, subject, host(source_address) AS address, request_id, details
FROM audit WHERE $1::uuid[] IS NULL OR tenant = ANY ($1)
ORDER BY number DESC LIMIT $2
"""


class Deed(Struct, frozen=True):
    """One line of the audit; without a tenant it concerns the deployment."""

    number: int
    moment: datetime
    actor: Actor
    tenant: UUID | None
    action: str
    subject: str
    details: Mapping[str, object]


async def record_deed(
    connection: Connection,
    actor: Actor,
    action: str,
    subject: str,
    details: Mapping[str, object],
    *,
    tenant: UUID | None = None,
) -> None:
    """Write a deed on the connection, inside the transaction that does it."""
    text = msgspec.json.encode(details).decode()
    await connection.execute(_RECORD, actor.name, tenant, action, subject, actor.address, actor.request_id, text)


class AuditStore:
    """Reads the audit; nothing but record_deed writes it, and nothing changes it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(self, scope: Scope, limit: int = 100) -> Sequence[Deed]:
        """Return the newest deeds of the scope, newest first; one tenant's scope sees that tenant's alone."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_NEWEST, uids_of(scope), min(limit, MAX_DEEDS))
        return [
            Deed(
                cast("int", row["number"]),
                cast("datetime", row["moment"]),
                Actor(str(row["actor"]), cast("str | None", row["address"]), str(row["request_id"])),
                cast("UUID | None", row["tenant"]),
                str(row["action"]),
                str(row["subject"]),
                msgspec.json.decode(str(row["details"]), type=dict[str, object]),
            )
            for row in rows
        ]
