"""Undoes a change of a list: entries not changed since get their previous state.

An undo is a change like any other: one transaction, one audit event, one row that can itself be undone.
Entries that were changed since are left unchanged and reported.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

import asyncpg
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.scoped import ScopedTransaction, scoped
from mailwarden.errors import ListFull, NotFound
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.change_log import CHANGE_COLUMNS, KEPT_DAYS, LOGGED, Kept, lines_of
from mailwarden.lists.list_lock import with_list_lock
from mailwarden.lists.scope import ListScope
from mailwarden.lists.store import ARRAY, EACH, GRACE, MARK, NULL, Stamp, joined

CHANGE_WAIT = 10.0
_FULL = "MW001"

_FIND = f"""
SELECT {CHANGE_COLUMNS}, list_id, logged.entries, comments, expiries, replaced, removed {LOGGED} AND logged.change = $4
"""
_LOCK = f"""
SELECT kept.entry, comment, expires, created, created_by, updated, updated_by, hits, last_hit
FROM {EACH.format(given=ARRAY.format(2), locked="FOR UPDATE")}
"""  # noqa: S608
_REMOVE = f"""
WITH locked AS MATERIALIZED (
    SELECT kept.list_id, kept.entry FROM {EACH.format(given=ARRAY.format(2), locked="FOR UPDATE")}
)
DELETE FROM list_entries AS kept USING locked WHERE kept.list_id = locked.list_id AND kept.entry = locked.entry
"""  # noqa: S608
_RESET = f"""
WITH changed AS MATERIALIZED (
    SELECT kept.list_id, kept.entry, given.comment, given.expires
    FROM unnest({ARRAY.format(2)}, {ARRAY.format(3)}, {ARRAY.format(4)}) AS given (entry, comment, expires)
    CROSS JOIN LATERAL (SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry OFFSET 0) AS kept
)
UPDATE list_entries AS kept
SET comment = changed.comment, expires = nullif(changed.expires, ''), updated = $5, updated_by = $6
FROM changed WHERE kept.list_id = changed.list_id AND kept.entry = changed.entry
"""  # noqa: S608
# A concurrent addition of the same entry wins.
_RESTORE = f"""
INSERT INTO list_entries (list_id, entry, comment, expires, created, created_by, hits, last_hit, updated, updated_by)
SELECT $1, entry, comment, nullif(expires, ''), created, created_by, hits::bigint, nullif(last_hit, ''), $9, $10
FROM unnest({", ".join(ARRAY.format(number) for number in range(2, 9))})
     AS given (entry, comment, expires, created, created_by, hits, last_hit)
ON CONFLICT (list_id, entry) DO NOTHING RETURNING entry
"""  # noqa: S608
_NOTE = f"""
WITH noted AS (
    INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, added, deleted,
                              comments, expiries, replaced, removed, undoes)
    VALUES ($1, {ARRAY.format(2)}, 'undo', $3, $4, $8, $9, $10, $11, $12, $13, $14, $15, {ARRAY.format(16)}, $17)
    RETURNING change
)
SELECT change, record_deed($5, $6, 'lists.undo', $7, $8, $9, jsonb_build_object(
    'change', $17::bigint, 'entries', $10::integer, 'added', $11::integer, 'deleted', $12::integer))
FROM noted
"""  # noqa: S608


class Undone(Struct, frozen=True):
    """The result of an undo: its own number, 0 if there was nothing to do, and the entries left unchanged."""

    number: int = 0
    restored: int = 0
    left: tuple[str, ...] = ()


class Work(Struct):
    """The work of an undo: entries to remove, to reset, to restore, and to leave unchanged."""

    remove: list[str] = field(default_factory=list)
    reset: list[Kept] = field(default_factory=list)
    restore: list[Kept] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)  # the current rows, as list_changes stores them


class UndoStore:
    """Takes changes of one scope's lists back."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def undo(self, scope: ListScope, definition: ListDefinition, number: int, stamp: Stamp) -> Undone:
        """Take a change back as far as its entries are as it left them; raise NotFound where there is none."""
        async with self._database.connection(CHANGE_WAIT) as connection:
            async with scoped(connection, scope.setting):
                told = await connection.fetchrow(scope.own(_FIND), scope.tenant, definition.name, KEPT_DAYS, number)
            if told is None:
                raise NotFound("There is no such change of this list, or it is too long ago to be undone.")
            undoing = _Undoing(connection, scope, definition, told, stamp)
            try:
                return await with_list_lock(connection, scope.setting, undoing.list_id, undoing.run)
            except asyncpg.PostgresError as error:
                if error.sqlstate == _FULL:
                    raise ListFull(f"Undoing would exceed maxSize of {definition.name}.") from None
                raise


