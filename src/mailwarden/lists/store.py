"""Lists and their entries in PostgreSQL: the scope and the lock of a list, the statements that write, and the stream of
all entries of a list.

Each change is one statement over arrays sorted by entry, so that two calls never deadlock. The audit event and the row
of list_changes are part of the same statement. The list's counter is changed last, together with the commit, so that
calls on one list hardly wait for each other.
Security: the lines of listEntries are composed from stored text. Entries of PLAIN_KINDS contain no quote, backslash or
control character; to_json writes all others. Comments and names are stored as JSON strings.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TypeVar, cast
from uuid import UUID

import asyncpg
from msgspec import UNSET, Struct, UnsetType

from mailwarden.database import pool
from mailwarden.database.clock import read_now
from mailwarden.database.pool import (
    EVERYTHING,
    GLOBAL,
    Connection,
    Database,
    ScopedTransaction,
    confirm_earlier,
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
# A plan that is made while a list is short is kept while it grows: it must not be one that reads the whole list.
BY_INDEX = "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
_SHARED = "SELECT pg_advisory_xact_lock_shared({locks}, {list_id}); SET LOCAL statement_timeout = {timeout}; {by_index}"
_EXCLUSIVE = "SELECT pg_advisory_xact_lock({locks}, {list_id}); {by_index}"

T = TypeVar("T")

# Arrays travel as one text each: the driver looks at every element of an array, which costs more than the upsert's
# own share of a processor. No entry, no JSON string and no time holds these two characters.
MARK, NULL = "\x1f", "\x1e"
ARRAY = r"string_to_array(${}, E'\x1f', E'\x1e')"
# The rows of given entries, each found by the index. PostgreSQL keeps a plan while a list grows; one that was made for
# a short list would read all of it. OFFSET 0 leaves it no other way, and changes are joined by what was found so.
EACH = """
unnest({given}) AS given (entry) CROSS JOIN LATERAL (
    SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry {locked} OFFSET 0
) AS kept
"""
_DELETED = r"""
string_agg(entry || E'\x1f' || comment || E'\x1f' || coalesce(expires, '') || E'\x1f' || created || E'\x1f'
           || created_by || E'\x1f' || hits || E'\x1f' || coalesce(last_hit, ''), E'\x1e')
"""
# The state before an update. An unchanged entry is recognised only if both fields are given for every entry.
_FOUND = r"list_entries.comment || E'\x1f' || coalesce(list_entries.expires, '')"
_FOUND_OTHER = f"""
CASE WHEN list_entries.comment <> EXCLUDED.comment OR list_entries.expires IS DISTINCT FROM EXCLUDED.expires
     THEN {_FOUND} END
"""
# The rows were locked by the statement above, in order; these touch only those that differ.
SET_COMMENTS = f"""
WITH changed AS MATERIALIZED (
    SELECT kept.list_id, kept.entry, given.comment
    FROM unnest({ARRAY.format(2)}, {ARRAY.format(3)}) AS given (entry, comment) CROSS JOIN LATERAL (
        SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry OFFSET 0
    ) AS kept
    WHERE kept.comment <> given.comment
)
UPDATE list_entries AS kept SET comment = changed.comment
FROM changed WHERE kept.list_id = changed.list_id AND kept.entry = changed.entry
"""  # noqa: S608
SET_EXPIRIES = f"""
WITH changed AS MATERIALIZED (
    SELECT kept.list_id, kept.entry, given.expires
    FROM unnest({ARRAY.format(2)}, {ARRAY.format(3)}) AS given (entry, expires) CROSS JOIN LATERAL (
        SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry OFFSET 0
    ) AS kept
    WHERE kept.expires IS DISTINCT FROM given.expires
)
UPDATE list_entries AS kept SET expires = changed.expires
FROM changed WHERE kept.list_id = changed.list_id AND kept.entry = changed.entry
"""  # noqa: S608
# Where $8 is given, only what expired before it goes: that is asked again once the row is locked.
DELETE = f"""
WITH locked AS MATERIALIZED (
    SELECT kept.list_id, kept.entry FROM {EACH.format(given=ARRAY.format(2), locked="FOR UPDATE")}
    WHERE $8::text IS NULL OR expires < $8
), gone AS (
    DELETE FROM list_entries AS kept USING locked
    WHERE kept.list_id = locked.list_id AND kept.entry = locked.entry
    RETURNING kept.*
), counted AS MATERIALIZED (
    SELECT array_agg(entry) AS entries, count(*) AS deleted, {_DELETED} AS replaced FROM gone
), noted AS (
    INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, deleted, replaced)
    SELECT $1, entries, $11, $9, $10, $6, $7, deleted, deleted, replaced FROM counted WHERE deleted > 0
)
SELECT deleted, entries[1:{MAX_LISTED}] AS some,
       record_deed($3, $4, 'lists.' || $11, $5, $6, $7, jsonb_build_object('deleted', deleted))
