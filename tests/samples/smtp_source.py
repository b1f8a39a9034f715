"""The scan source `smtp` with judgements from a list, and what it stores in history and quarantine."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from msgspec.structs import replace

from mailwarden.crypto.keyring import KeyRing
from mailwarden.guard.sources.smtp import Smtp
from mailwarden.guard.sources.smtp_delivery import Delivery, QuarantineWriter
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.quarantine.result_headers import ResultSeal
from mailwarden.scan.admission import Admission
from mailwarden.scan.shared_answer import Part
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NextHop
from mailwarden.smtp.commands import Recipient, Sender
from mailwarden.smtp.session import Transaction
from mailwarden.smtp.settings import Smtp as Settings
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request, part_of


class Judge:
    """Makes the given decisions, one per tenant, and records the rows for history."""

    def __init__(self, decisions: list[Decision]) -> None:
        self._decisions = decisions
        self.kept: list[FinishedRequest] = []

    @property
    def tenants(self) -> list[int]:
        """Return the numbers of the tenants that have a row."""
        return [each.tenant.int for each in self.kept]

    async def judge(self, scan: Scan) -> list[Part]:
        parts = []
        for group, decision in zip(scan.groups, self._decisions, strict=True):
            finished = finished_request(group.tenant, scan.ggrid)
            ruling = replace(finished.ruling, decision=decision)
            parts.append(part_of(replace(finished, ruling=ruling)))
        return parts

    async def keep(self, parts: Sequence[Part]) -> None:
        self.keep_unconfirmed(parts)

    def keep_unconfirmed(self, parts: Sequence[Part]) -> None:
        self.kept += [each.finished for each in parts]


class NoTokens:
    async def claim(self, *_: object) -> None:
        return None


class HeldWriter:
    """Stores the first messages, and fails for the others."""

    def __init__(self, stores: int, failure: Exception | None = None) -> None:
        self._left = stores
        self._failure = failure

    async def hold(self, finished: FinishedRequest, raw: Spooled) -> None:
        self._left -= 1
        if self._left < 0 and self._failure is not None:
            raise self._failure


def smtp_source(
    judge: Judge, hop: NextHop, writer: QuarantineWriter | None = None, metrics: Metrics | None = None
) -> Smtp:
    return Smtp(
        Settings(),
        admission=Admission(maximum=1, threshold=1, max_delay=0.0, max_bytes=10_000_000),
        processing=cast("Any", judge),
        tenants=cast("Any", None),
        delivery=Delivery(hop, ResultSeal(KeyRing.of(b"k" * 32)), writer or HeldWriter(0), metrics or Metrics()),
        tokens=cast("Any", NoTokens()),
        spool=Path(),
    )


def transaction_for(tenants: int | Sequence[UUID]) -> Transaction:
    """Return the envelope of a message for one recipient of each tenant: a@t0.example, a@t1.example and so on."""
    uids = [UUID(int=number) for number in range(tenants)] if isinstance(tenants, int) else tenants
    transaction = Transaction()
    transaction.sender = Sender("")
    for number, tenant in enumerate(uids):
        recipient = Recipient(f"a@t{number}.example")
        transaction.recipients.append(recipient)
        transaction.assigned[recipient.address] = Assignment(tenant, AssignedBy.DOMAINS)
        transaction.tenants[tenant] = [recipient]
    return transaction
