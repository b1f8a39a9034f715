"""Several tenants and one answer: what is settled, and what is answered before anything is handed on."""

from collections.abc import Sequence

import pytest
import structlog
from msgspec.structs import replace

from mailwarden.crypto.keyring import KeyRing
from mailwarden.errors import StorageUnavailable
from mailwarden.guard.sources.smtp_delivery import Delivery, Progress
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.result_headers import ResultSeal
from mailwarden.scan.shared_answer import Part, settle
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NextHop
from mailwarden.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request, part_of

D, Q, B, U, X = Decision.DELIVER, Decision.QUARANTINE, Decision.BOUNCE, Decision.UNDECIDED, Decision.DROP
RAW = Spooled.of(b"Subject: x\r\n\r\ntext\r\n")


class HeldWriter:
    """A keeper that remembers, or that cannot."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.kept: list[FinishedRequest] = []
        self._failure = failure

    async def hold(self, finished: FinishedRequest, raw: Spooled) -> None:
        if self._failure is not None:
            raise self._failure
        assert raw is RAW
        self.kept.append(finished)


def part(decision: Decision) -> Part:
    request = finished_request()
    return part_of(replace(request, ruling=replace(request.ruling, decision=decision)))


def progress_of(parts: Sequence[Part]) -> Progress:
    return Progress(parts, {part.tenant: [Recipient("a@b.example")] for part in parts})


async def answered(decisions: list[Decision], writer: HeldWriter | None) -> tuple[str, bool]:
    """Carry decisions out with a next hop that nobody listens at."""
    delivery = Delivery(
        NextHop(("127.0.0.1", 1), 1.0, "guard.example"), ResultSeal(KeyRing.of(b"k" * 32)), writer, Metrics()
    )
    progress = progress_of(settle([part(each) for each in decisions], apart=True))
    answer = await delivery.carry_out(progress, Sender(""), Forwarded(), RAW)
    return answer.reply[:9], answer.done


async def test_the_reply_names_the_verdict_and_no_reason() -> None:
    refused = part(B)
    delivery = Delivery(
        NextHop(("127.0.0.1", 1), 1.0, "guard.example"), ResultSeal(KeyRing.of(b"k" * 32)), None, Metrics()
    )
    answer = await delivery.carry_out(progress_of([refused]), Sender(""), Forwarded(), RAW)
    assert answer.reply == f"550 5.7.1 Refused: phishing ({refused.finished.ggrid})"


@pytest.mark.parametrize(
    ("decisions", "reply", "done"),
    [
        ([B], "550 5.7.1", True),
        ([B, B], "550 5.7.1", True),
        ([U], "451 4.7.1", True),
        ([D, U], "451 4.7.1", True),
        ([B, U], "451 4.7.1", True),
        ([X], "250 2.0.0", True),
        ([Q], "451 4.7.1", True),
        ([Q, D], "451 4.7.1", True),
        ([B, D], "451 4.7.1", True),
        ([B, X], "451 4.7.1", True),
        ([D], "451 4.4.1", False),
        ([D, X], "451 4.4.1", False),
    ],
)
async def test_without_a_quarantine_held_messages_are_deferred(decisions, reply, done) -> None:
    assert await answered(decisions, None) == (reply, done)


@pytest.mark.parametrize(
    ("decisions", "reply", "kept"),
    [
        ([Q], "250 2.0.0", 1),
        ([Q, Q, X], "250 2.0.0", 2),
        ([B, X], "250 2.0.0", 1),
        ([Q, U], "451 4.7.1", 0),
        ([Q, D], "451 4.4.1", 0),  # it comes again, and would be kept each time
    ],
)
async def test_with_a_quarantine_held_messages_are_stored_before_the_reply(decisions, reply, kept) -> None:
    writer = HeldWriter()
    assert (await answered(decisions, writer))[0] == reply
    assert [each.ruling.decision for each in writer.kept] == [Q] * kept


@pytest.mark.parametrize(
    ("failure", "level"), [(StorageUnavailable("The disk is full.", retry_after=5), "warning"), (KeyError(), "error")]
)
async def test_messages_that_cannot_be_stored_are_deferred_and_logged(failure: Exception, level: str) -> None:
    with structlog.testing.capture_logs() as logs:
        assert await answered([Q, X], HeldWriter(failure)) == ("451 4.3.0", False)
    (line,) = logs
    assert (line["event"], line["log_level"]) == ("not_held", level)
    assert line.get("sentence") == ("The disk is full." if level == "warning" else None)
