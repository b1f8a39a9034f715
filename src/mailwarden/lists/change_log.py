"""The changes of a list as people read them: who, when, from where, and what became of every entry."""

from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from mailwarden.database.pool import Database, Row
from mailwarden.database.scoped import scoped
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.scope import ListScope
from mailwarden.lists.store import MARK, NULL

KEPT_DAYS = 30  # changes can be shown and undone for so long
PAGE = 50
READ_MS = 5_000

CHANGE_COLUMNS = """
change, moment, author, address, request_id, action, touched, added, deleted, undoes,
(SELECT max(later.change) FROM list_changes AS later WHERE later.undoes = logged.change) AS undone_by
"""
# The list is the wall: row-level security shows a transaction the lists of its own scope.
LOGGED = """
FROM list_changes AS logged
WHERE logged.list_id = (SELECT list_id FROM lists WHERE OWN AND name = $2) AND logged.action <> ''
  AND logged.changed > now() - make_interval(days => $3)
"""
_NEWEST = (
    f"SELECT {CHANGE_COLUMNS} {LOGGED} AND ($4::bigint = 0 OR logged.change < $4) ORDER BY logged.change DESC LIMIT $5"
)
_ONE = f"SELECT {CHANGE_COLUMNS}, logged.entries, comments, expiries, replaced, removed {LOGGED} AND logged.change = $4"


class Kept(Struct, frozen=True, array_like=True):
    """An entry as it was before a change; the later fields are kept of entries that the change took away."""

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


class ChangeStore:
    """Reads the changes of one list at a time."""

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
        """Return a change with what it did to every entry, or None where this list has none of that number."""
        rows = await self._read(scope, _ONE, scope.tenant, definition.name, KEPT_DAYS, number)
        return (change_of(rows[0]), tuple(lines_of(rows[0]))) if rows else None

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
    """Yield what a change did to each of its entries."""
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