FROM counted WHERE deleted > 0
"""  # noqa: S608

PLAIN_KINDS = frozenset({"sender", "ip", "url", "hash", "sha256", "attachment", "recipient", "domain-or-ip", "domain"})
# Control characters, which no line can hold, stand for the marks of CSV: so no line is ever quoted or split.
_DELIMITER = "\x01"
_QUOTE = "\x02"

# The entries that never matched and never expire, nearly all of a large list, end in one constant.
_TAIL = """
CASE WHEN hits = 0 AND expires IS NULL AND last_hit IS NULL THEN ',"expires":null,"hits":0,"lastHit":null}'
     ELSE ',"expires":' || coalesce('"' || expires || '"', 'null') || ',"hits":' || hits
          || ',"lastHit":' || coalesce('"' || last_hit || '"', 'null') || '}'
END
"""

STREAM_SECONDS = 900.0
GRACE = timedelta(days=1)  # an expired entry stays so long, so that it can be extended
MAX_KNOWN = 200_000
CHANGE_WAIT = 10.0  # for a connection: many callers at once are no outage
SETTLE_SECONDS = 8.0  # to learn whether a change was committed whose connection was lost
SETTLE_PAUSE = 0.25
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


async def with_list_lock(
    connection: Connection, setting: str, list_id: int, change: Callable[[ScopedTransaction], Awaitable[T]]
) -> T:
    """Run the change in a transaction under the shared lock of the list; after a timeout once more, exclusively.

    PostgreSQL gives a free row lock to any waiting transaction, so a large change among many small ones could starve.
    An advisory lock is granted in order.
    """
    shared = _SHARED.format(locks=_LOCKS, list_id=list_id, timeout=SHARED_TIMEOUT_MS, by_index=BY_INDEX)
    try:
        async with scoped(connection, setting, first=shared) as transaction:
            return await change(transaction)
    except (asyncpg.QueryCanceledError, asyncpg.TransactionRollbackError):
        exclusive = _EXCLUSIVE.format(locks=_LOCKS, list_id=list_id, by_index=BY_INDEX)
    async with scoped(connection, setting, first=exclusive) as transaction:
        return await change(transaction)


class Changes(Struct, frozen=True):
    """Entries to add or update, sorted and each there once, with a comment and an expiry for each.

    Comments are JSON strings and expiries are text; unset fields keep their value.
    """

    entries: Sequence[Entry]
    comments: Sequence[str | UnsetType]
    expiries: Sequence[str | UnsetType | None]


class Stamp(Struct, frozen=True):
    """When a change was made, as text, by whom, and what kind of change it was."""

    moment: str
    author: str  # a JSON string
    actor: Actor
    action: str = ""  # "" is what the statement does by itself: add, delete, expire


def _upsert(*, comments: bool, expiries: bool) -> str:
    """Return the statement that adds and updates; a field not given for every entry is left unchanged."""
    changed = "updated = EXCLUDED.updated, updated_by = EXCLUDED.updated_by"
    changed += ", comment = EXCLUDED.comment" if comments else ""
    changed += ", expires = EXCLUDED.expires" if expiries else ""
    changed += f", previous = {_FOUND_OTHER if comments and expiries else _FOUND}"
    return rf"""
    WITH written AS (
        INSERT INTO list_entries (list_id, entry, comment, created, created_by, updated, updated_by, expires)
        SELECT $1, entry, coalesce(comment, '""'), $5, $6, $5, $6, expires
        FROM unnest({ARRAY.format(2)}, {ARRAY.format(3)}, {ARRAY.format(4)}) AS given (entry, comment, expires)
        ON CONFLICT (list_id, entry) DO UPDATE SET {changed}
        RETURNING xmax = 0 AS added, entry, previous
    ), counted AS MATERIALIZED (
        SELECT count(*) AS touched, count(*) FILTER (WHERE added) AS added,
               string_agg(concat_ws(E'\x1f', entry, previous), E'\x1e') FILTER (WHERE NOT added) AS replaced
        FROM written
    ), noted AS (
        INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, added,
                                  comments, expiries, replaced)
        SELECT $1, {ARRAY.format(2)}, $12, $5, $6, $10, $11, touched, added, $3, $13, replaced FROM counted
    )
    SELECT added, record_deed($7, $8, 'lists.' || $12, $9, $10, $11,
                              jsonb_build_object('entries', touched, 'added', added))
    FROM counted
    """  # noqa: S608 -- put together from constants of this file


UPSERTS = {(c, e): _upsert(comments=c, expiries=e) for c in (False, True) for e in (False, True)}


def joined(values: Sequence[str | UnsetType | None]) -> str:
    """Return the values as one text that the statements split; unset and None become NULL."""
    if values and values.count(UNSET) == len(values):
        return MARK.join([NULL] * len(values))
    try:
        text = MARK.join(cast("Sequence[str]", values))
    except TypeError:
        text = MARK.join([value if isinstance(value, str) else NULL for value in values])
    if text.count(MARK) != len(values) - 1:
        raise ValueError("a value holds the mark that stands between values")
    return text


def copy_statement(kind_name: str, list_id: int) -> str:
    """Return the query whose one column is the lines of a list in order."""
    entry = "'\"' || entry || '\"'" if kind_name in PLAIN_KINDS else "to_json(entry)::text"
    return f"""
    SELECT '{{"entry":' || {entry} || ',"comment":' || comment
        || ',"created":"' || created || '","createdBy":' || created_by
        || ',"updated":"' || updated || '","updatedBy":' || updated_by || {_TAIL}
    FROM list_entries WHERE list_id = {list_id} ORDER BY entry
    """  # noqa: S608 -- a number of ours and constants of this file


async def copy_lines(
    connection: Connection, kind_name: str, list_id: int, sink: Callable[[bytes], Awaitable[None]]
) -> None:
    """Give all lines of a list to the sink; the database waits while the sink does."""
    statement = copy_statement(kind_name, list_id)
    await pool.copy_lines(connection, statement, sink, delimiter=_DELIMITER, quote=_QUOTE)


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


class Commit:
    """The transaction of a change, and the event by which it is found once it is committed."""

    __slots__ = ("event", "transaction")

    def __init__(self) -> None:
        self.transaction: ScopedTransaction | None = None
        self.event: UUID | None = None

    @property
    def in_doubt(self) -> bool:
        return self.transaction is not None and self.transaction.in_doubt


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
        audit = _audit_values(scope, definition, stamp.actor)
        action = "delete" if expired_before is None else "expire"

        async def change(connection: Connection, commit: Commit, transaction: ScopedTransaction) -> int:
            recorded = stamp.moment, stamp.author, action
            row = await connection.fetchrow(DELETE, list_id, joined(entries), *audit, expired_before, *recorded)
            deleted = 0 if row is None else cast("int", row["deleted"])
            if row is not None and deleted:
                some = cast("Sequence[str]", row["some"])
                changed = ListChanged(definition.name, action, 0, 0, deleted, first(some), stamp.actor.name)
                commit.event = await record_list_event(connection, scope, changed)
                transaction.last = f"SELECT count_entries({list_id}, {-deleted}, 0)"
            elif expired_before is None:
                await confirm_earlier(connection)
            return deleted

        return await self._commit(scope, list_id, change)

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
        audit = _audit_values(scope, definition, stamp.actor)
        room = definition.max_size(in_tenant=scope.tenant is not None)

        async def change(connection: Connection, commit: Commit, transaction: ScopedTransaction) -> None:
            added = await _write(connection, list_id, changes, stamp, audit)
            updated, some = len(changes.entries) - added, first(changes.entries)
            changed = ListChanged(definition.name, stamp.action or "add", added, updated, 0, some, by=stamp.actor.name)
            commit.event = await record_list_event(connection, scope, changed)
            if added:
                transaction.last = f"SELECT count_entries({list_id}, {added}, {room})"

        try:
            await self._commit(scope, list_id, change)
        except asyncpg.PostgresError as error:
            raise _meaning_of(error, definition) from None

    async def _commit(
        self, scope: ListScope, list_id: int, change: Callable[[Connection, Commit, ScopedTransaction], Awaitable[T]]
    ) -> T:
        """Run the change in a transaction; if its connection is lost, once more unless it was committed."""
        results: list[T] = []
        for last in (False, True):
            commit = Commit()

            async def attempt(transaction: ScopedTransaction) -> T:
                commit.transaction = transaction  # noqa: B023 -- called in this round
                results[:] = [await change(connection, commit, transaction)]  # noqa: B023
                return results[0]

            try:
                async with self.database.connection(CHANGE_WAIT) as connection:
                    return await with_list_lock(connection, scope.setting, list_id, attempt)
            except StorageUnavailable as error:
                if last or not is_lost(error.__cause__):
                    raise
                if commit.in_doubt and commit.event and await self._was_committed(scope, list_id, commit.event):
                    return results[0]
        raise AssertionError("the second attempt returns or raises")

    async def _was_committed(self, scope: ListScope, list_id: int, event: UUID) -> bool:
        """Return whether the transaction that recorded this event was committed; wait a while for a server.

        The lock waits for that transaction, which may still run.
        """
        first_statement = _EXCLUSIVE.format(locks=_LOCKS, list_id=list_id, by_index=BY_INDEX)
        end = time.monotonic() + SETTLE_SECONDS
        while True:
            try:
                async with (
                    self.database.connection() as connection,
                    scoped(connection, scope.setting, first=first_statement),
                ):
                    is_recorded = bool(await connection.fetchval(_IS_RECORDED, event))
                    await confirm_earlier(connection)
            except StorageUnavailable:
                if time.monotonic() > end:
                    raise
            else:
                return is_recorded
            await asyncio.sleep(SETTLE_PAUSE)

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


async def record_list_event(connection: Connection, scope: ListScope, changed: ListChanged) -> UUID:
    """Write the event of a change, while the transaction holds the locks of its entries; return its id."""
    event = new_event(changed, scope.tenant, f"{scope.tenant or GLOBAL}/{changed.list}")
    await record(connection, [event])
    return event.id


class _ListGone(Exception):
    """The list's row is there no more."""


