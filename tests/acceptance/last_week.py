"""Attacks and figures of the last full week, as guards would have stored them then."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.model.ggrid import first_ggrid, new_ggrid
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import CampaignIds
from mailwarden.model.scope import Scope
from mailwarden.weekly_report.model import Week
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import _run
from tests.integration.held_messages import finished

WEEK = Week.before(datetime.now(UTC))
THREATS = {"decision:quarantine": 4, "verdict:phishing": 3, "verdict:spam": 1}
_DAY = """
INSERT INTO history_days (tenant, day, counts) VALUES ($1, $2, $3)
ON CONFLICT (tenant, day) DO UPDATE SET counts = excluded.counts
"""


def attack_last_week(deployment: Deployment, targets: Mapping[str, str], times: int = 3) -> None:
    """Store attacks of one campaign on one recipient of each tenant."""

    async def work(database: Database) -> None:
        for tenant, target in targets.items():
            own = CampaignIds(UUID(int=new_ggrid().int), UUID(int=new_ggrid().int))
            base = finished(
                UUID(deployment.tenants[tenant]),
                verdict=Verdict.PHISHING,
                recipients=(target,),
                subject="Your parcel is waiting",
                campaign=own,
            )
            for number in range(times):
                moment = WEEK.begin + timedelta(days=2, minutes=number)
                ggrid = UUID(int=first_ggrid(moment).int | (new_ggrid().int & ((1 << 62) - 1)))
                made = msgspec.structs.replace(base, ggrid=ggrid, created=moment, completed=moment)
                await open_history(database).save(Scope.deployment(), [made])

    _run(deployment, work)


def count_last_weeks(deployment: Deployment, tenant: str) -> None:
    """Store the figures of the last two weeks, with more messages each day."""

    async def work(database: Database) -> None:
        async with database.connection() as connection:
            for number in range(14):
                day, messages = WEEK.earlier().monday + timedelta(days=number), 40 + 9 * number
                counts = {"decision:deliver": messages, "verdict:clean": messages, **THREATS}
                for owner in (UUID(deployment.tenants[tenant]), UUID(int=0)):
                    await connection.execute(_DAY, owner, day, msgspec.json.encode(counts).decode())

    _run(deployment, work)
