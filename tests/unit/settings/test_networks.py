"""Networks of a file: which addresses they hold, and what is told of those that are none."""

import pytest

from mailwarden.settings.shared import Networks, network_mistakes, peer_address, read_address

LAN = Networks.of(["10.0.0.0/24", "192.0.2.7", "2001:db8::/32"])


@pytest.mark.parametrize("text", ["10.0.0.0", "10.0.0.255", "192.0.2.7", "::ffff:10.0.0.3", "2001:DB8:0::1"])
def test_an_address_is_found_in_its_network_in_any_spelling(text: str) -> None:
    address = read_address(text)
    assert address is not None
    assert address in LAN
    assert address not in Networks()


@pytest.mark.parametrize("text", ["10.0.1.0", "192.0.2.8", "::ffff:10.0.1.3", "2001:db9::1", "::10.0.0.1"])
def test_any_other_is_not(text: str) -> None:
    address = read_address(text)
    assert address is not None
    assert address not in LAN


@pytest.mark.parametrize(
    "text", ["", " 10.0.0.1", "10.0.0.1 ", "010.0.0.1", "1.2.3", "10.0.0.1/32", "fe80::1%eth0", "٣"]
)
def test_an_invalid_address_is_rejected(text: str) -> None:
    assert read_address(text) is None


def test_the_zone_of_a_neighbour_is_left_out() -> None:
    assert str(peer_address("fe80::1%eth0")) == "fe80::1"
    assert str(peer_address("::ffff:192.0.2.1")) == "192.0.2.1"
    assert peer_address("") is peer_address("@abstract") is None


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("allow_all", "is not a network: write"),
        ("10.0.0.0/33", "is not a network: write"),
        ("", "is not a network: write"),
        ("10.0.0.5/24", "write 10.0.0.0/24 or 10.0.0.5"),
        ("fe80::%eth0/64", "has a zone"),
        ("::ffff:10.0.0.0/104", "IPv4 in the form of IPv6"),
        ("0.0.0.0/0", "matches every address"),
        ("0.0.0.0/0.0.0.0", "matches every address"),
        ("::/0", "matches every address"),
    ],
)
def test_an_error_shows_the_correct_form(text: str, reported: str) -> None:
    ((key, problem),) = network_mistakes("proxies", ["10.0.0.0/8", text, "::1"], allow_all=False)
    assert key == "proxies"
    assert problem.startswith(f"`{text}` ")
    assert reported in problem


def test_a_network_of_all_addresses_is_accepted() -> None:
    assert list(network_mistakes("clients", ["0.0.0.0/0", "::/0", "10.0.0.0/255.0.0.0", "192.0.2.7"])) == []
