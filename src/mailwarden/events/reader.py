"""Reads events in their order, by a cursor.

A cursor is the number of the last event that was looked at. Only numbers up to `settled_events()` are read: below it no
transaction is open that could still add an event, so that no event is skipped. See decision 93.

Security: tenants are separated here. Every statement has the tenants of the scope.
"""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar, cast
from uuid import UUID

import msgspec

from mailwarden.database.pool import Connection, Database, Row
from mailwarden.database.rows import read, read_optional
from mailwarden.errors import CursorExpired, SchemaViolation
from mailwarden.events.catalogue import Event, Json, StoredRecord
from mailwarden.model.scope import Scope

T = TypeVar("T")

MAX_PAGE = 1_000
LOOKED_AT = 5_000  # rows of all tenants that one page looks at, so that every read is short
_CURSOR_VERSION = b"\x01"
_CURSOR_BYTES = 9

_SETTLED = "SELECT settled_events()"
_REMOVED = "SELECT (SELECT number FROM events_removed) AS removed, (SELECT last_value FROM event_numbers) AS last"
# $3 has the tenants, NULL for all; $4 says whether events of the deployment belong to the answer. The outer limit stops
# the scan: a page after a long pause does not read the rows of the next pages.
_READ = f"""
SELECT number, id, type, time, tenant, subject, data
FROM (SELECT * FROM events WHERE number > $1 AND number <= $2 ORDER BY number LIMIT {LOOKED_AT}) AS looked_at
WHERE CASE WHEN tenant IS NULL THEN $4::boolean ELSE $3::uuid[] IS NULL OR tenant = ANY ($3) END
  AND ($5::text[] IS NULL OR type = ANY ($5))
ORDER BY number LIMIT $6
"""  # noqa: S608 -- built from constants
_REACHED = f"""
SELECT number FROM events WHERE number > $1 AND number <= $2 ORDER BY number OFFSET {LOOKED_AT - 1} LIMIT 1
"""  # noqa: S608 -- built from constants
_NEW = """
SELECT DISTINCT tenant, type FROM events WHERE number > $1 AND number <= $2
"""
_data = msgspec.json.Decoder(dict[str, Json])


@dataclass(frozen=True, slots=True)
class Filter:
    """The events that a reader may see and wants: `deployment` includes events without a tenant."""

    scope: Scope
    deployment: bool
    types: frozenset[str] | None = None  # None: all

    def matches(self, tenant: UUID | None, kind: str) -> bool:
        visible = self.deployment if tenant is None else self.scope.allows(tenant)
        return visible and (self.types is None or kind in self.types)


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Events in their order. `next` is set for an empty page too; `more` says that it may have further events now."""

    events: Sequence[T]
    next: str
    number: int  # of `next`
    more: bool


class EventReader:
    """Reads the outbox; nothing is changed by reading."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def read_after(self, wanted: Filter, cursor: str | None, limit: int = 100) -> Page[Event]:
        """Return the events after the cursor; None starts with the oldest event that is kept.

        Raises CursorExpired if events after the cursor were removed by retention, or if the cursor is from another
        state of the database.
        """
        return await self._read(_event, wanted, cursor, limit)

    async def read_encoded(self, wanted: Filter, cursor: str | None, limit: int = 100) -> Page[bytes]:
        """Return the events as `read_after` does, in their native JSON form; their data is not decoded."""
        return await self._read(_encoded, wanted, cursor, limit)

    async def _read(self, make: Callable[[Row], T], wanted: Filter, cursor: str | None, limit: int) -> Page[T]:
        after = 0 if cursor is None else number_of(cursor)
        limit = max(1, min(limit, MAX_PAGE))
        types = None if wanted.types is None else sorted(wanted.types)
        async with self._database.connection() as connection:
            settled = cast("int", await connection.fetchval(_SETTLED))
            # A statement of its own: its snapshot must be newer than the bound.
            rest = (wanted.scope.uids(), wanted.deployment, types, limit)
            rows = await connection.fetch(_READ, after, settled, *rest)
            number, more = max(after, settled), False
            if len(rows) < limit and settled - after >= LOOKED_AT:
                reached = cast("int | None", await connection.fetchval(_REACHED, after, settled))
                if reached is not None:
                    # Up to a fixed number: retention may have removed rows since the first read.
                    rows = await connection.fetch(_READ, after, reached, *rest)
                    number, more = reached, True
            if len(rows) == limit:
                number, more = read(rows[-1], "number", int), True
            if cursor is not None:
                await _check_cursor(connection, after)
        return Page([make(row) for row in rows], cursor_of(number), number, more)

    async def latest(self) -> str:
        """Return the cursor behind the newest event."""
        return cursor_of(await self.settled())

    async def settled(self) -> int:
        """Return the number up to which every event can be read."""
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval(_SETTLED))

    async def new_kinds(self, after: int, until: int) -> Sequence[tuple[UUID | None, str]]:
        """Return the tenants and types of the events between two numbers."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_NEW, after, until)
        return [(read_optional(row, "tenant", UUID), str(row["type"])) for row in rows]


async def _check_cursor(connection: Connection, after: int) -> None:
    """Raise CursorExpired if events after the cursor are missing.

    It is called after the read, which retention may overtake.
    """
    row = await connection.fetchrow(_REMOVED)
    assert row is not None
    if after < read(row, "removed", int):
        raise CursorExpired("Events after this cursor were removed by retention. Start again without `after`.")
    if after > read(row, "last", int):
        raise CursorExpired("This cursor is newer than the database, which was restored. Start again without `after`.")


def _event(row: Row) -> Event:
    return Event(
        id=read(row, "id", UUID),
        type=str(row["type"]),
        time=read(row, "time", datetime),
        tenant=read_optional(row, "tenant", UUID),
        subject=str(row["subject"]),
        data=_data.decode(str(row["data"])),
    )


def _encoded(row: Row) -> bytes:
    return StoredRecord(
        id=read(row, "id", UUID),
        type=str(row["type"]),
        time=read(row, "time", datetime),
        tenant_uid=read_optional(row, "tenant", UUID),
        subject=str(row["subject"]),
        data=msgspec.Raw(str(row["data"]).encode()),
    ).encode()


def cursor_of(number: int) -> str:
    """Return the cursor behind an event."""
    return base64.urlsafe_b64encode(_CURSOR_VERSION + number.to_bytes(_CURSOR_BYTES - 1)).decode()


def number_of(cursor: str) -> int:
    """Return the number in a cursor, or raise SchemaViolation."""
    try:
        raw = base64.b64decode(cursor, altchars=b"-_", validate=True)
    except ValueError:
        raw = b""
    if len(raw) != _CURSOR_BYTES or raw[:1] != _CURSOR_VERSION or raw[1] > 0x7F:
        raise SchemaViolation("`after` is no cursor: use `next` of the page before, or `latest`.")
    return int.from_bytes(raw[1:])
