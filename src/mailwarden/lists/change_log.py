"""The changes of a list: their author, time and effect on each entry, and the undo of one change.

An undo is a change like any other: one transaction, one audit event, one row that can itself be undone. Entries that
were changed since are left unchanged and reported.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import cast

import asyncpg
import msgspec
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from mailwarden.database.pool import Connection, Database, Row, ScopedTransaction, confirm_earlier, scoped
from mailwarden.errors import ListFull, NotFound
from mailwarden.events.catalogue import ListChanged, first
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.store import (
    ARRAY,
    EACH,
    GRACE,
    MARK,
    NULL,
    ListScope,
    Stamp,
    joined,
    record_list_event,
    with_list_lock,
)

KEPT_DAYS = 30  # changes can be shown and undone for so long
PAGE = 50
READ_MS = 5_000

_COLUMNS = """
change, moment, author, address, request_id, action, touched, added, deleted, undoes,
(SELECT max(later.change) FROM list_changes AS later WHERE later.undoes = logged.change) AS undone_by
"""
# Row-level security shows a transaction only the lists of its own scope.
_LOGGED = """
FROM list_changes AS logged
WHERE logged.list_id = (SELECT list_id FROM lists WHERE OWN AND name = $2) AND logged.action <> ''
  AND logged.changed > now() - make_interval(days => $3)
"""
_NEWEST = f"SELECT {_COLUMNS} {_LOGGED} AND ($4::bigint = 0 OR logged.change < $4) ORDER BY logged.change DESC LIMIT $5"
_FIND = f"""
SELECT {_COLUMNS}, list_id, logged.entries, comments, expiries, replaced, removed {_LOGGED} AND logged.change = $4
"""
CHANGE_WAIT = 10.0
_FULL = "MW001"
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


class Kept(Struct, frozen=True, array_like=True):
    """An entry as it was before a change; the later fields are set for deleted entries only."""

    entry: str
    comment: str = ""  # a JSON string; empty if the change repeated the existing value
    expires: str = ""
    created: str = ""
    created_by: str = ""
    hits: str = "0"
    last_hit: str = ""


class State(Struct, frozen=True):
    """The fields of an entry that users set."""

    comment: str
    expires: str | None = None


class Line(Struct, frozen=True):
    """The effect of a change on one entry; None means absent."""

    entry: str
    before: State | None
    after: State | None
    kept: Kept | None = None

    @property
    def what(self) -> str:
        if self.after is None:
            return "deleted"
        return "added" if self.before is None else "updated"


class Change(Struct, frozen=True):
    """One change of a list."""

    number: int
    moment: str
    actor: str
    address: str | None
    request_id: str
    action: str
    touched: int
    added: int
    deleted: int
    undoes: int | None = None
    undone_by: int | None = None

    @property
    def updated(self) -> int:
        return self.touched - self.added - self.deleted


class Undone(Struct, frozen=True):
    """The result of an undo: its own number, 0 if there was nothing to do, and the entries left unchanged."""

    number: int = 0
    restored: int = 0
    left: tuple[str, ...] = ()


class ChangeLog:
    """Reads the changes of one list at a time, and undoes them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def newest(
        self, scope: ListScope, definition: ListDefinition, before: int = 0, limit: int = PAGE
    ) -> list[Change]:
        """Return the newest changes of a list, newest first, or those before a number."""
        rows = await self._read(scope, _NEWEST, scope.tenant, definition.name, KEPT_DAYS, before, limit)
        return [change_of(row) for row in rows]

    async def find(
        self, scope: ListScope, definition: ListDefinition, number: int
    ) -> tuple[Change, tuple[Line, ...]] | None:
        """Return a change with its effect on every entry, or None if this list has no change of that number."""
        rows = await self._read(scope, _FIND, scope.tenant, definition.name, KEPT_DAYS, number)
        return (change_of(rows[0]), tuple(lines_of(rows[0]))) if rows else None

    async def undo(self, scope: ListScope, definition: ListDefinition, number: int, stamp: Stamp) -> Undone:
        """Undo a change for the entries that were not changed since; raise NotFound if there is no such change."""
        async with self._database.connection(CHANGE_WAIT) as connection:
            async with scoped(connection, scope.setting):
                logged = await connection.fetchrow(scope.own(_FIND), scope.tenant, definition.name, KEPT_DAYS, number)
            if logged is None:
                raise NotFound("There is no such change of this list, or it is too long ago to be undone.")
            undo = _Undo(connection, scope, definition, logged, stamp)
            try:
                return await with_list_lock(connection, scope.setting, undo.list_id, undo.run)
            except asyncpg.PostgresError as error:
                if error.sqlstate == _FULL:
                    raise ListFull(f"Undoing would exceed maxSize of {definition.name}.") from None
                raise

    async def _read(self, scope: ListScope, statement: str, *values: object) -> Sequence[Row]:
        first = f"SET LOCAL statement_timeout = {READ_MS}"
        async with self._database.connection() as connection, scoped(connection, scope.setting, first=first):
            return await connection.fetch(scope.own(statement), *values)


