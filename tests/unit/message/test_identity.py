"""Who a message says it is from, out of headers that are torn on purpose."""

import pytest

from mailwarden.message.identity import is_host, read_identity


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
