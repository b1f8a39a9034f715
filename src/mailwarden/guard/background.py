"""The background jobs of guard: one table with how often each runs, what it needs, and how it is opened."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

from mailwarden.crypto.keyring import read_ring
from mailwarden.events import maintenance as events
from mailwarden.guard.config import GuardConfig
from mailwarden.guard.context import GuardContext, MailParts
from mailwarden.history import maintenance as history
from mailwarden.history.opening import open_history
from mailwarden.quarantine import digest_mail, release, retention
from mailwarden.quarantine.digest_links import DigestLinkSigner
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.quarantine.release_delivery import ReleaseInjector
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.release_token import ReleaseTokenSigner
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.user_reports.cases import answering
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.mailbox import polling
from mailwarden.user_reports.mailbox.imap_client import read_password
from mailwarden.user_reports.mailbox.store import MailboxStore
from mailwarden.user_reports.release_training import ReleaseTraining
from mailwarden.user_reports.reports import ContentsSeal
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore
from mailwarden.weekly_report import mailing
from mailwarden.weekly_report.service import open_weekly_reports
from mailwarden.weekly_report.store import MailStore


class Running(Protocol):
    """Work in the background; `stop` finishes or gives back what is in hand."""

    def start(self) -> None: ...

    async def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class JobParts:
    """The parts that jobs are opened with; `smtp` is None without the scan source `smtp`."""

    context: GuardContext
    smtp: MailParts | None

    @property
    def mail(self) -> MailParts:
        assert self.smtp is not None  # the job needs it
        return self.smtp

    @property
    def vault(self) -> Vault | None:
        """Return the vault; None on a guard without the scan source `smtp` that has neither a bucket nor a folder."""
        if self.smtp is not None:
            return self.smtp.vault
        context, settings = self.context, self.context.config.quarantine
        if settings.bucket is None and not (context.folder / settings.store).exists():
            return None
        return open_vault(
            settings, context.folder, read_ring(context.folder / context.config.contents.key, "contents.key")
        )


@dataclass(frozen=True, slots=True)
class Job:
    """`interval` is in seconds; `needs` returns whether the configuration has what the job needs."""

    name: str
    interval: float
    needs: Callable[[GuardConfig], bool]
    open: Callable[[JobParts, float], Iterable[Running]]


def _history_retention(parts: JobParts, interval: float) -> Iterator[Running]:
    store = open_history(parts.context.database, clickhouse=parts.context.clickhouse)
    yield history.Retention(store, parts.context.config.history.retention_days, interval)


def _history_rollups(parts: JobParts, interval: float) -> Iterator[Running]:
    yield history.Rollups(open_history(parts.context.database, clickhouse=parts.context.clickhouse), interval)


def _event_retention(parts: JobParts, interval: float) -> Iterator[Running]:
    yield events.EventRetention(parts.context.database, parts.context.config.events.retention_days, interval)


def _digests(parts: JobParts, interval: float) -> Iterator[Running]:
    context, settings = parts.context, parts.context.config.quarantine.digest
    assert settings is not None
    yield digest_mail.Digests(
        DigestStore(context.database),
        digest_mail.DigestWriter(settings, DigestLinkSigner(parts.mail.key)),
        parts.mail.hop,
        context.tenants,
        settings,
        metrics=context.metrics,
        interval=interval,
    )


def open_releases(parts: JobParts, interval: float = release.INTERVAL) -> Iterator[release.ReleaseJob]:
    """Yield the job that delivers released messages."""
    context, mail = parts.context, parts.mail
    # A guard behind the other address accepts a released message by the token that it carries.
    signer = None if mail.release_hop is mail.hop else ReleaseTokenSigner(mail.key)
    reports = ReportService(
        ReportStore(context.database),
        open_history(context.database, clickhouse=context.clickhouse),
        ContentsSeal(mail.key),
    )
    yield release.ReleaseJob(
        mail.vault,
        ReleaseStore(context.database),
        ReleaseInjector(mail.release_hop, signer),
        spool=context.spool,
        listener=ReleaseTraining(reports),
        interval=interval,
    )


def _quarantine_retention(parts: JobParts, interval: float) -> Iterator[Running]:
    context, database, vault = parts.context, parts.context.database, parts.vault
    if vault is None:
        return
    days = context.config.quarantine.days
    job = retention.QuarantineRetention(vault, RetentionStore(database), ReleaseStore(database), days, interval)
    context.metrics.gauge(
        "quarantine_vault_foreign", "1: the vault belongs to another deployment, and nothing is removed from it."
    ).set_function(lambda: job.foreign)
    yield job


def _quarantine_metrics(parts: JobParts, interval: float) -> Iterator[Running]:
    yield retention.QuarantineMetrics(RetentionStore(parts.context.database), parts.context.metrics, interval)


def _weekly_reports(parts: JobParts, interval: float) -> Iterator[Running]:
    context, settings = parts.context, parts.context.config.weekly_report
    assert settings is not None
    yield mailing.WeeklyReportMails(
        MailStore(context.database),
        open_weekly_reports(context.database, open_history(context.database, clickhouse=context.clickhouse)),
        parts.mail.hop,
        context.tenants,
        settings,
        metrics=context.metrics,
        interval=interval,
    )


def _case_answers(parts: JobParts, interval: float) -> Iterator[Running]:
    context, settings = parts.context, parts.context.config.reports
    assert settings is not None
    yield answering.CaseAnswers(
        CaseStore(context.database),
        parts.mail.hop,
        context.tenants,
        sender=settings.sender,
        retention_days=context.config.history.retention_days,
        metrics=context.metrics,
        interval=interval,
    )


def _report_mailboxes(parts: JobParts, interval: float) -> Iterator[Running]:
    context, settings, intake = parts.context, parts.context.config.reports, parts.mail.reports
    assert settings is not None
    assert intake is not None
    metrics, store = polling.MailboxMetrics(context.metrics), MailboxStore(context.database)
    for mailbox in settings.mailboxes:
        read_password(context.folder / mailbox.password)  # guard does not start without it
        yield polling.ReportMailbox(mailbox, context.folder, store, intake, metrics=metrics, interval=interval)


def _always(_: GuardConfig) -> bool:
    return True


def _smtp(config: GuardConfig) -> bool:
    return config.scan_sources.smtp is not None


def _smtp_digest(config: GuardConfig) -> bool:
    return _smtp(config) and config.quarantine.digest is not None


# `GuardConfig.mistakes` requires `smtp` for the settings below.
def _weekly_report(config: GuardConfig) -> bool:
    return _smtp(config) and config.weekly_report is not None


def _reports(config: GuardConfig) -> bool:
    return _smtp(config) and config.reports is not None


def _mailboxes(config: GuardConfig) -> bool:
    return _smtp(config) and config.reports is not None and bool(config.reports.mailboxes)


JOBS = (
    Job("history retention", history.RETENTION_INTERVAL, _always, _history_retention),
    Job("history rollups", history.ROLLUP_INTERVAL, _always, _history_rollups),
    Job("event retention", events.INTERVAL, _always, _event_retention),
    Job("quarantine digests", digest_mail.INTERVAL, _smtp_digest, _digests),
    Job("quarantine releases", release.INTERVAL, _smtp, open_releases),
    Job("quarantine retention", retention.INTERVAL, _always, _quarantine_retention),
    Job("quarantine metrics", retention.METRICS_INTERVAL, _always, _quarantine_metrics),
    Job("weekly reports", mailing.INTERVAL, _weekly_report, _weekly_reports),
    Job("case answers", answering.INTERVAL, _reports, _case_answers),
    Job("report mailboxes", polling.LOOK, _mailboxes, _report_mailboxes),
)


@asynccontextmanager
async def running_jobs(context: GuardContext, mail: MailParts | None) -> AsyncIterator[None]:
    """Run the jobs that the configuration needs until the block ends; stop them in reverse order."""
    parts = JobParts(context, mail)
    async with AsyncExitStack() as stack:
        for job in JOBS:
            if job.needs(context.config):
                for work in job.open(parts, job.interval):
                    stack.push_async_callback(work.stop)
                    work.start()
        yield
