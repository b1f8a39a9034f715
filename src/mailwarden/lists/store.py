"""Lists and their entries in PostgreSQL: the statements that write, the transaction around each change, and the stream
of all entries of a list.

Each change is one statement over arrays sorted by entry, so that two calls never deadlock. The audit event and the row
of list_changes are part of the same statement. The list's counter is changed last, together with the commit, so that
calls on one list hardly wait for each other.
Security: the lines of listEntries are composed from stored text. Entries of PLAIN_KINDS need no escaping; to_json
writes all others.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TypeVar, cast
from uuid import UUID

import asyncpg
from msgspec import Struct

from mailwarden.database.clock import read_now
from mailwarden.database.pool import (
    EVERYTHING,
    GLOBAL,
    Connection,
    Database,
    ScopedTransaction,
    confirm_earlier,
    copy_lines,
    is_lost,
    scoped,
)
from mailwarden.errors import GlobalScopeForbidden, ListFull, StorageUnavailable, TenantNotFound
from mailwarden.events.catalogue import MAX_LISTED, ListChanged, first
from mailwarden.events.outbox import new_event, record
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.kinds import Entry
from mailwarden.model.scope import Actor, Scope

SHARED_TIMEOUT_MS = 1_000
_LOCKS = 1_818_850_164  # the class of our advisory locks
# PostgreSQL keeps a plan for a connection while the list grows. A plan that was made for a short list must not read the
# whole list later: these settings, and OFFSET 0 in the statements, leave the planner nothing but the index.
BY_INDEX = "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
_EXCLUSIVE = f"SELECT pg_advisory_xact_lock({_LOCKS}, {{list_id}}); {BY_INDEX}"
_SHARED = (
    f"SELECT pg_advisory_xact_lock_shared({_LOCKS}, {{list_id}}); SET LOCAL statement_timeout = {{timeout}}; {BY_INDEX}"
)

# A comment that is NULL keeps its value, and so does an expiry; an empty expiry means none. `previous` takes the old
# values out of the update, for only the new row can be returned. It is NULL if both are as they were.
ADD = """
WITH given AS NOT MATERIALIZED (
    SELECT * FROM unnest($2::text[], $3::text[], $4::text[]) AS given (entry, comment, expires)
), written AS (
    INSERT INTO list_entries AS kept (list_id, entry, comment, created, created_by, updated, updated_by, expires)
    SELECT $1, entry, coalesce(comment, '""'), $5, $6, $5, $6, nullif(expires, '') FROM given
    ON CONFLICT (list_id, entry) DO UPDATE SET
        comment = CASE WHEN kept.entry IN (SELECT entry FROM given WHERE comment IS NULL)
                       THEN kept.comment ELSE EXCLUDED.comment END,
        expires = CASE WHEN kept.entry IN (SELECT entry FROM given WHERE expires IS NULL)
                       THEN kept.expires ELSE EXCLUDED.expires END,
        updated = EXCLUDED.updated, updated_by = EXCLUDED.updated_by,
        previous = CASE WHEN (kept.comment, kept.expires) IS DISTINCT FROM (EXCLUDED.comment, EXCLUDED.expires)
                        THEN jsonb_build_object('comment', kept.comment, 'expires', kept.expires) END
    RETURNING xmax = 0 AS added, entry, previous
), counted AS MATERIALIZED (
    SELECT count(*) AS touched, count(*) FILTER (WHERE added) AS added,
           jsonb_object_agg(entry, previous) FILTER (WHERE NOT added) AS replaced
    FROM written
), logged AS (
    INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, added,
                              comments, expiries, replaced)
    SELECT $1, $2, $12, $5, $6, $10, $11, touched, added, $3, $4, replaced FROM counted
)
SELECT added, record_deed($7, $8, 'lists.' || $12, $9, $10, $11,
                          jsonb_build_object('entries', touched, 'added', added))
