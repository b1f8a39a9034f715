"""Targets of deliveries: what a URL may be, and which addresses are refused."""

from dataclasses import replace

import pytest

from mailwarden.errors import SchemaViolation
from mailwarden.event_delivery.addresses import AddressRules, ForbiddenTarget, Target, read_target
from mailwarden.settings.shared import Networks
from tests.tables import every

PUBLIC = AddressRules()
REFUSED = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",  # a cloud's metadata service
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.9",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::ffff:127.0.0.1",
    "::ffff:93.184.216.34",  # an IPv4 address in the form of IPv6: never needed
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::5db8:d822",
    "64:ff9b:1::a00:1",
    "64:ff9b:1:a00:0:100::",  # 10.0.0.1 in the form of RFC 6052, section 2.2
    "100::1",
    "2001::1",  # Teredo
    "2001:2::1",
    "2001:db8::1",
    "2002:7f00:1::",  # 6to4
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "not an address",
]


def test_an_address_that_is_not_public_is_refused() -> None:
    def check(address: str) -> None:
        with pytest.raises(ForbiddenTarget):
            PUBLIC.require(address)

    every(REFUSED, check)


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"])
def test_a_public_address_is_allowed(address: str) -> None:
    PUBLIC.require(address)


def test_configured_networks_are_allowed_and_no_others() -> None:
    rules = AddressRules.of(("10.1.0.0/16", "fd12::/64"))
    rules.require("10.1.2.3")
    rules.require("fd12::5")
    for address in ("10.2.0.1", "fd13::5", "::ffff:10.1.2.3", "127.0.0.1"):
        with pytest.raises(ForbiddenTarget):
            rules.require(address)


def test_http_reaches_only_configured_networks() -> None:
    rules = AddressRules(Networks.of(("10.1.0.0/16",)), public=False)
    rules.require("10.1.2.3")
    with pytest.raises(ForbiddenTarget):
        rules.require("93.184.216.34")


def test_an_allowed_translation_prefix_opens_no_private_address() -> None:
    rules = AddressRules.of(("64:ff9b::/96",))
    rules.require("64:ff9b::5db8:d822")
    with pytest.raises(ForbiddenTarget):
        rules.require("64:ff9b::a00:1")


def test_a_local_translation_prefix_is_allowed_as_a_whole() -> None:
    # The place of the IPv4 address is not known, so a check of the last 32 bits would only look like one.
    rules = AddressRules.of(("64:ff9b:1::/48",))
    rules.require("64:ff9b:1::a00:1")
    rules.require("64:ff9b:1:a00:0:100::")


@pytest.mark.parametrize("address", ["93.184.216.34", "10.1.2.3", "2606:4700:64::a00:1", "64:ff9b::5db8:d822"])
def test_a_refused_network_is_refused_even_where_it_is_allowed(address: str) -> None:
    allowed = ("10.1.0.0/16", "64:ff9b::/96")
    AddressRules.of(allowed).require(address)
    rules = AddressRules.of(allowed, refused=("93.184.216.0/24", "10.1.2.0/24", "2606:4700:64::/96"))
    for each in (rules, replace(rules, public=False), rules.for_tenants()):
        with pytest.raises(ForbiddenTarget):
            each.require(address)


def test_the_networks_of_the_deployment_are_not_for_tenants() -> None:
    rules = AddressRules.of(("10.1.0.0/16",), refused=("93.184.216.0/24",)).for_tenants()
    rules.require("93.184.217.1")
    for address in ("10.1.2.3", "93.184.216.34"):
        with pytest.raises(ForbiddenTarget):
            rules.require(address)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://hook.example/a?b=c", Target("https", "hook.example", 443)),
        ("https://hook.example:8443/", Target("https", "hook.example", 8443)),
        ("http://10.0.0.1/x", Target("http", "10.0.0.1", 80)),
        ("https://[2606:4700::1111]/", Target("https", "2606:4700::1111", 443)),
        ("https://hook_1.example./", Target("https", "hook_1.example", 443)),
    ],
)
def test_a_target_is_read(url: str, target: Target) -> None:
    assert read_target(url, "https", "http") == target


@pytest.mark.parametrize(
    "url",
    [
        "ftp://hook.example/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:25/",
        "hook.example",
        "https://",
        "https:///path",
        "https://user@hook.example/",
        "https://user:secret@hook.example/",
        "https://hook.example@127.0.0.1/",
        "https://hook.example/#part",
        "https://hook.example:0/",
        "https://hook.example:99999/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0x7f.0.0.1/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://127.0.0.0x1/",
        "https://1.2.3.4.5/",
        "https://256.1.1.1/",
        "https://hook.example\\@127.0.0.1/",
        "https://hook.example /",
        "https://hook.example/\r\nX: y",
        "https://[fe80::1%25eth0]/",
        "https://[::ffff:127.0.0.1",
        "https://[hook.example]/",
        "https://hook%2eexample/",
        "https://\u2488.example/",
        "https://-hook.example/",
        "https://hook..example/",
        "https://" + "a" * 64 + ".example/",
        "https://hook.example/" + "a" * 2_000,
    ],
)
def test_a_malformed_or_ambiguous_target_is_rejected(url: str) -> None:
    with pytest.raises(SchemaViolation):
        read_target(url, "https", "http")
