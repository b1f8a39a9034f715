"""Addresses come out of a header as a person would read them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.addresses import Address, first_address, read_addresses


@pytest.mark.parametrize(
    ("value", "pairs"),
    [
        ("a@b.example", [("", "a@b.example")]),
        ("Ann <Ann@B.Example>", [("Ann", "Ann@b.example")]),
        ('"Doe, John" <j@b.example>, k@c.example', [("Doe, John", "j@b.example"), ("", "k@c.example")]),
        ("a@b.example (Ann B)", [("Ann B", "a@b.example")]),
        ("Team: a@x.example, B <b@y.example>;", [("", "a@x.example"), ("B", "b@y.example")]),
        ("<@relay.example:u@d.example>", [("", "u@d.example")]),
        ("Boss boss@corp.example", [("Boss", "boss@corp.example")]),
        ('"boss@corp.example" <evil@bad.example>', [("boss@corp.example", "evil@bad.example")]),
        ("undisclosed-recipients:;", []),
        ("", []),
    ],
)
def test_a_list_of_mailboxes_is_read(value: str, pairs: list[tuple[str, str]]):
    assert [tuple(address) for address in read_addresses(value)] == pairs


def test_the_domain_is_what_follows_the_last_at_sign():
    assert first_address("X <a@b@c.example>") == Address("X", "a@b@c.example")
    assert first_address("X <a@b@c.example>").domain == "c.example"


def test_at_most_a_thousand_are_read():
    assert len(read_addresses("a@b.example," * 5_000)) == 1_000


@given(st.text(max_size=300))
def test_any_text_is_read(value: str):
    read_addresses(value)
