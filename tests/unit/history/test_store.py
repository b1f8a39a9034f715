"""Explanations: which ids name a message, and which messages are new enough to wait for; the reason in a row."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mailwarden.errors import MessageNotFound
from mailwarden.history.store import is_recent, parse_ggrid
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Reason, Verdict


def test_a_ggrid_is_read_in_either_case():
    ggrid = new_ggrid()
    assert parse_ggrid(str(ggrid)) == parse_ggrid(str(ggrid).upper()) == ggrid


@pytest.mark.parametrize("text", ["", "x", "1" * 32, "{0192f0c1-0000-7000-8000-000000000001}", "urn:uuid:" + "0" * 32])
def test_an_invalid_ggrid_names_no_message(text):
    with pytest.raises(MessageNotFound):
        parse_ggrid(text)


def test_only_a_new_message_is_waited_for():
    now = datetime.now(UTC)
    assert is_recent(new_ggrid(), now)
    assert not is_recent(new_ggrid(), now + timedelta(minutes=3))
    assert not is_recent(uuid4(), now)


def reason(verdict: Verdict, weight: int, summary: str) -> Reason:
    return Reason(rule=summary, analyzer="html", verdict=verdict, weight=weight, summary=summary)
