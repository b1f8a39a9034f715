"""Forgets the days of history that are older than the deployment keeps, and what a tenant keeps no longer."""

from datetime import timedelta

from mailwarden.history.partitions import today
from mailwarden.history.relationship_store import RelationshipStore
from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.logs import get_logger

INTERVAL = 3_600.0
ACQUAINTED_DAYS = 400  # after which who has written to whom is forgotten, unless it was seen again

_log = get_logger("history.retention")


class Retention:
    """Looks once an hour; several guards may do so at once, for a day can only be dropped once."""

    def __init__(
        self,
        store: HistoryStore,
        days: int,
        interval: float = INTERVAL,
        relationships: RelationshipStore | None = None,
    ) -> None:
        self._store = store
        self._relationships = relationships
        self._days = days
        self._chore = Chore("history retention", self._forget_all, interval)

    async def forget(self) -> int:
        """Forget every day before the oldest one to keep; return how many went."""
        return await self._store.forget(Scope.deployment(), today() - timedelta(days=self._days))

    async def forget_of_tenants(self) -> int:
        """Forget what a tenant keeps for fewer days than the deployment; return how many messages that were."""
        kept = await self._store.kept_days(Scope.deployment())
        limits = {tenant: today() - timedelta(days=days) for tenant, days in kept.items() if days < self._days}
        return await self._store.forget_of_tenants(Scope.deployment(), limits) if limits else 0

    async def forget_relationships(self) -> int:
        """Forget who has not written to whom for long; return how many pairs that were."""
        if self._relationships is None:
            return 0
        return await self._relationships.forget(Scope.deployment(), today() - timedelta(days=ACQUAINTED_DAYS))

    def start(self) -> None:
        self._chore.start(rested=True)

    async def stop(self) -> None:
        await self._chore.stop()

    async def _forget_all(self) -> None:
        if days := await self.forget():
            _log.info("history_forgotten", days=days)
        if messages := await self.forget_of_tenants():
            _log.info("history_of_tenants_forgotten", messages=messages)
        if pairs := await self.forget_relationships():
            _log.info("relationships_forgotten", pairs=pairs)
