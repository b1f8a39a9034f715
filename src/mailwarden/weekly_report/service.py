"""Makes the weekly report of a tenant from figures that are counted already, within a time limit."""

import asyncio

from mailwarden.database.pool import Database
from mailwarden.errors import TenantNotFound
from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant
from mailwarden.weekly_report.model import Week, WeeklyReport
from mailwarden.weekly_report.store import ActionsStore


class WeeklyReports:
    def __init__(self, history: HistoryStore, actions: ActionsStore) -> None:
        self._history = history
        self._actions = actions

    async def build(self, scope: Scope, tenant: Tenant, week: Week) -> WeeklyReport:
        """Return the report, or raise TenantNotFound for a tenant outside the scope."""
        if not scope.allows(tenant.uid):
            raise TenantNotFound("There is no such tenant.")
        own, before = Scope.of(tenant.uid), week.earlier()
        figures, figures_before, attacked, actions, actions_before = await asyncio.gather(
            self._history.days(own, week.begin.date(), week.end.date()),
            self._history.days(own, before.begin.date(), before.end.date()),
            self._history.attacked_between(own, week.begin, week.end),
            self._actions.read(own, tenant.uid, week),
            self._actions.read(own, tenant.uid, before),
        )
        return WeeklyReport(
            tenant=tenant.uid,
            tenant_name=tenant.name,
            profile=tenant.profile,
            week=week,
            figures=figures,
            before=figures_before,
            attacked=attacked,
            actions=actions,
            actions_before=actions_before,
        )


def open_weekly_reports(database: Database, history: HistoryStore) -> WeeklyReports:
    return WeeklyReports(history, ActionsStore(database))
