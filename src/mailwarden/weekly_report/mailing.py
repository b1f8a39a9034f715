"""Sends the weekly reports: on Mondays, once to each chosen user of a tenant that switched them on.

A guard claims the mail of a tenant and week, so that of several guards one sends it. A mail that the next hop does not
accept is tried again after a pause, which grows, until the attempts are used up or the next week begins. A recipient
is noted before the mail is sent: after a crash in between, that recipient gets no report of that week, and none twice.

Security: a report goes only to users of the console who belong to its tenant when it is sent, at the address that an
administrator gave them. The report is read with the scope of that tenant alone.
"""

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.users import User
from mailwarden.database.queue import Queue
from mailwarden.model.scope import Scope
from mailwarden.smtp.client import DeliveryFailed, NextHop, OutcomeUnknown, hand_over
from mailwarden.smtp.own_mail import UnwritableAddress
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.weekly_report.mail import write_mail
from mailwarden.weekly_report.model import DAYS, Week, WeeklyReport
from mailwarden.weekly_report.service import WeeklyReports
from mailwarden.weekly_report.settings import WeeklyReportSettings
from mailwarden.weekly_report.store import MailJob, MailStore

INTERVAL = 60.0  # seconds between two checks of the clock
ALL = Scope.deployment()
_log = get_logger("guard.weekly_reports")


class Outcome(Struct, frozen=True):
    """Why a user did not get the report, and whether it is tried again; empty if the next hop accepted it."""

    failure: str = ""
    again: bool = False


class WeeklyReportMails(Queue[MailJob]):
    def __init__(
        self,
        store: MailStore,
        reports: WeeklyReports,
        hop: NextHop,
        tenants: TenantDirectory,
        settings: WeeklyReportSettings,
        *,
        metrics: Metrics,
        interval: float = INTERVAL,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__("weekly reports", interval)
        self._store = store
        self._reports = reports
        self._hop = hop
        self._tenants = tenants
        self._settings = settings
        self._clock = clock
        self._counted = metrics.counter("weekly_reports", "Emails of weekly reports, by outcome.", "outcome")

    async def look(self) -> int:
        if sent := await super().look():
            _log.info("weekly_reports_sent", mails=sent)
        return sent

    async def jobs(self) -> AsyncGenerator[MailJob, None]:
        """Claim the mails of the last full week that are due."""
        now = self._clock()
        week = Week.before(now)
        hour = week.begin + timedelta(days=DAYS, hours=self._settings.hour)
        if now < hour:
            return
        await self._store.prepare(ALL, week, hour, now)
        while (job := await self._store.claim(ALL, week, now)) is not None:
            yield job

    async def work(self, job: MailJob) -> int:
        """Send one tenant's report to the users who do not have it yet; return to how many."""
        scope = Scope.of(job.tenant)
        tenant = await self._tenants.find(job.tenant)
        users = await self._store.recipients(scope, job)
        outcomes: list[Outcome] = []
        if tenant is not None and users:
            report = await self._reports.build(scope, tenant, job.week)
            outcomes = [await self._send(scope, job, user, report) for user in users]
        failure = next((outcome.failure for outcome in outcomes if outcome.failure), "")
        if any(outcome.again for outcome in outcomes) and not job.is_last:
            await self._store.retry(scope, job, self._clock(), failure)
        else:
            await self._store.finish(scope, job, self._clock(), failure)
        return sum(not outcome.failure for outcome in outcomes)

    async def _send(self, scope: Scope, job: MailJob, user: User, report: WeeklyReport) -> Outcome:
        """Send the report to one user, and store the outcome."""
        if not await self._store.begin(scope, job, user.uid):
            return Outcome("another guard sends it")
        settings, address = self._settings, user.email
        try:
            content = write_mail(
                report, sender=settings.sender, recipient=address, link=settings.link, now=self._clock()
            )
            await hand_over(self._hop, address, content)
        except DeliveryFailed as failed:
            await self._store.give_back(scope, job, user.uid)
            # The text after the codes often names the recipient.
            return self._failed(job, " ".join(failed.reply.split()[:2]), again=True)
        except UnwritableAddress:
            return self._failed(job, "the address of a recipient cannot be written")
        except OutcomeUnknown:
            return self._failed(job, "the next hop did not say whether it has the mail")
        await self._store.set_sent(scope, job)
        self._counted.labels("sent").inc()
        return Outcome()

    def _failed(self, job: MailJob, reason: str, *, again: bool = False) -> Outcome:
        self._counted.labels("waits" if again and not job.is_last else "refused").inc()
        _log.warning("weekly_report_refused", tenant=str(job.tenant), week=str(job.week), reason=reason)
        return Outcome(reason, again)
