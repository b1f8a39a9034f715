"""The scan source `smtp`: what history is told is what happened."""

import pytest

from mailwarden.errors import StorageUnavailable
from mailwarden.model.outcome import Decision
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import NextHop
from tests.samples.smtp_source import HeldWriter, Judge, smtp_source, transaction_for

D, Q, B, U, X = Decision.DELIVER, Decision.QUARANTINE, Decision.BOUNCE, Decision.UNDECIDED, Decision.DROP


async def taken(decisions: list[Decision], writer: HeldWriter | None = None) -> tuple[str, list[Decision]]:
    """Return the reply to a message for as many tenants, and the decisions that have a row in history."""
    judge = Judge(decisions)
    source = smtp_source(judge, NextHop(("127.0.0.1", 1), 1.0, "guard.example"), writer)
    reply = await source.take(transaction_for(len(decisions)), Spooled.of(b"Subject: x\r\n\r\n"))
    return reply[:9], [each.ruling.decision for each in judge.kept]


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
