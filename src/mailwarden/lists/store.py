"""Lists and their entries in PostgreSQL: the one place that reads and writes them.

Each change is one statement over arrays that are sorted by entry, so that two calls never wait for each other in a
circle; the list's counter is changed last, together with the commit, so that calls on one list hardly wait at all.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast
from uuid import UUID

import asyncpg
from msgspec import UNSET

from mailwarden.database.pool import Connection, Database
from mailwarden.database.scoped import EVERYTHING, ScopedTransaction, scoped
from mailwarden.errors import GlobalScopeForbidden, ListFull, TenantNotFound
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.kinds import Entry
from mailwarden.lists.lines import copy_lines
from mailwarden.lists.scope import ListScope
from mailwarden.lists.statements import DELETE, SET_COMMENTS, SET_EXPIRIES, UPSERTS, Changes, Stamp, joined
from mailwarden.lists.turns import take_turn
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope

STREAM_SECONDS = 900.0
MAX_KNOWN = 200_000
CHANGE_WAIT = 10.0  # for a connection: many callers at once are no outage
_FULL = "MW001"
_GONE = "MW002"

Sink = Callable[[bytes], Awaitable[None]]


_EXPIRED = """
SELECT tenant, name, array_agg(entry ORDER BY entry) AS entries
FROM (SELECT list_id, entry FROM list_entries WHERE expires < $1 ORDER BY expires LIMIT $2) AS old
JOIN lists USING (list_id) GROUP BY tenant, name
"""
_FIND_GLOBAL = "SELECT list_id, entries FROM lists WHERE tenant IS NULL AND name = $1 AND $2::uuid IS NULL"
_FIND_TENANT = "SELECT list_id, entries FROM lists WHERE tenant = $2 AND name = $1"
_CREATE = "INSERT INTO lists (name, tenant) VALUES ($1, $2) ON CONFLICT DO NOTHING"


class Reading:
    """All entries of one list as they were at one moment."""

    def __init__(self, connection: Connection, definition: ListDefinition, list_id: int, count: int) -> None:
        self.count = count
        self._connection = connection
        self._definition = definition
        self._list_id = list_id

    async def copy_to(self, sink: Sink) -> None:
        """Give all lines to the sink, in order; the database waits while the sink does."""
        if self.count:
            await copy_lines(self._connection, self._definition.kind_name, self._list_id, sink)


class ListStore:
    """All SQL about lists. `streams` are connections of their own, since a slow reader holds one for minutes."""

    def __init__(self, database: Database, streams: Database, *, stream_seconds: float = STREAM_SECONDS) -> None:
        self._database = database
        self._streams = streams
        self._stream_seconds = stream_seconds
        self._known: dict[tuple[UUID | None, str], int] = {}

    async def add(self, scope: ListScope, definition: ListDefinition, changes: Changes, stamp: Stamp) -> None:
        """Add or update these entries: all of them, or none where the list is full."""
        try:
            await self._add(scope, definition, changes, stamp)
        except (asyncpg.InsufficientPrivilegeError, _ListGone):
            # The list that was known is gone with its tenant: look again, and say so if the tenant is gone as well.
            self._known.pop((scope.tenant, definition.name), None)
            await self._add(scope, definition, changes, stamp)

    async def delete(
        self,
        scope: ListScope,
        definition: ListDefinition,
        entries: Sequence[Entry],
        stamp: Stamp,
        *,
        expired_before: str | None = None,
    ) -> int:
        """Delete those of these entries, sorted and each there once, that exist; return how many did."""
        list_id = await self._known_id(scope, definition, make=False)
        if not list_id:
            return 0
        deed = _deed(scope, definition, stamp.actor)
        action = "delete" if expired_before is None else "expire"

        async def change(transaction: ScopedTransaction) -> int:
            told = stamp.moment, stamp.author, action
            row = await connection.fetchrow(DELETE, list_id, joined(entries), *deed, expired_before, *told)
            deleted = 0 if row is None else cast("int", row["deleted"])
            if deleted:
                transaction.last = f"SELECT count_entries({list_id}, {-deleted}, 0)"
            return deleted

        async with self._database.connection(CHANGE_WAIT) as connection:
            return await take_turn(connection, scope.setting, list_id, change)

    async def expired(self, scope: Scope, before: str, limit: int) -> Sequence[tuple[ListScope, str, Sequence[Entry]]]:
        """Return at most so many entries that expired before that time, by scope and list; the deployment asks."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may look into every list.")
        async with self._database.connection() as connection, scoped(connection, EVERYTHING):
            rows = await connection.fetch(_EXPIRED, before, limit)
        return [
            (ListScope(cast("UUID | None", row["tenant"])), str(row["name"]), cast("Sequence[Entry]", row["entries"]))
            for row in rows
        ]

    @asynccontextmanager
    async def reading(self, scope: ListScope, definition: ListDefinition) -> AsyncIterator[Reading]:
        """Open one snapshot of a list for at most fifteen minutes; a list that was never used is empty."""
        async with (
            asyncio.timeout(self._stream_seconds),
            self._streams.connection() as connection,
            scoped(connection, scope.setting, snapshot=True),
        ):
            list_id, count = await _find(connection, scope, definition) or (0, 0)
            yield Reading(connection, definition, list_id, count)

    async def _add(self, scope: ListScope, definition: ListDefinition, changes: Changes, stamp: Stamp) -> None:
        list_id = await self._known_id(scope, definition)
        deed = _deed(scope, definition, stamp.actor)
        room = definition.max_size(in_tenant=scope.tenant is not None)

        async def change(transaction: ScopedTransaction) -> None:
            if added := await _write(connection, list_id, changes, stamp, deed):
                transaction.last = f"SELECT count_entries({list_id}, {added}, {room})"

        async with self._database.connection(CHANGE_WAIT) as connection:
            try:
                await take_turn(connection, scope.setting, list_id, change)
            except asyncpg.PostgresError as error:
                raise _meaning_of(error, definition) from None

    async def _known_id(self, scope: ListScope, definition: ListDefinition, *, make: bool = True) -> int:
        """Return the list's number, which never changes; make a list that was never used, or return 0."""
        key = (scope.tenant, definition.name)
        known = self._known.get(key)
        if known is None:
            async with self._database.connection(CHANGE_WAIT) as connection, scoped(connection, scope.setting):
                found = await _find(connection, scope, definition)
                if found is None:
                    if not make:
                        return 0
                    found = await _create(connection, scope, definition)
                known = found[0]
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = known
        return known