FROM counted
"""
# The rows of the entries $2, locked in their order.
LOCKED = """
unnest($2::text[]) AS given (entry) CROSS JOIN LATERAL (
    SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry FOR UPDATE OFFSET 0
) AS kept
"""
# With $3 only entries that expired before it are deleted: they may have been extended before their row was locked.
_DELETE = f"""
WITH locked AS MATERIALIZED (
    SELECT kept.list_id, kept.entry FROM {LOCKED} WHERE $3::text IS NULL OR expires < $3
), gone AS (
    DELETE FROM list_entries AS kept USING locked
    WHERE kept.list_id = locked.list_id AND kept.entry = locked.entry
    RETURNING kept.*
), counted AS MATERIALIZED (
    SELECT array_agg(entry ORDER BY entry) AS entries, count(*) AS deleted,
           jsonb_object_agg(entry, jsonb_build_object(
               'comment', comment, 'expires', expires, 'created', created, 'created_by', created_by,
               'hits', hits, 'last_hit', last_hit)) AS replaced
    FROM gone
), logged AS (
    INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, deleted, replaced)
    SELECT $1, entries, $11, $4, $5, $9, $10, deleted, deleted, replaced FROM counted WHERE deleted > 0
)
SELECT deleted, entries[1:{MAX_LISTED}] AS some,
       record_deed($6, $7, 'lists.' || $11, $8, $9, $10, jsonb_build_object('deleted', deleted))
FROM counted WHERE deleted > 0
"""  # noqa: S608

# Entries of these kinds contain no quote, backslash or control character: to_json would take a sixth of their stream.
PLAIN_KINDS = frozenset({"sender", "ip", "url", "hash", "sha256", "attachment", "recipient", "domain-or-ip", "domain"})
# PostgreSQL writes the lines of listEntries: encoding rows in Python takes more than twice the time, and the time of
# the event loop. Comments and names are stored as JSON strings. Nearly all entries of a large list never matched and
# never expire; their lines end in one constant.
_LINES = """
SELECT '{{"entry":' || {entry} || ',"comment":' || comment
    || ',"created":"' || created || '","createdBy":' || created_by
    || ',"updated":"' || updated || '","updatedBy":' || updated_by
    || CASE WHEN hits = 0 AND expires IS NULL AND last_hit IS NULL THEN ',"expires":null,"hits":0,"lastHit":null}}'
            ELSE ',"expires":' || coalesce('"' || expires || '"', 'null') || ',"hits":' || hits
                 || ',"lastHit":' || coalesce('"' || last_hit || '"', 'null') || '}}' END