def change_of(row: Row) -> Change:
    return Change(
        number=cast("int", row["change"]),
        moment=cast("str", row["moment"]),
        actor=msgspec.json.decode(cast("str", row["author"]), type=str),
        address=cast("str | None", row["address"]),
        request_id=cast("str", row["request_id"]),
        action=cast("str", row["action"]),
        touched=cast("int", row["touched"]),
        added=cast("int", row["added"]),
        deleted=cast("int", row["deleted"]),
        undoes=cast("int | None", row["undoes"]),
        undone_by=cast("int | None", row["undone_by"]),
    )


def lines_of(row: Row) -> Iterator[Line]:
    """Yield the effect of a change on each of its entries."""
    entries = cast("Sequence[str]", row["entries"])
    kept = kept_of(cast("str | None", row["replaced"]))
    action = cast("str", row["action"])
    removed = frozenset(cast("Sequence[str] | None", row["removed"]) or ())
    comments = _given(cast("str | None", row["comments"]), len(entries))
    expiries = _given(cast("str | None", row["expiries"]), len(entries))
    for entry, comment, expires in zip(entries, comments, expiries, strict=True):
        old = kept.get(entry)
        before = State(_text(old.comment), old.expires or None) if old and old.comment else None
        if action in {"delete", "expire"} or entry in removed:
            yield Line(entry, before, None, old)
        else:
            after = _after(before, comment, expires)
            yield Line(entry, before if old is None or old.comment else after, after, old)


def kept_of(replaced: str | None) -> Mapping[str, Kept]:
    rows = (Kept(*row.split(MARK)) for row in replaced.split(NULL)) if replaced else ()
    return {row.entry: row for row in rows}


def _after(before: State | None, comment: str, expires: str) -> State:
    """Return the new state of an entry; fields that the change did not set keep their value, or are empty."""
    old = before or State("")
    return State(
        old.comment if comment == NULL else _text(comment),
        old.expires if expires == NULL else expires or None,
    )


def _given(text: str | None, count: int) -> Sequence[str]:
    return [NULL] * count if text is None else text.split(MARK)


def _text(stored: str) -> str:
    return msgspec.json.decode(stored, type=str)


class Work(Struct):
    """The work of an undo: entries to remove, to reset, to restore, and to leave unchanged."""

    remove: list[str] = field(default_factory=list)
    reset: list[Kept] = field(default_factory=list)
    restore: list[Kept] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)  # the current rows, as list_changes stores them


class _Undo:
    """One undo on its connection."""

    def __init__(
        self, connection: Connection, scope: ListScope, definition: ListDefinition, logged: Row, stamp: Stamp
    ) -> None:
        self.list_id = cast("int", logged["list_id"])
        self._connection = connection
        self._scope = scope
        self._definition = definition
        self._logged = logged
        self._stamp = stamp

    async def run(self, transaction: ScopedTransaction) -> Undone:
        entries = sorted(cast("Sequence[str]", self._logged["entries"]))
        rows = await self._connection.fetch(_LOCK, self.list_id, joined(entries))
        now = {cast("str", row["entry"]): row for row in rows}
        work = await asyncio.to_thread(plan_undo, self._logged, now, self._stamp.moment)
        restored = await self._write(work)
        taken = {kept.entry for kept in work.restore} - restored
        left = tuple(sorted({*work.left, *taken}))
        done = sorted({*work.remove, *(kept.entry for kept in work.reset), *restored})
        if not done:
            await confirm_earlier(self._connection)
            return Undone(left=left)
        number = await self._note(work, done, len(restored))
        counts = len(restored), len(done) - len(restored) - len(work.remove), len(work.remove)
        changed = ListChanged(self._definition.name, "undo", *counts, first(done), by=self._stamp.actor.name)
        await record_list_event(self._connection, self._scope, changed)
        if grown := len(restored) - len(work.remove):
            room = self._definition.max_size(in_tenant=self._scope.tenant is not None)
            transaction.last = f"SELECT count_entries({self.list_id}, {grown}, {room})"
        return Undone(number, len(done), left)

    async def _write(self, work: Work) -> set[str]:
        """Do the work; return the entries that were restored."""
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
        kept_by_entry = {kept.entry: kept for kept in (*work.reset, *work.restore)}
        comments = [kept_by_entry[entry].comment if entry in kept_by_entry else NULL for entry in done]
        expiries = [kept_by_entry[entry].expires if entry in kept_by_entry else NULL for entry in done]
        stamp, actor = self._stamp, self._stamp.actor
        number = await self._connection.fetchval(
            _NOTE, self.list_id, joined(done), stamp.moment, stamp.author, actor.name, self._scope.tenant,
            self._definition.name, actor.address, actor.request_id, len(done), added, len(work.remove),
            joined(comments), joined(expiries), NULL.join(work.replaced) or None,
            joined(work.remove) if work.remove else None, self._logged["change"],
        )  # fmt: skip
        return cast("int", number)


def plan_undo(logged: Row, now: Mapping[str, Row], moment: str) -> Work:
    """Compare the entries with the state after the change, and plan their previous state."""
    left_as = logged["moment"], logged["author"]
    work = Work()
    for line in lines_of(logged):
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
