"""Background jobs of history: retention, and the dashboard's counters."""

from datetime import date, timedelta

from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import PeriodicTask

RETENTION_INTERVAL = 3_600.0
ROLLUP_INTERVAL = 30.0
SENDER_DAYS = 400  # after which a sender that was not seen again is deleted
DOMAIN_DAYS = 180  # after which the deployment forgets a domain that was not seen again
ONE_TENANT_DAYS = 30  # the same, of a domain that wrote to one tenant only
THREAD_DAYS = 90  # after which a message is no longer remembered as a part of a conversation
CAMPAIGN_DAYS = 30  # after which a campaign without a new message is forgotten, or with the history

_ALL = Scope.deployment()
_log = get_logger("history.maintenance")


class Retention:
    """Runs once an hour in every guard; concurrent runs are safe, as a day is deleted once."""

    def __init__(self, store: HistoryStore, days: int, interval: float = RETENTION_INTERVAL) -> None:
        self._store = store
        self._days = days
        self._periodic_task = PeriodicTask("history retention", self._run, interval)
        # One that fails must not keep the others from deleting.
        self._steps = tuple(
            PeriodicTask(f"history retention, {name}", step, interval)
            for name, step in (
                ("days", self._delete_days),
                ("tenants", self._delete_for_tenants),
                ("senders", self._delete_senders),
                ("domains", self._delete_domains),
                ("threads", self._delete_threads),
                ("campaigns", self._delete_campaigns),
            )
        )

    async def delete_days(self) -> int:
        """Delete the days after the deployment's retention; return how many."""
        return await self._store.delete_days(_ALL, await self._today() - timedelta(days=self._days))

    async def delete_for_tenants(self) -> int:
        """Delete the rows of tenants with a shorter retention than the deployment; return how many."""
        retention = await self._store.tenant_retention(_ALL)
        today = await self._today()
        before = {tenant: today - timedelta(days=days) for tenant, days in retention.items() if days < self._days}
        return await self._store.delete_for_tenants(_ALL, before) if before else 0

    async def delete_senders(self) -> int:
        """Delete the contacts that were not seen for SENDER_DAYS; return how many."""
        return await self._store.senders.delete_unseen(_ALL, await self._today() - timedelta(days=SENDER_DAYS))

    async def delete_domains(self) -> int:
        """Delete the domains that the deployment did not see again; return how many."""
        today = await self._today()
        before, before_of_one = today - timedelta(days=DOMAIN_DAYS), today - timedelta(days=ONE_TENANT_DAYS)
        return await self._store.senders.delete_domains(_ALL, before, before_of_one)

    async def delete_threads(self) -> int:
        """Delete the messages of conversations after THREAD_DAYS; return how many."""
        return await self._store.senders.delete_messages(_ALL, await self._today() - timedelta(days=THREAD_DAYS))

    async def delete_campaigns(self) -> int:
        """Forget campaigns without a message for CAMPAIGN_DAYS, or for the shorter retention of a tenant."""
        store, today = self._store.campaigns, await self._today()
        deleted = await store.delete_unseen(_ALL, today - timedelta(days=min(CAMPAIGN_DAYS, self._days)))
        for tenant, days in (await self._store.tenant_retention(_ALL)).items():
            if days < min(CAMPAIGN_DAYS, self._days):
                deleted += await store.delete_unseen(Scope.of(tenant), today - timedelta(days=days))
        return deleted

    def start(self) -> None:
        self._periodic_task.start(at_once=True)

    async def stop(self) -> None:
        await self._periodic_task.stop()

    async def _today(self) -> date:
        """Return the day by PostgreSQL's clock; raise CommandError if this host's clock differs."""
        return (await self._store.now(_ALL)).date()

    async def _run(self) -> None:
        for step in self._steps:
            await step.attempt()

    async def _delete_days(self) -> None:
        if days := await self.delete_days():
            _log.info("history_days_deleted", days=days)

    async def _delete_for_tenants(self) -> None:
        if messages := await self.delete_for_tenants():
            _log.info("history_of_tenants_deleted", messages=messages)

    async def _delete_senders(self) -> None:
        if contacts := await self.delete_senders():
            _log.info("sender_history_deleted", contacts=contacts)

    async def _delete_domains(self) -> None:
        if domains := await self.delete_domains():
            _log.info("domain_memory_deleted", domains=domains)

    async def _delete_threads(self) -> None:
        if messages := await self.delete_threads():
            _log.info("thread_messages_deleted", messages=messages)

    async def _delete_campaigns(self) -> None:
        if references := await self.delete_campaigns():
            _log.info("campaigns_deleted", references=references)


class Rollups:
    """Counts new rows twice a minute; of several guards, one at a time."""

    def __init__(self, store: HistoryStore, interval: float = ROLLUP_INTERVAL) -> None:
        self._store = store
        self._periodic_task = PeriodicTask("history rollups", self._run, interval)

    def start(self) -> None:
        self._periodic_task.start(at_once=True)

    async def stop(self) -> None:
        await self._periodic_task.stop()

    async def _run(self) -> None:
        await self._store.update_rollups(_ALL)