FROM list_entries WHERE list_id = {list_id} ORDER BY entry
"""

STREAM_SECONDS = 900.0
GRACE = timedelta(days=1)  # an expired entry stays so long, so that it can be extended
MAX_KNOWN = 200_000
CHANGE_WAIT = 10.0  # for a connection: many callers at once are no outage
SETTLE_SECONDS = 8.0  # to learn whether a change was committed whose connection was lost
SETTLE_PAUSE = 0.25
_FULL = "MW001"  # see count_entries
_GONE = "MW002"

T = TypeVar("T")
Sink = Callable[[bytes], Awaitable[None]]

_EXPIRED = """
SELECT tenant, name, array_agg(entry ORDER BY entry) AS entries
FROM (SELECT list_id, entry FROM list_entries WHERE expires < $1 ORDER BY expires LIMIT $2) AS old
JOIN lists USING (list_id) GROUP BY tenant, name
"""
_FIND_GLOBAL = "SELECT list_id, entries FROM lists WHERE tenant IS NULL AND name = $1 AND $2::uuid IS NULL"
_FIND_TENANT = "SELECT list_id, entries FROM lists WHERE tenant = $2 AND name = $1"
# Among the newest events, by the index of their numbers: the event is some seconds old.
_IS_RECORDED = """
SELECT EXISTS (SELECT FROM events WHERE number > (SELECT last_value - 200000 FROM event_numbers) AND id = $1)
"""
_CREATE = "INSERT INTO lists (name, tenant) VALUES ($1, $2) ON CONFLICT DO NOTHING"


class ListScope(Struct, frozen=True):
    """The scope of one list call: one tenant, or with `tenant` None the global lists, which every tenant sees."""

    tenant: UUID | None = None

    @property
    def setting(self) -> str:
        """Return the scope as the setting of a transaction."""
        return GLOBAL if self.tenant is None else str(self.tenant)

    def own(self, statement: str) -> str:
        """Return the statement with OWN replaced by the condition on $1, in a form that uses the index of lists."""
        return statement.replace("OWN", "tenant IS NULL AND $1::uuid IS NULL" if self.tenant is None else "tenant = $1")


class Changes(Struct, frozen=True):
    """Entries to add or update, sorted and each there once, with a comment and an expiry for each.

    Comments are JSON strings. Expiries are text, empty for none. None keeps the value, or the values of all entries.
    """

    entries: Sequence[Entry]
    comments: Sequence[str | None]
    expiries: Sequence[str | None] | None


class Stamp(Struct, frozen=True):
    """When a change was made, as text, by whom, and what kind of change it was."""

    moment: str
    author: str  # a JSON string
    actor: Actor
    action: str = ""  # "" is what the statement does by itself: add, delete, expire


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
            await copy_lines(self._connection, lines_query(self._definition.kind_name, self._list_id), sink)


def lines_query(kind_name: str, list_id: int) -> str:
    """Return the query whose one column is the lines of a list in order."""
    entry = "'\"' || entry || '\"'" if kind_name in PLAIN_KINDS else "to_json(entry)"
    return _LINES.format(entry=entry, list_id=list_id)


async def commit_change(
    database: Database,
    scope: ListScope,
    definition: ListDefinition,
    list_id: int,
    write: Callable[[Connection], Awaitable[tuple[T, ListChanged | None]]],
) -> T:
    """Run a change of a list in one transaction. `write` returns its result, and its event unless it changed nothing.

    PostgreSQL gives a free row lock to any waiting transaction, so a large change among many small ones could starve.
    Changes therefore share an advisory lock, which is granted in order. A change that is not done within a second
    starts again with this lock to itself. If the connection is lost, it runs once more unless it was committed.
    """
    shared = _SHARED.format(list_id=list_id, timeout=SHARED_TIMEOUT_MS)
    exclusive = _EXCLUSIVE.format(list_id=list_id)
    room = definition.max_size(in_tenant=scope.tenant is not None)
    transaction: ScopedTransaction | None = None
    event: UUID | None = None
    for is_repeated in (False, True):
        try:
            async with database.connection(CHANGE_WAIT) as connection:
                for lock in (shared, exclusive):
                    try:
                        async with scoped(connection, scope.setting, first=lock) as transaction:
                            result, changed = await write(connection)
                            event = await _record(connection, scope, changed)
                            if changed and (growth := changed.added - changed.deleted):
                                transaction.last = f"SELECT count_entries({list_id}, {growth}, {room})"
                    except (asyncpg.QueryCanceledError, asyncpg.TransactionRollbackError):
                        if lock == exclusive:
                            raise
                    else:
                        return result
        except StorageUnavailable as error:
            if is_repeated or not is_lost(error.__cause__):
                raise
            if transaction and transaction.in_doubt and event and await _is_committed(database, scope, list_id, event):
                return result
        except asyncpg.PostgresError as error:
            if error.sqlstate == _FULL:
                raise ListFull(f"The entries would exceed maxSize of {definition.name}.") from None
            raise
    raise AssertionError("the second attempt returns or raises")


async def _record(connection: Connection, scope: ListScope, changed: ListChanged | None) -> UUID | None:
    """Write the event of a change, while the transaction holds the locks of its entries; return its id."""
    if changed is None:
        await confirm_earlier(connection)
        return None
    event = new_event(changed, scope.tenant, f"{scope.tenant or GLOBAL}/{changed.list}")
    await record(connection, [event])
    return event.id


async def _is_committed(database: Database, scope: ListScope, list_id: int, event: UUID) -> bool:
    """Return whether the transaction that recorded this event was committed; wait a while for a server.

    The lock waits for that transaction, which may still run.
    """
    lock = _EXCLUSIVE.format(list_id=list_id)
    end = time.monotonic() + SETTLE_SECONDS
    while True:
        try:
            async with database.connection() as connection, scoped(connection, scope.setting, first=lock):
                is_recorded = bool(await connection.fetchval(_IS_RECORDED, event))
                await confirm_earlier(connection)
        except StorageUnavailable:
            if time.monotonic() > end:
                raise
        else:
            return is_recorded
        await asyncio.sleep(SETTLE_PAUSE)


class ListStore:
    """All SQL about lists. `streams` are connections of their own, since a slow reader holds one for minutes."""

    def __init__(self, database: Database, streams: Database, *, stream_seconds: float = STREAM_SECONDS) -> None:
        self.database = database
        self._streams = streams
        self._stream_seconds = stream_seconds
        self._known: dict[tuple[UUID | None, str], int] = {}

    async def add(self, scope: ListScope, definition: ListDefinition, changes: Changes, stamp: Stamp) -> None:
        """Add or update these entries: all of them, or none where the list is full.

        After StorageUnavailable they may be there: the same call again has the same result.
        """
        try:
            await self._add(scope, definition, changes, stamp)
        except asyncpg.PostgresError as error:
            if not isinstance(error, asyncpg.InsufficientPrivilegeError) and error.sqlstate != _GONE:
                raise
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
        action = "delete" if expired_before is None else "expire"

        async def write(connection: Connection) -> tuple[int, ListChanged | None]:
            row = await connection.fetchrow(
                _DELETE, list_id, entries, expired_before, stamp.moment, stamp.author,
                *_audit_values(scope, definition, stamp.actor), action,
            )  # fmt: skip
            if row is None:
                return 0, None
            deleted, some = cast("int", row["deleted"]), cast("Sequence[str]", row["some"])
            return deleted, ListChanged(definition.name, action, 0, 0, deleted, first(some), by=stamp.actor.name)

        return await commit_change(self.database, scope, definition, list_id, write)

    async def now(self, scope: Scope) -> datetime:
        """Return PostgreSQL's time for a job that deletes; raise CommandError if this host's clock differs."""
        async with self.database.connection() as connection:
            return await read_now(connection)

    async def expired(self, scope: Scope, before: str, limit: int) -> Sequence[tuple[ListScope, str, Sequence[Entry]]]:
        """Return at most so many entries that expired before that time, by scope and list; the deployment asks."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may look into every list.")
        async with self.database.connection() as connection, scoped(connection, EVERYTHING):
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
        action = stamp.action or "add"

        async def write(connection: Connection) -> tuple[None, ListChanged]:
            row = await connection.fetchrow(
                ADD, list_id, changes.entries, changes.comments, changes.expiries, stamp.moment, stamp.author,
                *_audit_values(scope, definition, stamp.actor), action,
            )  # fmt: skip
            assert row is not None
            added, some = cast("int", row["added"]), first(changes.entries)
            updated = len(changes.entries) - added
            return None, ListChanged(definition.name, action, added, updated, 0, some, by=stamp.actor.name)

        await commit_change(self.database, scope, definition, list_id, write)

    async def _known_id(self, scope: ListScope, definition: ListDefinition, *, make: bool = True) -> int:
        """Return the list's number, which never changes; make a list that was never used, or return 0."""
        key = (scope.tenant, definition.name)
        list_id = self._known.get(key)
        if list_id is None:
            async with self.database.connection(CHANGE_WAIT) as connection, scoped(connection, scope.setting):
                id_and_size = await _find(connection, scope, definition)
                if id_and_size is None:
                    if not make:
                        return 0
                    id_and_size = await _create(connection, scope, definition)
                list_id = id_and_size[0]
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[key] = list_id
        return list_id


async def _find(connection: Connection, scope: ListScope, definition: ListDefinition) -> tuple[int, int] | None:
    statement = _FIND_GLOBAL if scope.tenant is None else _FIND_TENANT
    row = await connection.fetchrow(statement, definition.name, scope.tenant)
    return None if row is None else (cast("int", row["list_id"]), cast("int", row["entries"]))


async def _create(connection: Connection, scope: ListScope, definition: ListDefinition) -> tuple[int, int]:
    try:
        await connection.execute(_CREATE, definition.name, scope.tenant)
    except asyncpg.ForeignKeyViolationError:
        raise TenantNotFound("There is no such tenant.") from None
    id_and_size = await _find(connection, scope, definition)
    assert id_and_size is not None
    return id_and_size


def _audit_values(scope: ListScope, definition: ListDefinition, actor: Actor) -> Sequence[object]:
    """Return the fields of the audit event besides the counts."""
    return actor.name, scope.tenant, definition.name, actor.address, actor.request_id