class _ListGone(Exception):
    """The list's row is there no more."""


async def _write(connection: Connection, list_id: int, changes: Changes, stamp: Stamp, deed: Sequence[object]) -> int:
    """Write the changes and return how many of the entries are new."""
    entries, total = joined(changes.entries), len(changes.entries)
    unset = changes.comments.count(UNSET), changes.expiries.count(UNSET)
    told = stamp.action or "add", joined(["" if each is None else each for each in changes.expiries])
    row = await connection.fetchrow(
        UPSERTS[not unset[0], not unset[1]], list_id, entries, joined(changes.comments), joined(changes.expiries),
        stamp.moment, stamp.author, *deed, *told,
    )  # fmt: skip
    for statement, values, missing in (
        (SET_COMMENTS, changes.comments, unset[0]),
        (SET_EXPIRIES, changes.expiries, unset[1]),
    ):
        if 0 < missing < total:
            given = [(entry, value) for entry, value in zip(changes.entries, values, strict=True) if value is not UNSET]
            await connection.execute(statement, list_id, joined([e for e, _ in given]), joined([v for _, v in given]))
    assert row is not None
    return cast("int", row["added"])


async def _find(connection: Connection, scope: ListScope, definition: ListDefinition) -> tuple[int, int] | None:
    statement = _FIND_GLOBAL if scope.tenant is None else _FIND_TENANT
    row = await connection.fetchrow(statement, definition.name, scope.tenant)
    return None if row is None else (cast("int", row["list_id"]), cast("int", row["entries"]))


async def _create(connection: Connection, scope: ListScope, definition: ListDefinition) -> tuple[int, int]:
    try:
        await connection.execute(_CREATE, definition.name, scope.tenant)
    except asyncpg.ForeignKeyViolationError:
        raise TenantNotFound("There is no such tenant.") from None
    found = await _find(connection, scope, definition)
    assert found is not None
    return found


def _deed(scope: ListScope, definition: ListDefinition, actor: Actor) -> Sequence[object]:
    """Return what the audit is told besides the counts."""
    return actor.name, scope.tenant, definition.name, actor.address, actor.request_id


def _meaning_of(error: asyncpg.PostgresError, definition: ListDefinition) -> Exception:
    """Return what an error of our own functions means; any other error is itself."""
    if error.sqlstate == _FULL:
        return ListFull(f"The entries would exceed maxSize of {definition.name}.")
    if error.sqlstate == _GONE:
        return _ListGone()
    return cast("Exception", error)
