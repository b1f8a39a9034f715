"""The symbols that we read exist in this Rspamd; `make check-long ONLY=compatibility` asks every version."""

import http.client
import json

import pytest

from mailwarden.engines.rspamd import DKIM, DMARC, LEARNED, SPF, load_symbols, settings_for
from workshop.rig.engines import Engines
from workshop.rig.rspamd import PASSWORD
from workshop.rig.samples import plain_message

pytestmark = pytest.mark.slow

# Each symbol says what a link is written like; the versions of Rspamd have different names for it.
ODD_LINKS = {
    "a host with an invisible space": ("https://pass\u200bage.example/", "rspamd.lookalike-url"),
    "backslashes": (r"https:\\pass.example\minutes\list", "rspamd.suspicious-url"),
}


@pytest.fixture(scope="module")
def known(engines: Engines) -> set[str]:
    """Every symbol that this Rspamd can add."""
    connection = http.client.HTTPConnection(engines.rspamd.controller_url.removeprefix("http://"), timeout=10.0)
    connection.request("GET", "/symbols", headers={"Password": PASSWORD})
    groups = json.loads(connection.getresponse().read())
    connection.close()
    return {rule["symbol"] for group in groups for rule in group["rules"]}


def scan(engines: Engines, message: bytes, **headers: str) -> set[str]:
    symbols = engines.rspamd.scan(message, headers)["symbols"]
    assert isinstance(symbols, dict)
    return set(symbols)


@pytest.mark.parametrize("finding", sorted(set(load_symbols().values())))
def test_every_finding_has_a_symbol(known: set[str], finding: str) -> None:
    symbols = {symbol for symbol, named in load_symbols().items() if named == finding}
    assert symbols & known, f"no symbol of {finding} exists in this Rspamd: {sorted(symbols)}"


def test_every_result_of_the_sender_checks_has_its_symbol(known: set[str]) -> None:
    named = {symbol for symbol, _ in (*SPF, *DMARC)} | {symbol for names, _, _ in DKIM for symbol in names}
    later = {"R_SPF_PLUSALL"}  # not in Rspamd 3.4, which adds R_SPF_ALLOW
    assert named - known <= later
    assert {*LEARNED, "DKIM_TRACE", "FROM_EQ_ENVFROM", "FROM_NEQ_ENVFROM"} <= known


def test_checks_of_missing_parts_of_the_envelope_are_off(engines: Engines) -> None:
    message = plain_message()
    envelope = {"From": "alice@pass.example", "IP": "192.0.2.77", "Helo": "mail.pass.example"}
    assert scan(engines, message, **envelope) & {"RDNS_NONE", "HFILTER_HOSTNAME_UNKNOWN"}
    off = scan(engines, message, **envelope, Settings=settings_for(has_address=True, has_helo=True))
    assert not off & {"RDNS_NONE", "HFILTER_HOSTNAME_UNKNOWN"}
    bare = scan(engines, message, From="alice@pass.example", Settings=settings_for(has_address=False, has_helo=False))
    assert not {symbol for symbol in bare if symbol.startswith(("DMARC_", "AUTH_NA", "HFILTER_HELO"))}


@pytest.mark.parametrize("name", ODD_LINKS)
def test_an_odd_link_gives_its_finding(engines: Engines, name: str) -> None:
    link, finding = ODD_LINKS[name]
    head = plain_message().partition(b"\r\n\r\n")[0].replace(b"text/plain", b"text/html")
    message = head + b"\r\n\r\n" + f'<p>Dear Bob, <a href="{link}">the minutes</a> are here.</p>\r\n'.encode()
    symbols = scan(engines, message, From="alice@pass.example", IP="192.0.2.10", Helo="mail.pass.example")
    assert finding in {load_symbols().get(symbol) for symbol in symbols}, sorted(symbols)
