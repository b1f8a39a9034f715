"""Explanations: which ids name a message, and which messages are new enough to wait for."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mailwarden.errors import MessageNotFound
from mailwarden.history.finding import ggrid_in, was_just_made
from mailwarden.model.ggrid import new_ggrid


def test_a_ggrid_is_read_in_either_case():
    ggrid = new_ggrid()
    assert ggrid_in(str(ggrid)) == ggrid_in(str(ggrid).upper()) == ggrid


@pytest.mark.parametrize("text", ["", "x", "1" * 32, "{0192f0c1-0000-7000-8000-000000000001}", "urn:uuid:" + "0" * 32])
def test_what_is_no_ggrid_names_no_message(text):
    with pytest.raises(MessageNotFound):
        ggrid_in(text)


def test_only_a_new_message_is_waited_for():
    now = datetime.now(UTC)
    assert was_just_made(new_ggrid(), now)
    assert not was_just_made(new_ggrid(), now + timedelta(minutes=3))
    assert not was_just_made(uuid4(), now)
