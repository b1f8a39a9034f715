"""What history has of messages that were carried out in part: a row for every tenant that has the message, or may."""

import asyncio
from collections.abc import Mapping

import pytest

from mailwarden.errors import StorageUnavailable
from mailwarden.guard.sources import smtp_delivery
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.commands import Sender
from mailwarden.telemetry.metrics import Metrics
from tests.integration.scripted_hop import Scripted
from tests.samples.smtp_source import HeldWriter, Judge, smtp_source, transaction_for

D, Q, X = Decision.DELIVER, Decision.QUARANTINE, Decision.DROP
RAW = Spooled.of(b"Subject: x\r\n\r\ntext\r\n")
LARGE = Spooled.of(b"Subject: x\r\n\r\n" + b"text\r\n" * 1_500_000)
IN_PART = b'smtp_messages_total{outcome="delivered_in_part"} 1.0'
FULL = StorageUnavailable("The disk is full.")
REFUSED = "552 5.3.4 Too big"


async def taken(
    decisions: list[Decision], script: Mapping[str, str], writer: HeldWriter | None = None, raw: Spooled = RAW
) -> tuple[str, list[int], bool]:
    """Return the reply, the tenants with a row, and whether the message is counted as delivered in part."""
    judge, metrics = Judge(decisions), Metrics()
    async with Scripted(**script).serving(timeout=0.5 if "HANG" in script.values() else 20.0) as hop:
        reply = await smtp_source(judge, hop, writer, metrics).take(transaction_for(len(decisions)), raw)
    return reply[:9], judge.tenants, IN_PART in metrics.page()


@pytest.mark.parametrize(
    ("decisions", "script", "reply", "rows", "in_part"),
    [
        ([D, D], {"END a@t1.example": REFUSED}, "451 4.3.0", [0], True),
        ([D, D, D], {"END a@t1.example": REFUSED}, "451 4.3.0", [0], True),
        ([D, X, D], {"END a@t2.example": REFUSED}, "451 4.3.0", [0], True),
        ([D, D], {"END a@t1.example": "452 4.3.1 Later"}, "452 4.3.1", [0], True),
        ([D, D], {"END a@t1.example": "CLOSE"}, "451 4.4.2", [0, 1], True),
        ([D, D], {"END a@t0.example": "CLOSE"}, "451 4.4.2", [0], False),
        ([D, D], {"END a@t0.example": REFUSED}, "552 5.3.4", [], False),
        ([D], {"END": REFUSED}, "552 5.3.4", [], False),
        ([X, D], {"END": REFUSED}, "552 5.3.4", [], False),
        ([D], {"END": "CLOSE"}, "451 4.4.2", [0], False),
        ([D], {"END": "HANG"}, "451 4.4.2", [0], False),
        ([D], {"END": "nonsense"}, "451 4.4.2", [0], False),
        ([Q, D], {"END": REFUSED}, "451 4.3.0", [0], False),
        ([D, Q], {"END": REFUSED}, "451 4.3.0", [1], False),
        ([Q, D], {"END": "CLOSE"}, "451 4.4.2", [0, 1], False),
        ([Q, D], {"RCPT": "550 5.1.1 Unknown"}, "550 5.1.1", [], False),
        ([D, D], {"RCPT TO:<a@t1.example>": "550 5.1.1 Unknown"}, "550 5.1.1", [], False),
    ],
)
async def test_every_tenant_that_may_have_the_message_has_a_row(
    decisions: list[Decision], script: Mapping[str, str], reply: str, rows: list[int], in_part: bool
) -> None:
    assert await taken(decisions, script) == (reply, rows, in_part)


@pytest.mark.parametrize("first", [D, Q])
async def test_a_permanent_rejection_of_a_part_is_passed_on_to_the_retry(first: Decision) -> None:
    """Otherwise the other tenant gets the message again with every retry of several days."""
    judge = Judge([first, D])
    async with Scripted(**{"END a@t1.example": REFUSED}).serving() as hop:
        source = smtp_source(judge, hop)
        replies = [(await source.take(transaction_for(2), RAW))[:9] for _ in range(3)]
    assert replies == ["451 4.3.0", "552 5.3.4", "451 4.3.0"]
    assert judge.tenants == [0] * 3


