"""History in PostgreSQL: one row for each ggrid and tenant, in the partition of the day the ggrid carries."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import cast
from uuid import UUID

import asyncpg

from mailwarden.database.pool import Connection, Database
from mailwarden.errors import GlobalScopeForbidden, StorageUnavailable
from mailwarden.history.page import MAX_ROWS, Count, Cursor, Page, row_of
from mailwarden.history.partitions import days_kept, drop_days, make_days
from mailwarden.history.query import Query, any_of
from mailwarden.history.records import as_joined, as_text, decode, encode
from mailwarden.history.rollups import LATE, tell_late
from mailwarden.history.searcher import Searcher
from mailwarden.history.terms import number_of, numbers_of, plain_address
from mailwarden.model.ggrid import day_of, moment_of
from mailwarden.model.outcome import SEVERITY, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger

_log = get_logger("history.postgresql")

_INSERT = """
INSERT INTO history (day, ggrid, tenant, created, completed, source, guard, envelope_from, recipients, from_address,
                     subject, message_id, sha256, verdict, decision, tags, url_hosts, record, remote_address,
                     terms)
SELECT day, ggrid, tenant, created, completed, source, guard, envelope_from, string_to_array(recipients, E'\\x1f'),
       from_address, subject, message_id, sha256, verdict, decision, string_to_array(tags, E'\\x1f'),
       string_to_array(url_hosts, E'\\x1f'), record, remote_address::inet, terms::bigint[]
FROM unnest($1::date[], $2::uuid[], $3::uuid[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::text[],
            $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
            $16::text[], $17::text[], $18::bytea[], $19::text[], $20::text[])
     AS given (day, ggrid, tenant, created, completed, source, guard, envelope_from, recipients, from_address,
               subject, message_id, sha256, verdict, decision, tags, url_hosts, record, remote_address, terms)
ON CONFLICT (day, ggrid, tenant) DO NOTHING
"""
# The most severe outcome first, as `severity` ranks them.
_OF_GGRID = """
FROM history WHERE day = $1 AND ggrid = $2 AND ($3::uuid[] IS NULL OR tenant = ANY($3))
ORDER BY array_position($4::text[], decision) DESC, array_position($5::text[], verdict), tenant
"""
_FIND = f"SELECT record {_OF_GGRID} LIMIT 1"
_TENANTS_OF = f"SELECT tenant {_OF_GGRID}"

_KEPT_DAYS = "SELECT uid, retention_days FROM tenants WHERE retention_days IS NOT NULL"
FORGET_BATCH = 1_000
_FORGET_OF_TENANT = """
DELETE FROM history WHERE day = $1 AND tenant = $2 AND ggrid IN (
    SELECT ggrid FROM history WHERE day = $1 AND tenant = $2 AND terms @> $3::bigint[] LIMIT $4
)
"""

SEARCH_SECONDS = 0.25  # after which a search begins no further window
CANDIDATE_SECONDS = 1.0
MAX_CANDIDATES = 20_000

Line = tuple[object, ...]


class PostgresqlHistoryStore:
    """The HistoryStore of a deployment with PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._searcher = Searcher(database)
        self._days: set[date] = set()

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int:
        lines = [line for request in requests if scope.allows(request.tenant) and (line := _line(request))]
        if not lines:
            return 0
        # The same order in every guard, so that two that tell of the same requests cannot wait for each other.
        lines.sort(key=lambda line: line[:3])
        async with self._database.connection() as connection:
            kept = await self._insert(connection, await self._with_a_day(connection, lines))
            oldest = moment_of(cast("UUID", lines[0][1]))
            if oldest is not None and oldest < datetime.now(UTC) - LATE:
                await tell_late(connection, oldest)
            return kept

    async def find(self, scope: Scope, ggrid: UUID) -> FinishedRequest | None:
        values = _of_ggrid(scope, ggrid)
        if values is None:
            return None
        async with self._database.connection() as connection:
            record = await connection.fetchval(_FIND, *values)
        return None if record is None else decode(cast("bytes", record))

    async def tenants_of(self, scope: Scope, ggrid: UUID) -> Sequence[UUID]:
        values = _of_ggrid(scope, ggrid)
        if values is None:
            return ()
        async with self._database.connection() as connection:
            return [cast("UUID", row["tenant"]) for row in await connection.fetch(_TENANTS_OF, *values)]

    async def search(self, scope: Scope, query: Query, before: Cursor | None = None, limit: int = 50) -> Page:
        limit = max(1, min(limit, MAX_ROWS))
        found = await self._searcher.search(scope, query, before, limit + 1, SEARCH_SECONDS)
        if len(found.requests) > limit:
            rows = tuple(map(row_of, found.requests[:limit]))
            return Page(rows, older=Cursor.of(rows[-1]))
        rows = tuple(map(row_of, found.requests))
        if found.complete:
            return Page(rows)
        return Page(rows, found.reached, complete=False, searched_to=moment_of(found.reached.ggrid))

    async def candidates(
        self, scope: Scope, terms: Sequence[str], since: datetime, limit: int
    ) -> Sequence[FinishedRequest]:
        query, limit = any_of(terms, since), max(1, min(limit, MAX_CANDIDATES))
        return (await self._searcher.search(scope, query, None, limit, CANDIDATE_SECONDS)).requests

    async def count(self, scope: Scope, terms: Sequence[str], since: datetime, timeout: float = 1.0) -> Count:  # noqa: ASYNC109
        return await self._searcher.count(scope, any_of(terms, since), timeout)

    async def forget(self, scope: Scope, before: date) -> int:
        if scope.tenants is not None:
            raise GlobalScopeForbidden("A day of history holds every tenant: only the whole deployment may forget it.")
        async with self._database.connection() as connection:
            self._days.clear()
            return await drop_days(connection, before)

    async def kept_days(self, scope: Scope) -> Mapping[UUID, int]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_KEPT_DAYS)
        limits = {cast("UUID", row["uid"]): cast("int", row["retention_days"]) for row in rows}
        return {tenant: days for tenant, days in limits.items() if scope.allows(tenant)}

    async def forget_of_tenants(self, scope: Scope, days: Mapping[UUID, date]) -> int:
        async with self._database.connection() as connection:
            kept = sorted(await days_kept(connection))
        gone = 0
        for tenant in sorted(tenant for tenant in days if scope.allows(tenant)):
            for day in (day for day in kept if day < days[tenant]):
                gone += await self._forget_day_of_tenant(day, tenant)
        return gone

    async def _forget_day_of_tenant(self, day: date, tenant: UUID) -> int:
        """Delete in small transactions, so that nobody waits for a lock on many rows."""
        gone = 0
        while True:
            async with self._database.connection() as connection:
                terms = [number_of(f"tenant:{tenant}")]
                status = await connection.execute(_FORGET_OF_TENANT, day, tenant, terms, FORGET_BATCH)
            deleted = int(status.rpartition(" ")[2])
            gone += deleted
            if deleted < FORGET_BATCH:
                return gone

    async def _with_a_day(self, connection: Connection, lines: Sequence[Line]) -> Sequence[Line]:
        """Make the days that are missing and return the lines whose day is there."""
        days = {cast("date", line[0]) for line in lines}
        if not days <= self._days:
            self._days = await make_days(connection, days)
        for line in lines:
            if line[0] not in self._days:
                _log.error("history_without_a_day", ggrid=str(line[1]), day=str(line[0]))
        return [line for line in lines if line[0] in self._days]

    async def _insert(self, connection: Connection, lines: Sequence[Line]) -> int:
        """Insert the lines in one statement; only where that fails, by halves, until the bad one is alone."""
        if not lines:
            return 0
        try:
            await connection.execute(_INSERT, *map(list, zip(*lines, strict=True)))
        except asyncpg.CheckViolationError:
            # Another process dropped a day that we remember: the next try asks which days there are.
            self._days.clear()
            raise StorageUnavailable("A day of history was dropped just now.", retry_after=1) from None
        except (asyncpg.DataError, asyncpg.IntegrityConstraintViolationError):
            if len(lines) == 1:
                _log.exception("history_not_kept", ggrid=str(lines[0][1]))
                return 0
        else:
            return len(lines)
        middle = len(lines) // 2
        return await self._insert(connection, lines[:middle]) + await self._insert(connection, lines[middle:])


