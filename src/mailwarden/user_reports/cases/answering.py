"""Sends the answers to reporters of closed cases, and deletes old cases.

A guard claims an answer before it sends it, so that of several guards one sends it. An answer that the next hop does
not accept is tried again after a pause, which grows, until the attempts are used up. If a guard dies while it sends,
the answer is not sent again: no reporter gets it twice.

Security: an answer goes only to an address in a domain of the tenant, when it is sent.
"""

from collections.abc import AsyncGenerator, Callable
from datetime import UTC, datetime, timedelta

from mailwarden.access.tenants import TenantDirectory
from mailwarden.database.queue import Queue
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy
from mailwarden.smtp.client import DeliveryFailed, NextHop, OutcomeUnknown, hand_over
from mailwarden.smtp.own_mail import UnwritableAddress
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.telemetry.periodic_task import PeriodicTask
from mailwarden.user_reports.cases.answer import write_answer
from mailwarden.user_reports.cases.model import Answer, AnswerState
from mailwarden.user_reports.cases.store import CaseStore

INTERVAL, HOUR = 5.0, 3_600.0  # seconds
ALL = Scope.deployment()
_log = get_logger("guard.case_answers")


class CaseAnswers(Queue[Answer]):
    def __init__(
        self,
        store: CaseStore,
        hop: NextHop,
        tenants: TenantDirectory,
        *,
        sender: str,
        retention_days: int,
        metrics: Metrics,
        interval: float = INTERVAL,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__("case answers", interval, quiet=True)
        self._store = store
        self._hop = hop
        self._tenants = tenants
        self._sender = sender
        self._retention = timedelta(days=retention_days)
        self._clock = clock
        self._counted = metrics.counter("case_answers", "Answers to reporters of closed cases, by outcome.", "outcome")
        self._expiry = PeriodicTask("case expiry", self.expire, HOUR, quiet=True)

    def start(self) -> None:
        super().start()
        self._expiry.start(at_once=True)

    async def stop(self) -> None:
        await self._expiry.stop()
        await super().stop()

    async def jobs(self) -> AsyncGenerator[Answer, None]:
        while (answer := await self._store.claim_answer(ALL, self._clock())) is not None:
            yield answer

    async def expire(self) -> int:
        """Delete cases without a change within the retention period."""
        return await self._store.delete_old(ALL, self._clock() - self._retention)

    async def work(self, job: Answer) -> int:
        """Send one answer and store the outcome; return whether the next hop has it."""
        answer = job
        owner = self._tenants.assign(answer.reporter)
        if owner.by is not AssignedBy.DOMAINS or owner.tenant != answer.tenant:
            return await self._failed(answer, "the reporter belongs to no domain of the tenant")
        try:
            content = write_answer(answer, sender=self._sender, now=self._clock())
            await hand_over(self._hop, answer.reporter, content)
        except UnwritableAddress:
            return await self._failed(answer, "the address of the reporter cannot be written")
        except OutcomeUnknown:
            return await self._failed(answer, "the next hop did not say whether it has the answer")
        except DeliveryFailed as failed:
            self._counted.labels("waits").inc()
            # The text after the codes often names the recipient.
            _log.warning("case_answer_refused", tenant=str(answer.tenant), reason=" ".join(failed.reply.split()[:2]))
            await self._store.retry_answer(ALL, answer, self._clock())
            return False
        await self._store.settle_answer(ALL, answer, AnswerState.SENT)
        self._counted.labels("sent").inc()
        return True

    async def _failed(self, answer: Answer, reason: str) -> bool:
        self._counted.labels("refused").inc()
        _log.warning("case_answer_refused", tenant=str(answer.tenant), reason=reason)
        await self._store.settle_answer(ALL, answer, AnswerState.FAILED)
        return False
