"""What an address asks of the quarantine, read and written again."""

from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mailwarden.console.screens.quarantine import QuarantineSearch, read_search
from mailwarden.errors import SchemaViolation
from mailwarden.model.outcome import Verdict
from mailwarden.quarantine.model import HeldFilter, HeldMessage, PageCursor, State

LAST = HeldMessage(
    uid=uuid4(),
    tenant=uuid4(),
    ggrid=uuid4(),
    vault=uuid4(),
    address=None,
    size=1,
    sender="",
    from_address="",
    from_name="",
    subject="",
    verdict=Verdict.SPAM,
    received=datetime(2026, 11, 15, 9, 0, 0, 123456, tzinfo=UTC),
    expires=datetime(2026, 12, 15, tzinfo=UTC),
    missing=False,
    recipients=(),
)


def test_an_empty_search_lists_held_messages() -> None:
    assert read_search({}).question(None) == HeldFilter(state=State.HELD)
    assert read_search({}).address() == "/console/quarantine"
    assert not read_search({}).is_narrow
    assert read_search({"state": "any"}).is_narrow


def test_text_without_an_at_sign_is_a_domain() -> None:
    asked = read_search({"recipient": " acme.example ", "sender": "eve@evil.example", "state": "any"}).question(None)
    assert (asked.recipient, asked.sender, asked.state) == ("@acme.example", "eve@evil.example", None)


def test_an_address_keeps_the_search_and_the_place() -> None:
    search = QuarantineSearch(
        tenant="a&b", verdict="spam", state="released", recipient="x", sender="y", subject="two words"
    )
    query = dict(parse_qsl(urlsplit(search.to_older(LAST)).query))
    assert read_search(query) == replace(search, after=PageCursor(LAST.received, LAST.uid))


@pytest.mark.parametrize(
    "query",
    [
        {"verdict": "bad"},
        {"state": "gone"},
        {"after": "x"},
        {"after": f"0001-01-01T00:00:00+23:59_{uuid4()}"},
        {"after": "2026-11-15T09:00:00+00:00_x"},
    ],
)
def test_an_unknown_value_is_rejected(query: dict[str, str]) -> None:
    with pytest.raises(SchemaViolation):
        read_search(query)
