"""abby behind a reverse proxy: callers are told apart by what the proxy says of them, and by nothing that they say."""

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from urllib.parse import urlencode

import pytest

from tests.acceptance.client import Answer, Client
from tests.acceptance.console_client import COOKIE, FORM, Person, invite, token_in
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_command, run_deployment
from tests.acceptance.list_client import JSON, PREFIX, ListClient, modified
from tests.waiting import wait_until
from workshop.rig.engines import Engines

FIELD = "X-Forwarded-For"
OFFICE, ATTACKER = "192.0.2.7", "198.51.100.66"
INNER = "10.0.0.3"  # a second proxy, behind the one that connects
ELSEWHERE = "127.0.0.2"  # of this machine as well, and no proxy


@dataclass(frozen=True)
class Proxy(Client):
    """A caller as abby sees one that comes by a proxy, which connects from 127.0.0.1."""

    forwarded: str = ""

    def speaking_for(self, forwarded: str) -> "Proxy":
        return replace(self, forwarded=forwarded)

    def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes | Iterator[bytes] | None = None,
    ) -> Answer:
        return super().call(method, path, headers={FIELD: self.forwarded, **(headers or {})}, data=data)


@pytest.fixture(scope="module")
def proxied(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """Return an abby that trusts the proxies of two networks; nothing is scanned here, so that it has no guard."""
    abby = {"trustedProxies": ["127.0.0.1/32", "10.0.0.0/24"]}
    with run_deployment(
        engines, deployment_template, tmp_path_factory.mktemp("proxied"), abby=abby, start=False, one_process=False
    ) as opened:
        opened.product.abby.start()
        yield opened


@pytest.fixture
def proxy(proxied: Deployment) -> Proxy:
    return Proxy(proxied.product.url, proxied.product.ca, None)


def make_key(deployment: Deployment, network: str) -> str:
    words = ("--scope", "lists:read", "--scope", "lists:write", "--global", "--network", network)
    made = run_command("keys", "create", "made", *words, "-o", "json", "--config", str(deployment.product.abby.folder))
    return str(json.loads(made)["key"])


def get_lists(deployment: Deployment, key: str, *headers: tuple[str, str], source: str = "127.0.0.1") -> int:
    """Make a call from an address of this machine, with each header in a line of its own; return its status."""
    abby = deployment.product.abby
    connection = http.client.HTTPSConnection(
        "127.0.0.1", abby.port, timeout=60, source_address=(source, 0), context=deployment.client().context
    )
    try:
        connection.putrequest("POST", f"{PREFIX}/getLists")
        for name, value in (
            ("Authorization", f"apikey {key}"),
            ("Content-Type", JSON),
            ("Content-Length", "2"),
            *headers,
        ):
            connection.putheader(name, value)
        connection.endheaders(b"{}")
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.contract("4 key networks")
def test_a_key_is_good_from_its_networks_behind_the_proxy_and_from_nowhere_else(
    proxied: Deployment, proxy: Proxy
) -> None:
    key = make_key(proxied, "192.0.2.0/24")

    def status(forwarded: str) -> int:
        return ListClient(proxy.speaking_for(forwarded), key).available().status

    for good in (OFFICE, f"{OFFICE}:50123", f"made-up, {ATTACKER}, {OFFICE}", f"{OFFICE}, {INNER}", f"::ffff:{OFFICE}"):
        assert status(good) == 200, good
    for bad in (
        ATTACKER,
        f"{OFFICE}, {ATTACKER}",
        f"{OFFICE}, unknown",
        f"{OFFICE},",
        f"{OFFICE}, unknown, {INNER}",
        "",
    ):
        assert status(bad) == 401, bad


@pytest.mark.contract("4 key networks")
def test_lines_are_read_together_and_only_from_a_proxy(proxied: Deployment) -> None:
    key, proxys = make_key(proxied, "192.0.2.0/24"), make_key(proxied, "127.0.0.1/32")

    assert get_lists(proxied, key, (FIELD, ATTACKER), (FIELD, OFFICE)) == 200
    assert get_lists(proxied, key, (FIELD, OFFICE), (FIELD, ATTACKER)) == 401
    assert get_lists(proxied, key, (FIELD, OFFICE), source=ELSEWHERE) == 401
    assert get_lists(proxied, key, ("Forwarded", f"for={OFFICE}"), ("X-Real-IP", OFFICE)) == 401
    # Nobody passes for the proxy itself by having its field fail: what they write does not reach so far.
    assert get_lists(proxied, proxys, (FIELD, "x" * 8_000), (FIELD, ATTACKER)) == 401
    assert get_lists(proxied, proxys) == 200


@pytest.mark.contract("4 key networks")
def test_without_trusted_proxies_the_field_is_ignored(deployment: Deployment) -> None:
    key, ours = make_key(deployment, "192.0.2.0/24"), make_key(deployment, "127.0.0.1/32")

    assert get_lists(deployment, key, (FIELD, OFFICE)) == 401
    assert get_lists(deployment, ours, (FIELD, OFFICE)) == 200


def test_the_audit_names_the_address_behind_the_proxy(proxied: Deployment, proxy: Proxy, engines: Engines) -> None:
    lists = ListClient(proxy.speaking_for(f"1.1.1.1, {OFFICE}, {INNER}"), proxied.keys["all"])

    assert modified(lists.add("sender-block", "evil.example")) == 1

    query = "SELECT host(source_address) FROM audit WHERE action = 'lists.add'"
    assert engines.postgresql.execute(query, proxied.database) == OFFICE


def test_failed_logins_of_one_caller_slow_no_other(proxied: Deployment, proxy: Proxy, engines: Engines) -> None:
    ada = invite(proxied, "ada", "analyst")
    ada.client, ada.cookie = proxy.speaking_for(OFFICE), None

    def guess(name: str, forwarded: str) -> int:
        return Person(proxy.speaking_for(forwarded)).give_password("wrong horse battery", name).status

    assert guess("somebody", ATTACKER) == 401
    # As after many more guesses, and for longer than any test takes.
    slowed = "UPDATE login_attempts SET blocked_until = now() + interval '1 hour' WHERE subject LIKE 'address:%'"
    engines.postgresql.execute(slowed, proxied.database)

    assert guess("somebody-else", ATTACKER) == 429
    for number in range(3):
        assert guess(f"name-{number}", f"203.0.113.{number}, {OFFICE}, {ATTACKER}") == 429
    assert guess("nobody", OFFICE) == 401
    assert ada.log_in().status == 303
    query = f"SELECT count(*) FROM sessions WHERE user_id IS NOT NULL AND host(address) = '{OFFICE}'"
    assert engines.postgresql.execute(query, proxied.database) == "1"


def test_one_caller_with_many_digest_links_blocks_no_other(proxied: Deployment) -> None:
    client = proxied.client()
    with client.connection() as connection:

        def follow(forwarded: str) -> int:
            connection.request("GET", "/held/x", headers={FIELD: forwarded})
            response = connection.getresponse()
            response.read()
            return response.status

        made_up = map(IPv4Address, range(0x0B000000, 0x0C000000))
        # Each call claims another address; the minute may end in between, and then they are counted anew.
        assert wait_until(lambda: follow(f"{next(made_up)}, {ATTACKER}") == 429, 120, 0)
        assert next(made_up) > IPv4Address("11.0.1.0"), "not before it is too many"
        assert follow(OFFICE) == 404


def test_neither_host_nor_scheme_is_taken_from_a_proxys_fields(proxy: Proxy) -> None:
    claims = {"X-Forwarded-Host": "evil.example", "X-Forwarded-Proto": "http", "Forwarded": "host=evil.example"}
    anonymous = Person(proxy.speaking_for("203.0.113.200"))
    page = anonymous.get("/console/login", **claims)
    assert "Secure" in page.headers["Set-Cookie"]
    assert b"evil.example" not in page.body
    headers = {**claims, "Content-Type": FORM, "Cookie": f"{COOKIE}={anonymous.cookie}"}
    data = urlencode({"csrf": token_in(page), "name": "eve", "password": "wrong horse battery"}).encode()

    def send(origin: str) -> int:
        return anonymous.client.call("POST", "/console/login", headers={**headers, "Origin": origin}, data=data).status

    assert send("https://evil.example") == 403
    assert send(proxy.url) == 401, "a form of ours, and a wrong password"
