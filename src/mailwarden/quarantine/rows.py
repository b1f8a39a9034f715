"""Held messages as rows, and a scope as the statements of this room take it."""

from collections.abc import Sequence
from datetime import datetime
from typing import cast
from uuid import UUID

import msgspec
from msgspec import Struct

from mailwarden.database.pool import Connection, Row
from mailwarden.errors import TenantForbidden
from mailwarden.model.actor import Actor
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import HeldMessage, HeldRecipient

# The first value of every statement is the scope: NULL is every tenant, and no tenant is an empty array.
MINE = "($1::uuid[] IS NULL OR quarantine.tenant = ANY ($1))"
MESSAGE = f"""
SELECT uid, tenant, ggrid, vault, address, size, sender, from_address, from_name, subject, verdict, received, expires,
       missing, whole, (
           SELECT jsonb_agg(jsonb_build_object('address', recipient, 'state', state, 'failure', failure,
                                               'changed_by', changed_by, 'changed_at', changed_at) ORDER BY number)
           FROM quarantine_recipients WHERE message = uid
       ) AS recipients
FROM quarantine WHERE {MINE}
"""  # noqa: S608 -- put together from the constant above
_DEED = "SELECT record_deed($1, $2, $3, $4, $5, $6, $7)"
_LOCK = "SELECT pg_advisory_xact_lock($1, $2)"
# A server may be set to say yes before its disk has it. One that waits for more than its disk is left alone.
_DURABLY = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
_BODIES = 0x6D77_7162  # the class of the locks of bodies

_recipients = msgspec.json.Decoder(tuple[HeldRecipient, ...])


class Deed(Struct, frozen=True):
    """What the audit is told."""

    action: str
    message: UUID
    subject: str
    tenant: UUID
    details: dict[str, object]


def uids_of(scope: Scope) -> Sequence[UUID] | None:
    return None if scope.tenants is None else sorted(scope.tenants)


def require(scope: Scope, tenant: UUID) -> None:
    if not scope.allows(tenant):
        raise TenantForbidden("This tenant is not yours.")


async def lock_body(connection: Connection, address: bytes) -> None:
    """Hold the body until the transaction ends: nobody removes it meanwhile, and nobody relies on it."""
    await connection.fetchval(_LOCK, _BODIES, int.from_bytes(address[:4], "big", signed=True))


async def commit_durably(connection: Connection) -> None:
    """Have this transaction's commit wait for the server's disk, whatever the server is set to."""
    await connection.fetchval(_DURABLY)


async def record(connection: Connection, actor: Actor, deed: Deed) -> None:
    """Write a deed inside the transaction that does it."""
    details = msgspec.json.encode({"uid": str(deed.message), **deed.details}).decode()
    given = (actor.name, deed.tenant, f"quarantine.{deed.action}", deed.subject[:200])
    await connection.execute(_DEED, *given, actor.address, actor.request_id, details)


def message_of(row: Row) -> HeldMessage:
    return HeldMessage(
        uid=cast("UUID", row["uid"]),
        tenant=cast("UUID", row["tenant"]),
        ggrid=cast("UUID", row["ggrid"]),
        vault=cast("UUID", row["vault"]),
        address=cast("bytes | None", row["address"]),
        size=cast("int", row["size"]),
        sender=str(row["sender"]),
        from_address=str(row["from_address"]),
        from_name=str(row["from_name"]),
        subject=str(row["subject"]),
        verdict=Verdict(str(row["verdict"])),
        received=cast("datetime", row["received"]),
        expires=cast("datetime", row["expires"]),
        missing=bool(row["missing"]),
        recipients=_recipients.decode(str(row["recipients"] or "[]")),
        whole=bool(row["whole"]),
    )


def fold(address: str) -> str:
    """Return an address as it is looked for."""
    return plain(address).strip().lower()


def plain(text: str) -> str:
    """Return a text as PostgreSQL can keep it."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
