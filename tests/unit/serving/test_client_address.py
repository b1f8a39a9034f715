"""Where a call comes from: nobody chooses their own address, whatever they write into the field."""

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from mailwarden.serving.http_app import FIELD, MAX_HOPS, Call, client_address
from mailwarden.settings.shared import Networks, read_address

PROXIES = Networks.of(["10.0.0.0/24", "fd00::/64"])
PROXY = "10.0.0.1"
CALLER = "192.0.2.7"


def is_proxy(text: str) -> bool:
    address = read_address(text)
    assert address is not None
    return address in PROXIES


addresses = st.ip_addresses().map(str)
strangers = addresses.filter(lambda text: not is_proxy(text))
proxies = st.sampled_from(["10.0.0.1", "10.0.0.254", "fd00::5", "::ffff:10.0.0.9", "[fd00::6]:443", "10.0.0.8:80"])
# What a caller may write: anything at all, and what looks like the truth.
lines = st.lists(st.text(max_size=40) | addresses | proxies | st.sampled_from(["unknown", "", ",", "x" * 9_000]))


@pytest.mark.slow
@given(strangers, lines)
def test_a_client_that_is_no_proxy_keeps_its_address(peer: str, forged: list[str]) -> None:
    assert client_address(peer, forged, PROXIES) == client_address(peer, (), Networks())


@given(addresses, lines)
def test_without_proxies_the_field_is_ignored(peer: str, forged: list[str]) -> None:
    assert client_address(peer, forged, Networks()) == client_address(peer, (), PROXIES)


@given(lines, strangers, st.lists(proxies, max_size=MAX_HOPS - 1), st.booleans())
def test_hops_before_the_first_untrusted_one_are_ignored(
    forged: list[str], stranger: str, hops: list[str], apart: bool
) -> None:
    reported = [stranger, *hops]
    field = [*forged, *reported] if apart else [",".join([*forged, *reported])]
    assert client_address(PROXY, field, PROXIES) == client_address(stranger, (), PROXIES)


@given(lines, st.lists(proxies, max_size=MAX_HOPS - 1), st.text(max_size=40).filter(lambda text: "," not in text))
def test_an_invalid_field_ends_at_the_last_known_proxy(forged: list[str], hops: list[str], garbage: str) -> None:
    known = client_address(PROXY, [",".join(hops)], PROXIES)
    assert client_address(PROXY, [*forged, f"{garbage}?", *hops], PROXIES) == known


@pytest.mark.parametrize(
    "hop",
    [
        "192.0.2.7",
        " 192.0.2.7\t",
        "192.0.2.7:50123",
        "::ffff:192.0.2.7",
        "[::ffff:192.0.2.7]",
        "[::ffff:c000:207]:50123",
    ],
)
def test_an_address_is_read_in_every_proxy_spelling(hop: str) -> None:
    assert client_address(PROXY, [hop], PROXIES) == CALLER
    assert client_address(PROXY, [f"198.51.100.1, {hop}, 10.0.0.2:443, [fd00::1]"], PROXIES) == CALLER
    assert client_address(PROXY, ["198.51.100.1", hop, "10.0.0.2"], PROXIES) == CALLER


@pytest.mark.parametrize(
    "hop",
    [
        "",
        "unknown",
        "_hidden",
        "unix:",
        "localhost",
        "192.0.2",
        "192.0.2.07",
        "192.0.2.7:",
        "192.0.2.7:123456",
        "192.0.2.7:٣",
        "192.0.2.7 198.51.100.1",
        "192.0.2.7%eth0",
        "[192.0.2.7]",
        "[2001:db8::7",
        "2001:db8::7]",
        "[2001:db8::7]443",
        "2001:db8::7%eth0",
        "[fe80::7%eth0]:443",
        '"192.0.2.7"',
        "for=192.0.2.7",
        "192.0.2.7/32",
        "192.0.2.7\n",
        "3221225991",
        "1" * 9_000,
        "\udcff",
    ],
)
def test_a_hop_that_cannot_be_read_is_not_skipped(hop: str) -> None:
    for field in ([f"{CALLER}, {hop}, 10.0.0.2"], [CALLER, hop, "10.0.0.2"]):
        assert client_address(PROXY, field, PROXIES) == "10.0.0.2"
    assert client_address(PROXY, [CALLER, hop], PROXIES) == PROXY


def test_a_proxy_that_calls_for_itself_is_the_caller() -> None:
    assert client_address(PROXY, (), PROXIES) == PROXY
    assert client_address(PROXY, ["10.0.0.3"], PROXIES) == "10.0.0.3"
    assert client_address("fd00::1%eth0", ["fd00:0::2, 10.0.0.3"], PROXIES) == "fd00::2"


def test_too_many_hops_are_not_followed() -> None:
    hops = [f"10.0.0.{number}" for number in range(200, 200 - MAX_HOPS, -1)]
    assert client_address(PROXY, [CALLER, *hops[1:]], PROXIES) == CALLER
    assert client_address(PROXY, [CALLER, *hops], PROXIES) == "10.0.0.200"


@pytest.mark.parametrize("peer", [None, "", "/run/abby.sock"])
def test_a_peer_without_an_address_has_none(peer: str | None) -> None:
    assert client_address(peer, [CALLER], PROXIES) is None


def call_with(*headers: tuple[str, str], proxies: Networks = PROXIES) -> Call:
    request = make_mocked_request("GET", "/", headers=CIMultiDict([("Host", "a"), *headers]))
    return Call(request.clone(remote=PROXY), "id", {}, proxies)


def test_a_call_knows_every_line_of_the_field_in_order() -> None:
    lines = [(FIELD, "198.51.100.1"), ("x-forwarded-for", f"{CALLER},10.0.0.3"), (FIELD, "10.0.0.2")]
    assert call_with(*lines).address == CALLER
    assert call_with(*lines, proxies=Networks()).address == call_with().address == PROXY


@pytest.mark.parametrize("name", ["Forwarded", "X-Real-IP", "X_Forwarded_For", "X-Forwarded-Host", "Client-IP"])
def test_no_other_field_is_read(name: str) -> None:
    assert call_with((name, CALLER), (name, f"for={CALLER}")).address == PROXY
