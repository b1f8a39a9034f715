"""The background jobs of guard: which run, and what each is given."""

from contextlib import AsyncExitStack

from mailwarden.crypto.keyring import KeyRing
from mailwarden.guard.context import GuardContext
from mailwarden.history.opening import open_history
from mailwarden.quarantine.digest_links import DigestLinkSigner
from mailwarden.quarantine.digest_mail import Digests, DigestWriter
from mailwarden.quarantine.digest_store import DigestStore
from mailwarden.quarantine.release import ReleaseJob
from mailwarden.quarantine.release_delivery import ReleaseInjector
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.release_token import ReleaseTokenSigner
from mailwarden.quarantine.retention import QuarantineMetrics, QuarantineRetention
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import open_vault
from mailwarden.smtp.client import NextHop
from mailwarden.user_reports.cases.answering import CaseAnswers
from mailwarden.user_reports.cases.service import CaseService
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.intake import ReportIntake
from mailwarden.user_reports.mailbox.imap_client import read_password
from mailwarden.user_reports.mailbox.polling import Intake, MailboxMetrics, ReportMailbox
from mailwarden.user_reports.mailbox.store import MailboxStore
from mailwarden.user_reports.release_training import ReleaseTraining
from mailwarden.user_reports.reports import ContentsSeal
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore
from mailwarden.weekly_report.mailing import WeeklyReportMails
from mailwarden.weekly_report.service import open_weekly_reports
from mailwarden.weekly_report.store import MailStore


def _open_reports(context: GuardContext, *, key: KeyRing, hop: NextHop, stack: AsyncExitStack) -> ReportIntake | None:
    """Return the intake of reports, if configured; mailboxes are polled and answers sent until the stack is closed."""
    config, database = context.config, context.database
    if config.reports is None:
        return None
    history = open_history(database, clickhouse=context.clickhouse)
    store, seal = CaseStore(database), ContentsSeal(key)
    answers = CaseAnswers(
        store,
        hop,
        context.tenants,
        sender=config.reports.sender,
        retention_days=config.history.retention_days,
        metrics=context.metrics,
    )
    stack.push_async_callback(answers.stop)
    answers.start()
    intake = ReportIntake(
        config.reports,
        CaseService(store, history, ReportService(ReportStore(database), history, seal), seal),
        tenants=context.tenants,
        admission=context.admission,
        processing=context.processing,
        analysis_timeout=config.analysis_timeout / 1000,
        metrics=context.metrics,
    )
    start_report_mailboxes(context, intake=intake, stack=stack)
    return intake


def start_weekly_reports(context: GuardContext, *, hop: NextHop, stack: AsyncExitStack) -> None:
    """Send weekly reports until the stack is closed, if they are configured."""
    settings, database = context.config.weekly_report, context.database
    if settings is None:
        return
    reports = open_weekly_reports(database, open_history(database, clickhouse=context.clickhouse))
    mails = WeeklyReportMails(MailStore(database), reports, hop, context.tenants, settings, metrics=context.metrics)
    stack.push_async_callback(mails.stop)
    mails.start()


def start_quarantine(context: GuardContext, *, key: KeyRing, hop: NextHop, stack: AsyncExitStack) -> QuarantineWriter:
    """Return the writer; releases, digests and retention run until the stack is closed."""
    settings, database = context.config.quarantine, context.database
    vault, releases = open_vault(settings, context.folder, key), ReleaseStore(database)
    if settings.digest is not None:
        writer = DigestWriter(settings.digest, DigestLinkSigner(key))
        digests = Digests(DigestStore(database), writer, hop, context.tenants, settings.digest, metrics=context.metrics)
        stack.push_async_callback(digests.stop)
        digests.start()
    signer = None
    if settings.release_address is not None:
        hop = NextHop(settings.release_address, hop.timeout, "guard.localhost")
        stack.callback(hop.close)
        signer = ReleaseTokenSigner(key)
    history = open_history(database, clickhouse=context.clickhouse)
    reports = ReportService(ReportStore(database), history, ContentsSeal(key))
    releasing = ReleaseJob(
        vault,
        releases,
        ReleaseInjector(hop, signer),
        spool=context.spool,
        listener=ReleaseTraining(reports),
    )
    retention_store = RetentionStore(database)
    retention = QuarantineRetention(vault, retention_store, releases, settings.days)
    totals = QuarantineMetrics(retention_store, context.metrics)
    context.metrics.gauge(
        "quarantine_vault_foreign", "1: the vault belongs to another deployment, and nothing is removed from it."
    ).set_function(lambda: retention.foreign)
    for job in (releasing, retention, totals):
        stack.push_async_callback(job.stop)
        job.start()
    return QuarantineWriter(vault, QuarantineStore(database), settings.days)


def start_report_mailboxes(context: GuardContext, *, intake: Intake, stack: AsyncExitStack) -> None:
    """Poll the report mailboxes of the configuration until the stack is closed."""
    reports = context.config.reports
    if reports is None or not reports.mailboxes:
        return
    metrics, store = MailboxMetrics(context.metrics), MailboxStore(context.database)
    for settings in reports.mailboxes:
        read_password(context.folder / settings.password)  # guard does not start without it
        mailbox = ReportMailbox(settings, context.folder, store, intake, metrics=metrics)
        stack.push_async_callback(mailbox.stop)
        mailbox.start()