def _of_ggrid(scope: Scope, ggrid: UUID) -> Line | None:
    """Return the values of statements about one ggrid, or None for an id that is none of ours."""
    day = day_of(ggrid)
    tenants = None if scope.tenants is None else sorted(scope.tenants)
    return None if day is None else (day, ggrid, tenants, SEVERITY, tuple(Verdict))


def _line(request: FinishedRequest) -> Line | None:
    """Return the columns of a request, or None for an id that is none of ours."""
    day = day_of(request.ggrid)
    if day is None:
        _log.error("history_not_kept", ggrid=str(request.ggrid), reason="not a guard request's id")
        return None
    summary = request.summary
    return (
        day,
        request.ggrid,
        request.tenant,
        request.created,
        request.completed,
        as_text(request.source),
        as_text(request.guard),
        as_text(request.envelope.sender),
        as_joined(request.envelope.recipients),
        as_text(summary.from_address),
        as_text(summary.subject),
        as_text(summary.message_id),
        as_text(summary.sha256),
        request.judgement.verdict,
        request.ruling.decision,
        as_joined(request.tags),
        as_joined(summary.url_hosts),
        encode(request),
        _address(request.envelope.remote_address),
        f"{{{','.join(map(str, numbers_of(request)))}}}",
    )


def _address(text: str | None) -> str | None:
    """Return the address as PostgreSQL reads it, or None where there is none or it is none."""
    try:
        return None if text is None else str(plain_address(text))
    except ValueError:
        return None
