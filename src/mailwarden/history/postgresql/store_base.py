"""The part of a history store that is the same wherever its rows are: PostgreSQL has all but the rows."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Protocol
from uuid import UUID

from mailwarden.database.clock import read_now
from mailwarden.database.pool import Database
from mailwarden.database.rows import read
from mailwarden.errors import GlobalScopeForbidden
from mailwarden.history.postgresql.campaigns import PostgresqlCampaignStore
from mailwarden.history.postgresql.days import read_days
from mailwarden.history.postgresql.statistics import RowCounter, StatisticsReader, update_rollups
from mailwarden.history.search_pages import SearchPages
from mailwarden.history.spans import Searcher
from mailwarden.history.store import Attacked, CampaignStore, DayFigures, HistoryRow, Range, Saved, Statistics
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.search.suggestions import Vocabulary
from mailwarden.senders.model import Counting, SenderStore
from mailwarden.senders.store import PostgresqlSenderStore

_TENANT_RETENTION = "SELECT uid, retention_days FROM tenants WHERE retention_days IS NOT NULL"


class AttackedRows(Protocol):
    """Counts the attacks in the rows by recipient, sender and campaign."""

    async def read(self, scope: Scope, range_: Range) -> Attacked: ...

    async def read_between(self, scope: Scope, since: datetime, until: datetime) -> Attacked: ...


class VocabularyRows(Protocol):
    """Collects the values of the rows that a search may name."""

    async def read(self, scope: Scope) -> Vocabulary: ...


class HistoryStoreBase(SearchPages):
    """Searches, senders, campaigns and figures, over the rows of a store."""

    def __init__(
        self,
        database: Database,
        *,
        searcher: Searcher,
        rows: RowCounter,
        attacked: AttackedRows,
        vocabulary: VocabularyRows,
    ) -> None:
        super().__init__(searcher)
        self.senders: SenderStore = PostgresqlSenderStore(database)
        self.campaigns: CampaignStore = PostgresqlCampaignStore(database)
        self._database = database
        self._rows = rows
        self._statistics = StatisticsReader(database, rows)
        self._attacked = attacked
        self._vocabulary = vocabulary

    @abstractmethod
    async def save_rows(self, scope: Scope, rows: Sequence[HistoryRow], counting: Counting | None = None) -> Saved: ...

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest], counting: Counting | None = None) -> Saved:
        return await self.save_rows(scope, [HistoryRow.of(request) for request in requests], counting)

    async def vocabulary(self, scope: Scope) -> Vocabulary:
        return await self._vocabulary.read(scope)

    async def statistics(self, scope: Scope, range_: Range) -> Statistics:
        return await self._statistics.read(scope, range_)

    async def attacked(self, scope: Scope, range_: Range) -> Attacked:
        return await self._attacked.read(scope, range_)

    async def attacked_between(self, scope: Scope, since: datetime, until: datetime) -> Attacked:
        return await self._attacked.read_between(scope, since, until)

    async def days(self, scope: Scope, since: date, until: date) -> DayFigures:
        async with self._database.connection() as connection:
            return await read_days(connection, scope, since, until)

    async def today(self, scope: Scope) -> Mapping[str, int]:
        return await self._statistics.read_today(scope)

    async def update_rollups(self, scope: Scope) -> datetime | None:
        require_deployment(scope)
        async with self._database.connection() as connection:
            return await update_rollups(connection, self._rows)

    async def now(self, scope: Scope) -> datetime:
        require_deployment(scope)
        async with self._database.connection() as connection:
            return await read_now(connection)

    async def tenant_retention(self, scope: Scope) -> Mapping[UUID, int]:
        async with self._database.connection() as connection:
            rows = await connection.fetch(_TENANT_RETENTION)
        days = {read(row, "uid", UUID): read(row, "retention_days", int) for row in rows}
        return {tenant: number for tenant, number in days.items() if scope.allows(tenant)}


def require_deployment(scope: Scope) -> None:
    if scope.tenants is not None:
        raise GlobalScopeForbidden(
            "Only the scope of the whole deployment may delete days, count rollups or add words."
        )