async def test_a_rejection_is_remembered_for_its_own_message() -> None:
    judge = Judge([D, D])
    async with Scripted(**{"END a@t1.example": REFUSED}).serving() as hop:
        source = smtp_source(judge, hop)
        other = transaction_for(2)
        other.sender = Sender("alice@pass.example")
        replies = [(await source.take(each, RAW))[:9] for each in (transaction_for(2), other, transaction_for(2))]
    assert replies == ["451 4.3.0", "451 4.3.0", "552 5.3.4"]


def test_only_recent_rejections_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smtp_delivery, "MAX_REJECTED", 2)
    rejected = smtp_delivery.RejectedInPart()
    assert [rejected.again(message, now=0.0) for message in (1, 2, 3)] == [False] * 3
    assert not rejected.again(1, now=0.0), "the oldest was forgotten for the third"
    assert rejected.again(3, now=smtp_delivery.REMEMBERED_SECONDS - 1.0)
    assert not rejected.again(1, now=smtp_delivery.REMEMBERED_SECONDS + 1.0)


async def test_a_message_that_was_cut_off_has_no_row() -> None:
    """Without the last dot the next hop has no message (RFC 5321, section 4.1.1.4)."""
    assert await taken([D], {"BODY": "CLOSE"}, raw=LARGE) == ("451 4.4.2", [], False)


async def test_nothing_is_sent_after_the_quarantine_failed() -> None:
    assert await taken([D, Q, Q], {}, HeldWriter(1, FULL)) == ("451 4.3.0", [1], False)


async def test_parts_sent_before_the_time_was_over_have_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the whole message ends while a later part waits for its reply, which is then in doubt."""
    monkeypatch.setattr(smtp_delivery, "DELIVERY_TIMEOUTS", 0.1)
    server, judge, metrics = Scripted(END="SLOW"), Judge([D] * 8), Metrics()
    server.slowness = 0.7
    async with server.serving(timeout=20.0) as hop:
        reply = await smtp_source(judge, hop, metrics=metrics).take(transaction_for(8), RAW)
        sent = len(server.messages)
    assert reply == "451 4.4.2 The next hop is too slow; try again later"
    assert sent in (2, 3)
    assert judge.tenants == list(range(sent))
    assert IN_PART in metrics.page()


class StuckWriter(HeldWriter):
    """Stores the first messages; at the next one it waits for a commit that never returns."""

    def __init__(self, stores: int) -> None:
        super().__init__(stores)
        self.waits = asyncio.Event()

    async def hold(self, finished: FinishedRequest, raw: Spooled) -> None:
        await super().hold(finished, raw)
        if self._left < 0:
            self.waits.set()
            await asyncio.Event().wait()


async def cancelled(decisions: list[Decision], server: Scripted, writer: HeldWriter, waits: asyncio.Event) -> list[int]:
    """Cancel the work as a client that hangs up does, with two calls; return the tenants with a row."""
    judge = Judge(decisions)
    async with server.serving() as hop, asyncio.timeout(20.0):
        work = asyncio.create_task(smtp_source(judge, hop, writer).take(transaction_for(len(decisions)), RAW))
        await waits.wait()
        work.cancel()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    return judge.tenants


@pytest.mark.parametrize(("decisions", "rows"), [([Q], [0]), ([Q, D], [0]), ([X, Q, Q], [1])])
async def test_a_client_that_hangs_up_during_a_commit_leaves_a_row(decisions: list[Decision], rows: list[int]) -> None:
    writer = StuckWriter(0)
    assert await cancelled(decisions, Scripted(), writer, writer.waits) == rows


async def test_a_message_held_before_the_client_hung_up_has_a_row() -> None:
    writer = StuckWriter(1)
    assert await cancelled([Q, Q, Q], Scripted(), writer, writer.waits) == [0, 1]


@pytest.mark.parametrize(("decisions", "rows"), [([D], [0]), ([Q, D], [0, 1]), ([D, D, D], [0])])
async def test_a_message_sent_before_the_client_hung_up_has_a_row(decisions: list[Decision], rows: list[int]) -> None:
    server = Scripted(END="HANG")
    assert await cancelled(decisions, server, HeldWriter(1), server.received) == rows
