"""Copies the rows of history from one store to the other, and verifies them afterwards.

No position is kept: a copy asks the target for every key and writes the missing rows, so it may be killed and started
again, and a second one changes nothing. It holds one page of rows at a time. Events and counts of senders are in
PostgreSQL with either store and are not repeated.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import date
from typing import Protocol, TypeVar
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import StorageUnavailable
from mailwarden.history.store import Cursor, HistoryRow, RejectedRequest, StoredRecord

PAGE = 2_000  # keys and rows that are held at a time
MAX_REASON = 200
RETRIES = (2.0, 5.0, 15.0, 30.0)  # pauses during an outage

T = TypeVar("T")


class HistoryTable(Protocol):
    """The rows of one store, by day."""

    async def days(self) -> Sequence[date]:
        """Return the days that have rows or may have them, the newest first."""

    async def count(self, day: date) -> int:
        """Return about how many rows a day has, for the progress."""

    def keys(self, day: date, size: int) -> AsyncIterator[Sequence[Cursor]]:
        """Yield the keys of a day in pages, each key once."""

    async def stored(self, day: date, keys: Sequence[Cursor]) -> set[Cursor]:
        """Return those of the keys that have a row."""

    async def records(self, day: date, keys: Sequence[Cursor]) -> Mapping[Cursor, StoredRecord]:
        """Return the records of the keys that have a row."""

    async def add(self, day: date, rows: Sequence[HistoryRow]) -> Sequence[RejectedRequest]:
        """Write rows that are missing, without events and counts; return those that the store refuses."""


class Copied(Struct, frozen=True):
    """The rows of a copy: all that were read, those that were written, and those that cannot be."""

    rows: int = 0
    written: int = 0
    failed: int = 0
    reason: str = ""  # of the first failed row

    def __add__(self, other: "Copied") -> "Copied":
        return Copied(
            self.rows + other.rows,
            self.written + other.written,
            self.failed + other.failed,
            self.reason or other.reason,
        )


class DayCheck(Struct, frozen=True):
    """The rows of one tenant on one day: in the source, and those of them that the target lacks."""

    day: date
    tenant: UUID
    rows: int
    missing: int


async def through_outages(run: Callable[[], Awaitable[T]]) -> T:
    """Run a day; repeat it after an outage, for about a minute."""
    for pause in RETRIES:
        try:
            return await run()
        except StorageUnavailable:
            await asyncio.sleep(pause)
    return await run()


async def copy_day(
    source: HistoryTable, target: HistoryTable, day: date, advance: Callable[[int], None], page: int = PAGE
) -> Copied:
    """Copy the rows of a day that the target lacks."""
    copied = Copied()
    async for keys in source.keys(day, page):
        stored = await target.stored(day, keys)
        missing = [key for key in keys if key not in stored]
        copied += await _copy(source, target, day, missing) + Copied(rows=len(keys))
        advance(len(keys))
    return copied


async def _copy(source: HistoryTable, target: HistoryTable, day: date, keys: Sequence[Cursor]) -> Copied:
    if not keys:
        return Copied()
    rows: list[HistoryRow] = []
    reasons: list[str] = []
    for key, record in (await source.records(day, keys)).items():
        try:
            rows.append(HistoryRow(record.request, record.record))
        except Exception as error:  # a row of another version must not stop the others; the check names it
            reasons.append(f"{key.ggrid}: {type(error).__name__}: {error}")
    rejected = await target.add(day, rows) if rows else ()
    reasons += [f"{each.request.ggrid}: {each.reason}" for each in rejected]
    return Copied(0, len(rows) - len(rejected), len(reasons), reasons[0][:MAX_REASON] if reasons else "")


async def check_day(
    source: HistoryTable, target: HistoryTable, day: date, advance: Callable[[int], None], page: int = PAGE
) -> list[DayCheck]:
    """Ask the target for every key of a day; return the numbers of each tenant."""
    rows, missing = Counter[UUID](), Counter[UUID]()
    async for keys in source.keys(day, page):
        stored = await target.stored(day, keys)
        rows.update(key.tenant for key in keys)
        missing.update(key.tenant for key in keys if key not in stored)
        advance(len(keys))
    return [DayCheck(day, tenant, rows[tenant], missing[tenant]) for tenant in sorted(rows)]