class _Undoing:
    """One undoing on its connection."""

    def __init__(
        self, connection: Connection, scope: ListScope, definition: ListDefinition, told: Row, stamp: Stamp
    ) -> None:
        self.list_id = cast("int", told["list_id"])
        self._connection = connection
        self._scope = scope
        self._definition = definition
        self._told = told
        self._stamp = stamp

    async def run(self, transaction: ScopedTransaction) -> Undone:
        entries = sorted(cast("Sequence[str]", self._told["entries"]))
        rows = await self._connection.fetch(_LOCK, self.list_id, joined(entries))
        now = {cast("str", row["entry"]): row for row in rows}
        work = await asyncio.to_thread(plan_undoing, self._told, now, self._stamp.moment)
        restored = await self._write(work)
        taken = {each.entry for each in work.restore} - restored
        left = tuple(sorted({*work.left, *taken}))
        done = sorted({*work.remove, *(each.entry for each in work.reset), *restored})
        if not done:
            return Undone(left=left)
        number = await self._note(work, done, len(restored))
        if grown := len(restored) - len(work.remove):
            room = self._definition.max_size(in_tenant=self._scope.tenant is not None)
            transaction.last = f"SELECT count_entries({self.list_id}, {grown}, {room})"
        return Undone(number, len(done), left)

    async def _write(self, work: Work) -> set[str]:
        """Do the work; return those of the entries to be put back that were not there."""
        mark = self._stamp.moment, self._stamp.author
        if work.remove:
            await self._connection.execute(_REMOVE, self.list_id, joined(work.remove))
        if work.reset:
            columns = ([e.entry for e in work.reset], [e.comment for e in work.reset], [e.expires for e in work.reset])
            await self._connection.execute(_RESET, self.list_id, *map(joined, columns), *mark)
        if not work.restore:
            return set()
        every = zip(*map(astuple, work.restore), strict=True)
        rows = await self._connection.fetch(_RESTORE, self.list_id, *map(joined, every), *mark)
        return {cast("str", row["entry"]) for row in rows}

    async def _note(self, work: Work, done: Sequence[str], added: int) -> int:
        given = {each.entry: each for each in (*work.reset, *work.restore)}
        comments = [given[entry].comment if entry in given else NULL for entry in done]
        expiries = [given[entry].expires if entry in given else NULL for entry in done]
        stamp, actor = self._stamp, self._stamp.actor
        number = await self._connection.fetchval(
            _NOTE, self.list_id, joined(done), stamp.moment, stamp.author, actor.name, self._scope.tenant,
            self._definition.name, actor.address, actor.request_id, len(done), added, len(work.remove),
            joined(comments), joined(expiries), NULL.join(work.replaced) or None,
            joined(work.remove) if work.remove else None, self._told["change"],
        )  # fmt: skip
        return cast("int", number)


def plan_undoing(told: Row, now: Mapping[str, Row], moment: str) -> Work:
    """Compare the entries with the state after the change, and plan their previous state."""
    left_as = told["moment"], told["author"]
    work = Work()
    for line in lines_of(told):
        row = now.get(line.entry)
        untouched = row is not None and (row["updated"], row["updated_by"]) == left_as
        if line.after is None and row is None and line.kept is not None:
            work.restore.append(_extendable(line.kept, moment))
        elif line.after is None or row is None or not untouched:
            work.left.append(line.entry)
        elif line.kept is not None and not line.kept.comment:
            continue  # it was so before
        elif line.kept is None:
            work.remove.append(line.entry)
            work.replaced.append(_written(row))
        else:
            work.reset.append(line.kept)
            work.replaced.append(_written(row))
    return work


def _extendable(kept: Kept, moment: str) -> Kept:
    """Return an entry that expired long ago as one that expires now: it acts no more, but can be extended."""
    since = datetime.fromisoformat(moment) - GRACE
    expired = bool(kept.expires) and datetime.fromisoformat(kept.expires) < since
    return replace(kept, expires=moment) if expired else kept


def _written(row: Row) -> str:
    """Return the row of an entry as list_changes keeps it."""
    columns = ("entry", "comment", "expires", "created", "created_by", "hits", "last_hit")
    return MARK.join("" if row[column] is None else str(row[column]) for column in columns)
