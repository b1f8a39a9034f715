"""Entries as people read them: how many each list has, one page of a list, one entry, and those of a few names.

Every question has a limit and ends in time. A list of ten million entries cannot be looked through for a text in
the middle of an entry; such a search is answered with the entries that begin with it, and says so.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import asyncpg
import msgspec
from msgspec import Struct

from mailwarden.database.pool import EVERYTHING, Connection, Database, Row, scoped
from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.catalogue import ListDefinition
from mailwarden.lists.requests import PublicListsEntry
from mailwarden.lists.store import BY_INDEX, ListScope

PAGE = 100
MAX_SEARCH = 200
SEARCH_MS = 1_500
LONG = 200_000  # a longer list is searched by prefix first
READ_MS = 5_000
_LAST = "\U0010ffff"  # sorts after every character an entry holds

_COLUMNS = "entry, comment, created, created_by, updated, updated_by, expires, hits, last_hit"
_COUNTS = "SELECT name, entries FROM lists WHERE OWN"
_IN_USE = """
SELECT EXISTS (
    SELECT FROM lists WHERE name = $1 AND entries > 0 AND ($2::uuid IS NULL OR tenant IS NULL OR tenant = $2))
"""
_LIST = "(SELECT list_id FROM lists WHERE OWN AND name = $2)"
_PAGE = f"SELECT {_COLUMNS} FROM list_entries WHERE list_id = {_LIST} AND entry > $3 ORDER BY entry LIMIT $4"  # noqa: S608
_SEARCH = f"""
SELECT {_COLUMNS} FROM list_entries WHERE list_id = {_LIST} AND entry > $3
    AND (entry = $7 OR position($5 IN lower(entry)) > 0 OR position($6 IN lower(comment)) > 0)
ORDER BY entry LIMIT $4
"""  # noqa: S608
_PREFIX = f"""
SELECT {_COLUMNS} FROM list_entries
WHERE list_id = {_LIST} AND entry > $3 AND (entry >= $5 AND entry < $6 OR entry = $7)
ORDER BY entry LIMIT $4
"""  # noqa: S608
# Each entry by the index, independent of the planner's estimate; see BY_INDEX.
_SOME = f"""
SELECT kept.* FROM unnest($3::text[]) AS given (entry) CROSS JOIN LATERAL (
    SELECT {_COLUMNS} FROM list_entries WHERE list_id = {_LIST} AND entry = given.entry OFFSET 0
) AS kept
"""  # noqa: S608


class EntryPage(Struct, frozen=True):
    """Some entries of a list in order; `after` begins the next page where there is one."""

    entries: tuple[PublicListsEntry, ...]
    after: str = ""
    prefix_only: bool = False  # the list is too long to be looked through: only beginnings were compared


class EntryStore:
    """Reads entries of one scope at a time."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def counts(self, scope: ListScope) -> Mapping[str, int]:
        """Return how many entries each list has; a list that was never used is not named."""
        async with self._database.connection() as connection, scoped(connection, scope.setting):
            rows = await connection.fetch(scope.own(_COUNTS), scope.tenant)
        return {str(row["name"]): cast("int", row["entries"]) for row in rows}

    async def in_use(self, scope: ListScope, list_name: str) -> bool:
        """Return whether a list has entries for mail of the scope: its own or global ones, of any tenant if global."""
        async with self._database.connection() as connection, scoped(connection, EVERYTHING):
            return bool(await connection.fetchval(_IN_USE, list_name, scope.tenant))

    async def page(
        self, scope: ListScope, definition: ListDefinition, search: str = "", after: str = "", limit: int = PAGE
    ) -> EntryPage:
        """Return a page of the entries that hold the text, or whose comment does."""
        place = scope.tenant, definition.name, after, limit + 1
        if not search.strip():
            return _page_of(await self._read(scope, _PAGE, *place), limit)
        needle, spelled = _folded(search.strip()[:MAX_SEARCH]), _spelled(definition, search)
        in_comment = _folded(msgspec.json.encode(needle).decode()[1:-1])
        beginning = *place, needle, needle + _LAST, spelled
        async with self._database.connection() as connection:
            if await self._is_long(connection, scope, definition):
                rows = await _fetch(connection, scope, _PREFIX, *beginning)
                if rows or after:
                    return _page_of(rows, limit, prefix_only=True)
            try:
                async with scoped(connection, scope.setting, first=_begin(SEARCH_MS)):
                    return _page_of(
                        await connection.fetch(scope.own(_SEARCH), *place, needle, in_comment, spelled), limit
                    )
            except asyncpg.QueryCanceledError:
                rows = await _fetch(connection, scope, _PREFIX, *beginning)
                return _page_of(rows, limit, prefix_only=True)

    async def present(
        self, scope: ListScope, definition: ListDefinition, entries: Sequence[str]
    ) -> list[PublicListsEntry]:
        """Return those of the entries, in their stored form, that exist."""
        if not entries:
            return []
        rows = await self._read(scope, _SOME, scope.tenant, definition.name, entries)
        return [_entry_of(row) for row in rows]

    async def first(self, scope: ListScope, definition: ListDefinition, limit: int) -> list[PublicListsEntry]:
        """Return the first entries of a list that is short by its nature."""
        rows = await self._read(scope, _PAGE, scope.tenant, definition.name, "", limit)
        return [_entry_of(row) for row in rows]

    @staticmethod
    async def _is_long(connection: Connection, scope: ListScope, definition: ListDefinition) -> bool:
        rows = await _fetch(connection, scope, _COUNTS, scope.tenant)
        return any(row["name"] == definition.name and cast("int", row["entries"]) > LONG for row in rows)

    async def _read(self, scope: ListScope, statement: str, *values: object) -> Sequence[Row]:
        async with self._database.connection() as connection:
            return await _fetch(connection, scope, statement, *values)


async def _fetch(connection: Connection, scope: ListScope, statement: str, *values: object) -> Sequence[Row]:
    async with scoped(connection, scope.setting, first=_begin(READ_MS)):
        return await connection.fetch(scope.own(statement), *values)


def _begin(milliseconds: int) -> str:
    return f"SET LOCAL statement_timeout = {milliseconds}; {BY_INDEX}"


def _page_of(rows: Sequence[Row], limit: int, *, prefix_only: bool = False) -> EntryPage:
    entries = tuple(_entry_of(row) for row in rows[:limit])
    return EntryPage(entries, entries[-1].entry if len(rows) > limit else "", prefix_only)


def _entry_of(row: Row) -> PublicListsEntry:
    return PublicListsEntry(
        entry=cast("str", row["entry"]),
        comment=text_of(row["comment"]),
        created=cast("str", row["created"]),
        created_by=text_of(row["created_by"]),
        updated=cast("str", row["updated"]),
        updated_by=text_of(row["updated_by"]),
        expires=cast("str | None", row["expires"]),
        hits=cast("int", row["hits"]),
        last_hit=cast("str | None", row["last_hit"]),
    )


def text_of(stored: object) -> str:
    """Return a text that is stored as a JSON string."""
    return msgspec.json.decode(cast("str", stored), type=str) if stored else ""


def _folded(text: str) -> str:
    """Lower what the database lowers in these columns: A to Z."""
    return text.encode("utf-8", "replace").replace(b"\x00", b"?").lower().decode()


def _spelled(definition: ListDefinition, search: str) -> str:
    """Return the entry that a search in another spelling means, such as a defanged link."""
    try:
        return definition.spell(search)
    except (InvalidEntry, EntryTooBroad):
        return ""
