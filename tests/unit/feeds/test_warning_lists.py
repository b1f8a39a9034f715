"""Warning lists that need no database: networks with private or reserved addresses."""

from ipaddress import ip_network

import pytest

from mailwarden.event_delivery.addresses import overlaps_reserved


@pytest.mark.parametrize(
    "network",
    [
        "172.0.0.0/8", "192.128.0.0/9", "100.0.0.0/8", "224.0.0.0/4", "10.1.2.3", "172.31.255.255", "198.0.0.0/8",
        "203.0.0.0/16", "255.255.255.255", "2000::/8", "2001:d00::/24", "fe80::1", "::/0", "ff02::1", "2002::/16",
    ],
)  # fmt: skip
def test_a_network_with_reserved_addresses_is_left_out(network: str) -> None:
    assert overlaps_reserved(ip_network(network))


@pytest.mark.parametrize(
    "network", ["172.15.0.0/16", "172.32.0.0/11", "192.169.0.0/16", "100.128.0.0/9", "223.0.0.0/8", "2606:4700::/32"]
)
def test_a_public_network_is_taken(network: str) -> None:
    assert not overlaps_reserved(ip_network(network))
