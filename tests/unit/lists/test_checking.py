"""A value is read by its form, met by the keys that guard uses, and the entry that acts is named."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailwarden.lists.catalogue import CATALOGUE
from mailwarden.lists.checking import READINGS, Found, keys_for, match_entries, readings_of, winners
from mailwarden.lists.matching import Match
from mailwarden.lists.requests import PublicListsEntry

NOW = datetime(2026, 6, 1, tzinfo=UTC)
TENANT = UUID("01890000-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("value", "readings"),
    [
        ("a@spam.example", ("sender", "recipient")),
        ("192.0.2.7", ("ip",)),
        ("2001:db8::1", ("ip",)),
        ("https://evil.example/login", ("url",)),
        ("evil.example/login", ("url",)),
        ("application/x-msdownload", ("file",)),
        (".exe", ("file",)),
        ("evil.example", ("domain", "file")),
        ("9F86D081884C7D659A2FEAA0C55AD015A3BF4F1B2B0B822CD15D6C15B0F00A08", ("hash",)),
        ("You have won", ("subject", "name")),
    ],
)
def test_a_value_is_read_by_its_form(value, readings):
    assert readings_of(value) == readings


@pytest.mark.parametrize(
    ("value", "list_name", "entry"),
    [
        ("A@Mail.Spam.Example", "sender-block", "*.spam.example"),
        ("a@spam.example", "recipient-exempt", "spam.example"),
        ("a@spam.example", "simulation-senders", "spam.example"),
        ("192.0.2.7", "ip-block", "192.0.2.0/24"),
        ("::ffff:192.0.2.7", "trusted-relays", "192.0.2.7"),
        ("2001:db8::1", "simulation-senders", "2001:db8::/32"),
        ("https://Evil.example:443/login/page?x=1#y", "url-block", "evil.example/login/*"),
        ("invoice.pdf.exe", "attachment-block", ".pdf.exe"),
        ("application/x-msdownload", "attachment-block", "application/x-msdownload"),
        ("You have WON a prize", "subject-block", "you have won"),
        ("You have WON a prize", "subject-block", "/w[o0]n a/i"),
        ("Byron, Ada <eve@evil.example>", "protected-people", "Ada Byron <ada@example.com>"),
        ("Аdа Вуrоn <eve@evil.example>", "protected-people", "Ada Byron <ada@example.com>"),
        ("bank.example", "protected-domains", "bank.example"),
        ("098F6BCD4621D373CADE4E832627B4F6", "file-hash-block", "098f6bcd4621d373cade4e832627b4f6"),
    ],
)
def test_an_entry_matches_as_in_guard(value, list_name, entry):
    keys = keys_for(value, readings_of(value))
    entries = [present("other.example" if list_name != "subject-block" else "something else"), present(entry)]
    found = list(match_entries(list_name, keys[list_name], entries, None, NOW))
    assert [each.match.entry for each in found] == [entry]


def test_an_expired_entry_is_shown_and_does_not_act():
    keys = keys_for("a@spam.example", ["sender"])["sender-block"]
    entries = [
        present("spam.example", "2026-05-31T00:00:00.000Z"),
        present("a@spam.example", "2026-07-01T00:00:00.000Z"),
    ]
    old, valid = match_entries("sender-block", keys, entries, None, NOW)
    assert (old.expired, valid.expired) == (True, False)
    assert winners([old, valid]) == [valid.match]


def test_a_tenants_entry_wins_over_a_more_specific_global_one_and_rivals_are_compared():
    block = Match("sender-block", "a@spam.example")
    allow = Match("sender-allow", "spam.example", TENANT)
    exempt = Match("recipient-exempt", "spam.example")
    found = [Found(block, "sender", False), Found(allow, "sender", False), Found(exempt, "recipient", False)]
    assert winners(found) == [allow, exempt]


def present(entry: str, expires: str | None = None) -> PublicListsEntry:
    moment = "2026-01-01T00:00:00.000Z"
    return PublicListsEntry(entry, "", moment, "key:a", moment, "key:a", expires, 0, None)


def test_every_value_that_lists_match_has_a_reading():
    checked = {value for reading in READINGS.values() for value in reading("a.example")}
    assert checked == {value for each in CATALOGUE for value in each.match_on}, (
        "add it to READINGS in lists/checking.py"
    )
