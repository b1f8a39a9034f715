"""The changes of a list: their author, time and effect on each entry, and the undo of one change.

An undo is a change like any other: one transaction, one audit event, one row that can itself be undone. Entries that
were changed since are left unchanged and reported.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from mailwarden.database.pool import Connection, Database, Row, scoped
from mailwarden.errors import NotFound
from mailwarden.events.catalogue import ListChanged, first
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.entry_store import text_of
from mailwarden.lists.store import CHANGE_WAIT, GRACE, LOCKED, ListScope, Stamp, commit_change

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
_LOCK = f"""
SELECT kept.entry, comment, expires, created, created_by, updated, updated_by, hits, last_hit FROM {LOCKED}
"""  # noqa: S608
_REMOVE = f"""
WITH locked AS MATERIALIZED (SELECT kept.list_id, kept.entry FROM {LOCKED})
DELETE FROM list_entries AS kept USING locked WHERE kept.list_id = locked.list_id AND kept.entry = locked.entry
"""  # noqa: S608
_RESET = """
WITH changed AS MATERIALIZED (
    SELECT kept.list_id, kept.entry, given.comment, given.expires
    FROM unnest($2::text[], $3::text[], $4::text[]) AS given (entry, comment, expires)
    CROSS JOIN LATERAL (SELECT * FROM list_entries WHERE list_id = $1 AND entry = given.entry OFFSET 0) AS kept
)
UPDATE list_entries AS kept
SET comment = changed.comment, expires = changed.expires, updated = $5, updated_by = $6
FROM changed WHERE kept.list_id = changed.list_id AND kept.entry = changed.entry
"""
# A concurrent addition of the same entry wins.
_RESTORE = """
INSERT INTO list_entries (list_id, entry, comment, expires, created, created_by, hits, last_hit, updated, updated_by)
SELECT $1, given.*, $9, $10
FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::text[]) AS given
ON CONFLICT (list_id, entry) DO NOTHING RETURNING entry
"""
_LOG = """
WITH logged AS (
    INSERT INTO list_changes (list_id, entries, action, moment, author, address, request_id, touched, added, deleted,
                              comments, expiries, replaced, removed, undoes)
    VALUES ($1, $2, 'undo', $3, $4, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
    RETURNING change
)
SELECT change, record_deed($5, $6, 'lists.undo', $7, $8, $9, jsonb_build_object(
    'change', $17::bigint, 'entries', $10::integer, 'added', $11::integer, 'deleted', $12::integer))
FROM logged
"""


class Kept(Struct, frozen=True):
    """The values of an entry before a change, as stored; the later fields are set for deleted entries only."""

    comment: str
    expires: str | None
    created: str = ""
    created_by: str = ""
    hits: int = 0
    last_hit: str | None = None

    @property
    def state(self) -> "State":
        return State(text_of(self.comment), self.expires)


class State(Struct, frozen=True):
    """The fields of an entry that users set."""

    comment: str
    expires: str | None = None


class Line(Struct, frozen=True):
    """The effect of a change on one entry; a state of None means absent."""

    entry: str
    before: State | None
    after: State | None
    kept: Kept | None = None  # if the change replaced or deleted it

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
        async with self._database.connection(CHANGE_WAIT) as connection, scoped(connection, scope.setting):
            logged = await connection.fetchrow(scope.own(_FIND), scope.tenant, definition.name, KEPT_DAYS, number)
        if logged is None:
            raise NotFound("There is no such change of this list, or it is too long ago to be undone.")
        undo = _Undo(scope, definition, logged, stamp)
        return await commit_change(self._database, scope, definition, undo.list_id, undo.write)

    async def _read(self, scope: ListScope, statement: str, *values: object) -> Sequence[Row]:
        first = f"SET LOCAL statement_timeout = {READ_MS}"
        async with self._database.connection() as connection, scoped(connection, scope.setting, first=first):
            return await connection.fetch(scope.own(statement), *values)


_REPLACED = msgspec.json.Decoder(dict[str, Kept | None])


def change_of(row: Row) -> Change:
    return Change(
        number=cast("int", row["change"]),
        moment=cast("str", row["moment"]),
        actor=text_of(cast("str", row["author"])),
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
    nothing = [None] * len(entries)
    comments = cast("Sequence[str | None] | None", row["comments"]) or nothing
    expiries = cast("Sequence[str | None] | None", row["expiries"]) or nothing
    removed = frozenset(
        entries if row["action"] in {"delete", "expire"} else cast("Sequence[str] | None", row["removed"]) or ()
    )
    replaced = _REPLACED.decode(cast("str | None", row["replaced"]) or "{}")
    for entry, comment, expires in zip(entries, comments, expiries, strict=True):
        kept = replaced.get(entry)
        before = kept.state if kept else None
        if entry in removed:
            yield Line(entry, before, None, kept)
        else:
            after = _after(before or State(""), comment, expires)
            yield Line(entry, after if entry in replaced and kept is None else before, after, kept)


def _after(before: State, comment: str | None, expires: str | None) -> State:
    """Return the new state of an entry; fields that the change did not set keep their value."""
    return State(
        before.comment if comment is None else text_of(comment), before.expires if expires is None else expires or None
    )


class Work(Struct):
    """The work of an undo: entries to remove, to reset, to restore, and to leave unchanged."""

    remove: list[str] = field(default_factory=list)
    reset: dict[str, Kept] = field(default_factory=dict)
    restore: dict[str, Kept] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)
    replaced: dict[str, Kept] = field(default_factory=dict)  # the current values, as list_changes stores them


class _Undo:
    """One undo in its transaction."""

    def __init__(self, scope: ListScope, definition: ListDefinition, logged: Row, stamp: Stamp) -> None:
        self.list_id = cast("int", logged["list_id"])
        self._scope = scope
        self._definition = definition
        self._logged = logged
        self._stamp = stamp

    async def write(self, connection: Connection) -> tuple[Undone, ListChanged | None]:
        entries = sorted(cast("Sequence[str]", self._logged["entries"]))
        rows = await connection.fetch(_LOCK, self.list_id, entries)
        current = {cast("str", row["entry"]): row for row in rows}
        work = await asyncio.to_thread(plan_undo, self._logged, current, self._stamp.moment)
        restored = await self._change_entries(connection, work)
        left = tuple(sorted({*work.left, *(work.restore.keys() - restored)}))
        done = sorted({*work.remove, *work.reset, *restored})
        if not done:
            return Undone(left=left), None
        number = await self._log(connection, work, done, len(restored))
        counts = len(restored), len(work.reset), len(work.remove)
        changed = ListChanged(self._definition.name, "undo", *counts, first(done), by=self._stamp.actor.name)
        return Undone(number, len(done), left), changed

    async def _change_entries(self, connection: Connection, work: Work) -> set[str]:
        """Do the work; return the entries that were restored."""
        mark = self._stamp.moment, self._stamp.author
        if work.remove:
            await connection.execute(_REMOVE, self.list_id, work.remove)
        if work.reset:
            comments, expiries = (
                [kept.comment for kept in work.reset.values()],
                [kept.expires for kept in work.reset.values()],
            )
            await connection.execute(_RESET, self.list_id, list(work.reset), comments, expiries, *mark)
        if not work.restore:
            return set()
        columns = zip(*map(astuple, work.restore.values()), strict=True)
        rows = await connection.fetch(_RESTORE, self.list_id, list(work.restore), *columns, *mark)
        return {cast("str", row["entry"]) for row in rows}

    async def _log(self, connection: Connection, work: Work, done: Sequence[str], added: int) -> int:
        written = work.reset | work.restore
        comments = [written[entry].comment if entry in written else None for entry in done]
        expiries = [written[entry].expires or "" if entry in written else None for entry in done]
        stamp, actor = self._stamp, self._stamp.actor
        number = await connection.fetchval(
            _LOG, self.list_id, done, stamp.moment, stamp.author, actor.name, self._scope.tenant,
            self._definition.name, actor.address, actor.request_id, len(done), added, len(work.remove),
            comments, expiries, msgspec.json.encode(work.replaced).decode(), work.remove, self._logged["change"],
        )  # fmt: skip
        return cast("int", number)


def plan_undo(logged: Row, current: Mapping[str, Row], moment: str) -> Work:
    """Compare the entries with the state after the change, and plan their previous state."""
    left_as = logged["moment"], logged["author"]
    work = Work()
    for line in lines_of(logged):
        row = current.get(line.entry)
        untouched = row is not None and (row["updated"], row["updated_by"]) == left_as
        if line.after is None and row is None and line.kept is not None:
            work.restore[line.entry] = _extendable(line.kept, moment)
        elif line.after is None or row is None or not untouched:
            work.left.append(line.entry)
        elif line.before is None:
            work.remove.append(line.entry)
            work.replaced[line.entry] = _kept_of(row)
        elif line.kept is not None:  # otherwise it had the same values before
            work.reset[line.entry] = line.kept
            work.replaced[line.entry] = _kept_of(row)
    return work


def _extendable(kept: Kept, moment: str) -> Kept:
    """Return an entry that expired long ago as one that expires now: it acts no more, but can be extended."""
    since = datetime.fromisoformat(moment) - GRACE
    is_old = kept.expires is not None and datetime.fromisoformat(kept.expires) < since
    return replace(kept, expires=moment) if is_old else kept


def _kept_of(row: Row) -> Kept:
    return msgspec.convert({name: row[name] for name in Kept.__struct_fields__}, Kept)
