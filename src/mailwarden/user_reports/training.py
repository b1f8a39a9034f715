"""Trains the engine that learns in the background, and knows which classifier's statistics a tenant's messages use.

One guard of a deployment trains at a time. A report that cannot be learned now waits; scans never wait for training.
"""

import time
from collections.abc import Mapping
from datetime import timedelta
from uuid import UUID

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.crypto.keyring import BrokenSeal, UnknownKey
from mailwarden.engines.engine import Teacher
from mailwarden.errors import EngineUnavailable
from mailwarden.model.evidence import FailureKind
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import PeriodicTask
from mailwarden.user_reports.reports import ContentsSeal, PendingReport, classifier_of
from mailwarden.user_reports.store import ReportStore

PERIOD, HOUR = 2.0, 3_600.0
TRUSTED = HOUR  # between two checks that the engine isolates classifiers: its configuration may change
ROUND = 50  # reports between two reads of the classifiers in use
FAILURES = 2  # tenants with failed reports: with one it may be the message, with two it is the engine
_ALL = Scope.deployment()
_log = get_logger("guard.training")


class Training:
    """The classifier of each tenant, returned without I/O, and the background job that trains them."""

    def __init__(self, store: ReportStore, teacher: Teacher, seal: ContentsSeal, retention_days: int) -> None:
        self._store = store
        self._teacher = teacher
        self._seal = seal
        self._retention = timedelta(days=retention_days)
        self._classifiers: Mapping[UUID, str] = {}
        self._trusted = False  # to isolate the tenants' training data
        self._check_at = 0.0
        self._tasks = (
            PeriodicTask("training", self.work, PERIOD),
            PeriodicTask("report expiry", self.expire, HOUR, quiet=True),
        )

    def classifier(self, tenant: UUID) -> str:
        """Return the classifier whose statistics apply to the tenant's messages; "" if too little is learned."""
        return self._classifiers.get(tenant, "")

    def start(self) -> None:
        for task in self._tasks:
            task.start(at_once=True)

    async def stop(self) -> None:
        for task in self._tasks:
            await task.stop()
        await self._teacher.close()

    async def work(self) -> None:
        """Train pending reports in rounds, and update the classifiers in use."""
        await self._read_classifiers()
        if not self._trusted or time.monotonic() >= self._check_at:
            await self._trust()
        async with self._store.training_lock(_ALL) as mine:
            while mine and await self._round():
                await self._read_classifiers()

    async def _trust(self) -> None:
        """Check that the engine isolates classifiers; until then guard trains nothing and uses no statistics."""
        try:
            await self._teacher.check()
        except EngineFailed as error:
            if error.kind is FailureKind.UNFINISHED:  # the engine answers incorrectly
                self._trusted, self._classifiers = False, {}
            raise EngineUnavailable(error.sentence) from error
        self._trusted, self._check_at = True, time.monotonic() + TRUSTED
        await self._read_classifiers()

    async def _read_classifiers(self) -> None:
        statuses = await self._store.statuses(_ALL)
        self._classifiers = {status.tenant: status.classifier for status in statuses if status.active and self._trusted}

    async def _round(self) -> bool:
        """Train some reports, and return whether more may be pending."""
        reports = await self._store.pending(_ALL, ROUND)
        failed: set[UUID] = set()
        waiting = 0
        for report in reports:
            if report.tenant in failed:
                continue
            try:
                await self._train(report)
            except EngineFailed as error:
                _log.warning("reports_wait", tenant=str(report.tenant), reason=error.sentence, reports=len(reports))
                failed.add(report.tenant)
                self._check_at = 0.0  # the engine may no longer isolate classifiers
                if len(failed) >= FAILURES:
                    return False
            except UnknownKey as error:
                _log.error("report_needs_key", report=str(report.uid), tenant=str(report.tenant), reason=str(error))
                waiting += 1
        switched = await self._store.switch(_ALL)
        if switched:
            await self._read_classifiers()
        for tenant, done_with in switched:
            for (
                generation
            ) in done_with:  # several, if more reports were withdrawn before the first rebuild was complete
                await self._forget(tenant, generation)
        return bool(reports) and not failed and not waiting

    async def expire(self) -> None:
        """Delete reports beyond the retention period."""
        await self._store.delete_old(_ALL, self._retention)

    async def _train(self, report: PendingReport) -> None:
        try:
            message = self._seal.open(report.contents, report.uid)
        except UnknownKey:  # the report waits until the key is restored
            raise
        except BrokenSeal as error:
            _log.warning("report_unreadable", report=str(report.uid), reason=str(error))
            await self._store.mark_trained(_ALL, report, rejected=True)
            return
        classifier = classifier_of(report.tenant, report.generation)
        learned = await self._teacher.teach(message, classifier, threat=report.kind.is_threat)
        await self._store.mark_trained(_ALL, report, rejected=not learned)

    async def _forget(self, tenant: UUID, generation: int) -> None:
        """Remove the statistics of a generation that is no longer in use."""
        try:
            gone = await self._teacher.forget(classifier_of(tenant, generation))
        except EngineFailed as error:
            _log.warning("statistics_not_removed", tenant=str(tenant), generation=generation, reason=error.sentence)
        else:
            _log.info("statistics_removed", tenant=str(tenant), generation=generation, keys=gone)