async def _write(connection: Connection, list_id: int, changes: Changes, stamp: Stamp, audit: Sequence[object]) -> int:
    """Write the changes and return how many of the entries are new."""
    entries, total = joined(changes.entries), len(changes.entries)
    unset = changes.comments.count(UNSET), changes.expiries.count(UNSET)
    expiries = recorded = joined(changes.expiries)
    if None in changes.expiries:
        recorded = joined(["" if expiry is None else expiry for expiry in changes.expiries])
    row = await connection.fetchrow(
        UPSERTS[not unset[0], not unset[1]], list_id, entries, joined(changes.comments), expiries,
        stamp.moment, stamp.author, *audit, stamp.action or "add", recorded,
    )  # fmt: skip
    for statement, values, missing in (
        (SET_COMMENTS, changes.comments, unset[0]),
        (SET_EXPIRIES, changes.expiries, unset[1]),
    ):
        if 0 < missing < total:
            entry_values = [
                (entry, value) for entry, value in zip(changes.entries, values, strict=True) if value is not UNSET
            ]
            await connection.execute(
                statement, list_id, joined([e for e, _ in entry_values]), joined([v for _, v in entry_values])
            )
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
    id_and_size = await _find(connection, scope, definition)
    assert id_and_size is not None
    return id_and_size


def _audit_values(scope: ListScope, definition: ListDefinition, actor: Actor) -> Sequence[object]:
    """Return the fields of the audit event besides the counts."""
    return actor.name, scope.tenant, definition.name, actor.address, actor.request_id


def _meaning_of(error: asyncpg.PostgresError, definition: ListDefinition) -> Exception:
    """Return what an error of our own functions means; any other error is itself."""
    if error.sqlstate == _FULL:
        return ListFull(f"The entries would exceed maxSize of {definition.name}.")
    if error.sqlstate == _GONE:
        return _ListGone()
    return cast("Exception", error)
