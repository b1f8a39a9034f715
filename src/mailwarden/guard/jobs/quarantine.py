"""Assembles the quarantine of a guard: the writer, and the jobs for releases, digests, retention and metrics."""

from contextlib import AsyncExitStack

from mailwarden.crypto.keyring import KeyRing
from mailwarden.guard.context import GuardContext
from mailwarden.guard.jobs.digests import Digests, DigestWriter
from mailwarden.guard.jobs.releases import ReleaseInjector, ReleaseTraining
from mailwarden.guard.smtp.next_hop import NextHop
from mailwarden.history.opening import open_history
from mailwarden.learning.reports import ContentsSeal
from mailwarden.learning.service import ReportService
from mailwarden.learning.store import ReportStore
from mailwarden.quarantine.digest import DigestLinkSigner, DigestStore
from mailwarden.quarantine.release import ReleaseJob, ReleaseStore
from mailwarden.quarantine.release_token import ReleaseTokenSigner
from mailwarden.quarantine.retention import QuarantineMetrics, QuarantineRetention, RetentionStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import open_vault


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
    history = open_history(database)
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
    for job in (releasing, retention, totals):
        stack.push_async_callback(job.stop)
        job.start()
    return QuarantineWriter(vault, QuarantineStore(database), settings.days)
