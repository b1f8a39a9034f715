"""The scan source `smtp`: what history is told is what happened."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import StorageUnavailable
from mailwarden.guard.admission import Admission
from mailwarden.guard.config import Smtp as Settings
from mailwarden.guard.list_lookup import ListLookupResult
from mailwarden.guard.processing import Examined, GuardRequest
from mailwarden.guard.result_headers import ResultSeal
from mailwarden.guard.smtp.commands import Recipient, Sender
from mailwarden.guard.smtp.delivery import Delivery
from mailwarden.guard.smtp.next_hop import NextHop
from mailwarden.guard.smtp.session import Transaction
from mailwarden.guard.smtp.source import Smtp
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request

D, Q, B, U, X = Decision.DELIVER, Decision.QUARANTINE, Decision.BOUNCE, Decision.UNDECIDED, Decision.DROP


class Judge:
    """Decides for each tenant what it was told to, and remembers what it is told to keep."""

    def __init__(self, decisions: list[Decision]) -> None:
        self._decisions = iter(decisions)
        self.kept: list[Decision] = []

    async def examine(self, request: GuardRequest) -> list[Examined]:
        examined = []
        for group in request.groups:
            finished = finished_request(group.tenant, request.ggrid)
            ruling = replace(finished.ruling, decision=next(self._decisions))
            examined.append(Examined(replace(finished, ruling=ruling), cast("ListLookupResult", None), stored=True))
        return examined

    async def keep(self, examined: Sequence[Examined]) -> None:
        self.kept += [each.finished.ruling.decision for each in examined]


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


async def taken(decisions: list[Decision], writer: HeldWriter | None = None) -> tuple[str, list[Decision]]:
    """Return the answer to a message for as many tenants, and the decisions that history is told of."""
    judge = Judge(decisions)
    nobody = NextHop(("127.0.0.1", 1), 1.0, "guard.example")
    source = Smtp(
        Settings(),
        admission=Admission(maximum=1, threshold=1, max_delay=0.0, max_bytes=1_000),
        processing=cast("Any", judge),
        tenants=cast("Any", None),
        delivery=Delivery(nobody, ResultSeal(KeyRing.of(b"k" * 32)), writer or HeldWriter(0), Metrics()),
        tokens=cast("Any", NoTokens()),
        spool=Path(),
        analysis_timeout=1.0,
    )
    transaction = Transaction()
    transaction.sender = Sender("")
    for number in range(len(decisions)):
        recipient = Recipient(f"a@t{number}.example")
        transaction.recipients.append(recipient)
        transaction.assigned[recipient.address] = Assignment(UUID(int=number), AssignedBy.DOMAINS)
        transaction.tenants[UUID(int=number)] = [recipient]
    reply = await source.take(transaction, Spooled.of(b"Subject: x\r\n\r\n"))
    return reply[:9], judge.kept


@pytest.mark.parametrize(
    ("decisions", "reply", "reported"),
    [
        ([Q], "250 2.0.0", [Q]),
        ([B, Q], "250 2.0.0", [Q, Q]),
        ([B, B], "550 5.7.1", [B, B]),
        ([X, Q], "250 2.0.0", [X, Q]),
        ([U], "451 4.7.1", [U]),
        ([Q, U], "451 4.7.1", [U]),
        ([U, D, B, X, U], "451 4.7.1", [U, U]),
        ([D], "451 4.4.1", []),
    ],
)
async def test_history_records_the_executed_decision(
    decisions: list[Decision], reply: str, reported: list[Decision]
) -> None:
    assert await taken(decisions) == (reply, reported)


@pytest.mark.parametrize(
    ("in_doubt", "reported"),
    [(True, [Q, Q]), (False, [Q])],
)
async def test_history_has_a_row_of_what_may_be_in_quarantine(in_doubt: bool, reported: list[Decision]) -> None:
    """The client is asked to retry, but the first message is held, and the second may be."""
    failure = StorageUnavailable("The database did not answer.")
    failure.in_doubt = in_doubt
    assert await taken([Q, Q, Q], HeldWriter(1, failure)) == ("451 4.3.0", reported)
