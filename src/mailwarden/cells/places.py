"""The places of tenants in the database of one cell, as a move reads and writes them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.errors import CommandError
from mailwarden.model.tenant import TenantState

LOCKS = 1_836_540_773  # the class of the locks that writers of a tenant share: see `require_tenant_here`
MOVES = 1_836_540_774  # one move of a tenant at a time
_PLACE = "SELECT state, version, cell FROM tenant_places WHERE tenant = $1"
_SET = """
INSERT INTO tenant_places AS known (tenant, state, version, cell, until)
VALUES ($1, $2, $3, $4, now() + make_interval(secs => $5))
ON CONFLICT (tenant) DO UPDATE SET state = EXCLUDED.state, version = EXCLUDED.version, cell = EXCLUDED.cell,
    until = EXCLUDED.until, changed = now()
WHERE known.state = $6 AND known.version = $7
RETURNING true
"""
_NEXT = "SELECT pg_current_xact_id()::text"
_OLDEST = "SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8"
_EXCLUDE = "SELECT pg_advisory_xact_lock($1, hashtext($2))"
_TRY_EXCLUDE = "SELECT pg_try_advisory_xact_lock($1, hashtext($2))"
_RELEASING = """
SELECT count(*) FROM quarantine_recipients JOIN quarantine ON uid = message
WHERE tenant = $1 AND state = 'releasing' AND claimed_until > now()
"""


_LOCK = "SELECT state, version, cell FROM tenant_places WHERE tenant = $1 FOR UPDATE"


class LocalPlace(Struct, frozen=True):
    """The place of a tenant in the database of one cell; `stored` is False if that cell has no row of it."""

    state: TenantState = TenantState.HERE
    version: int = 0
    cell: str = ""
    stored: bool = False


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[asyncpg.Connection]:
    try:
        connection = await asyncpg.connect(
            url, timeout=10.0, statement_cache_size=0, server_settings={"application_name": "mailwarden move"}
        )
    except (OSError, asyncpg.PostgresError) as error:
        raise CommandError(f"A database does not answer: {error}. Run the same command again later.") from None
    try:
        yield connection
    finally:
        with suppress(TimeoutError):  # a firewall may have dropped the connection without a word
            await connection.close(timeout=5.0)


async def read_place(connection: asyncpg.Connection, tenant: UUID) -> LocalPlace:
    row = await connection.fetchrow(_PLACE, tenant)
    return LocalPlace() if row is None else _place(row)


async def lock_place(connection: asyncpg.Connection, tenant: UUID, wanted: LocalPlace) -> None:
    """Keep a place as it is until the transaction ends; raise if it is another one: rows are deleted only under it."""
    row = await connection.fetchrow(_LOCK, tenant)
    found = LocalPlace() if row is None else _place(row)
    if (found.state, found.version, found.cell) != (wanted.state, wanted.version, wanted.cell):
        raise CommandError(
            f"A cell has version {found.version} of the tenant ({found.state}), and not version {wanted.version} "
            f"({wanted.state}) any more. Nothing was removed."
        )


def _place(row: asyncpg.Record) -> LocalPlace:
    return LocalPlace(TenantState(str(row["state"])), cast("int", row["version"]), str(row["cell"]), stored=True)


async def set_place(
    connection: asyncpg.Connection, tenant: UUID, before: LocalPlace, after: LocalPlace, *, seconds: float = 0.0
) -> bool:
    """Change a place that is as expected; return whether it was."""
    given = (tenant, after.state, after.version, after.cell, seconds, before.state, before.version)
    return bool(await connection.fetchval(_SET, *given))


async def next_transaction(connection: asyncpg.Connection) -> str:
    """Return the number of a new transaction: all that wrote without having seen what is committed now are older."""
    return str(await connection.fetchval(_NEXT))


async def are_older_finished(connection: asyncpg.Connection, transaction: str) -> bool:
    """Return whether every transaction that began to write before this one has ended."""
    return bool(await connection.fetchval(_OLDEST, transaction))


async def exclude_writers(connection: asyncpg.Connection, tenant: UUID) -> None:
    """Wait until no transaction has written for the tenant, and let none do so until this one ends."""
    await connection.fetchval(_EXCLUDE, LOCKS, str(tenant))


async def exclude_moves(connection: asyncpg.Connection, tenant: UUID) -> bool:
    """Return whether no other move of this tenant runs; none begins until this transaction ends."""
    return bool(await connection.fetchval(_TRY_EXCLUDE, MOVES, str(tenant)))


async def count_releases(connection: asyncpg.Connection, tenant: UUID) -> int:
    """Return how many recipients a guard is delivering held messages to."""
    return cast("int", await connection.fetchval(_RELEASING, tenant))
