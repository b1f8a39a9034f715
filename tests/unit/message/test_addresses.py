"""Reading addresses, the sender identity, and the correspondents of a message."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.addresses import (
    MAX_RECIPIENTS,
    Address,
    correspondents,
    first_address,
    is_host,
    read_addresses,
    read_identity,
)


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


def test_the_domain_follows_the_last_at_sign():
    assert first_address("X <a@b@c.example>") == Address("X", "a@b@c.example")
    assert first_address("X <a@b@c.example>").domain == "c.example"


def test_at_most_a_thousand_are_read():
    assert len(read_addresses("a@b.example," * 5_000)) == 1_000


@given(st.text(max_size=300))
def test_any_text_is_read(value: str):
    read_addresses(value)


@pytest.mark.parametrize(
    ("value", "name", "address", "torn"),
    [
        ("Ada North <ada@north.example>", "Ada North", "ada@north.example", False),
        ("North, Ada <ada@north.example>", "North, Ada", "ada@north.example", False),
        ('"Gift", <news@west.example>', "Gift", "news@west.example", True),
        ('"Prize@North.example", <news@west.example>', "Prize@north.example", "news@west.example", True),
        ("Europa,(<news@west.example>)", "Europa, <news@west.example>", "news@west.example", True),
        ("Ada <>", "Ada", "", False),
        ("", "", "", False),
    ],
)
def test_the_name_and_the_address_are_those_that_readers_show(
    value: str, name: str, address: str, *, torn: bool
) -> None:
    identity = read_identity(value)
    assert (identity.name, identity.address, identity.torn) == (name, address, torn)


def test_several_addresses_are_counted_once_each() -> None:
    assert read_identity("a@north.example, b@north.example, A@north.example").addresses == 2


@pytest.mark.parametrize("domain", ["north.example", "csir.co.za", "a.local", "xn--bcher-kva.de"])
def test_a_domain_that_can_exist_is_one(domain: str) -> None:
    assert is_host(domain)


@pytest.mark.parametrize(
    "domain", ["netflix", "north,com", "user@x", "a..de", "north.notanending", "", "-a.de", "x" * 300]
)
def test_a_domain_that_cannot_exist_is_none(domain: str) -> None:
    assert not is_host(domain)


def test_from_to_and_cc_are_offered_each_once():
    head = b'From: "Doe, Ann" <ann@a.example>\r\nTo: b@b.example,\r\n c@c.example\r\n'
    head += b"Cc: <B@b.example>, b@b.example\r\n\r\nTo: no@body.example"
    assert correspondents(head) == ("ann@a.example", ("b@b.example", "c@c.example", "B@b.example"))


def test_a_message_without_them_offers_nothing():
    assert correspondents(b"Subject: x\r\n\r\nFrom: a@b.example\r\n") == ("", ())
    assert correspondents(b"") == ("", ())


def test_it_is_bounded():
    many = b", ".join(b"u%d@x.example" % number for number in range(1_000))
    started = time.process_time()
    assert len(correspondents(b"To: " + many + b"\r\n\r\n")[1]) == MAX_RECIPIENTS
    correspondents(b"From: " + b"<" * 600_000)
    correspondents(b"To: a@b.example\r\n" * 50_000)
    assert time.process_time() - started < 2
