"""Every route, with a key of every scope, of the own tenant, of another tenant and of the deployment.

The routes come from the route table by way of its description. A route without a rule here fails.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import requests
from ruamel.yaml import YAML

from mailwarden.access.keys import ApiKeys, KeyStore, NewKey
from mailwarden.access.permissions import KeyScope
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from tests.acceptance.client import ENVELOPE, FORM, Answer, email, form, parameters
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import keep
from workshop.rig.samples import plain_message

OWN, OTHER, DEPLOYMENT = "acme", "club", "deployment"
NOBODY = "00000000-0000-4000-8000-000000000000"
JSON = {"Content-Type": "application/json"}
LISTS = "/api/public/lists/v1"
OF_LISTS = {KeyScope.READ, KeyScope.WRITE}


@dataclass(frozen=True)
class Request:
    """A call about the own tenant; `shows` stands in the answer of callers who may see it."""

    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    data: bytes | None = None
    shows: str = ""


@dataclass(frozen=True)
class World:
    """A deployment with messages of the own tenant."""

    deployment: Deployment
    mark: str

    @property
    def tenant(self) -> str:
        return self.deployment.tenants[OWN]

    def held(self) -> str:
        return keep(self.deployment, OWN, subject=self.mark)

    def ggrid(self) -> str:
        found = self.deployment.client().call("GET", f"/v1/quarantine/{self.held()}").json
        return str(found["ggrid"])

    def report(self) -> str:
        path = f"/v1/reports?kind=spam&tenantUid={self.tenant}"
        headers = {"Content-Type": "message/rfc822"}
        made = self.deployment.client().call("POST", path, headers=headers, data=unique_message())
        return str(made.json["uid"])


def unique_message() -> bytes:
    return plain_message().replace(b"\r\n\r\n", f"\r\n\r\n{uuid4()} ".encode(), 1)


def submission(world: World) -> Request:
    record = {"borderMtaData": ENVELOPE, "tenantUid": world.tenant}
    body = form(parameters(record), email(plain_message()))
    return Request("/v1/messageQueue/submitEmail", {"Content-Type": FORM}, body, "ggrid")


def report(world: World) -> Request:
    path = f"/v1/reports?kind=spam&tenantUid={world.tenant}"
    return Request(path, {"Content-Type": "message/rfc822"}, unique_message(), world.tenant)


def of_lists(name: str, shows: str, **body: object) -> Callable[[World], Request]:
    def make(world: World) -> Request:
        data = json.dumps({"tenantUid": world.tenant, **body}).encode()
        return Request(f"{LISTS}/{name}", JSON, data, shows)

    return make


def release(world: World) -> Request:
    return Request(f"/v1/quarantine/{world.held()}/release", JSON, b"{}", world.mark)


# The scope of each call, and the call. None: no credential; a text: a permission of tokens that no key has.
RULES: Mapping[tuple[str, str], tuple[KeyScope | str | None, Callable[[World], Request]]] = {
    ("POST", "/v1/messageQueue/submitEmail"): (KeyScope.SUBMIT, submission),
    ("GET", "/v1/messages"): (KeyScope.MESSAGES, lambda w: Request(f"/v1/messages?q={w.mark}", shows=w.mark)),
    ("GET", "/v1/messages/count"): (
        KeyScope.MESSAGES,
        lambda w: Request(f"/v1/messages/count?q={w.mark}", shows=w.tenant),
    ),
    ("GET", "/v1/statistics"): (
        KeyScope.MESSAGES,
        lambda w: Request(f"/v1/statistics?tenantUid={w.tenant}", shows=w.tenant),
    ),
    ("GET", "/v1/messages/{ggrid}"): (
        KeyScope.MESSAGES,
        lambda w: Request(f"/v1/messages/{w.ggrid()}", shows=w.mark),
    ),
    ("POST", "/v1/messages/{ggrid}/report"): (
        KeyScope.REPORTS,
        lambda w: Request(f"/v1/messages/{w.ggrid()}/report?kind=spam", shows=w.tenant),
    ),
    ("POST", "/v1/reports"): (KeyScope.REPORTS, report),
    ("GET", "/v1/reports"): (
        KeyScope.REPORTS,
        lambda w: Request(f"/v1/reports?tenantUid={w.tenant}&limit=500", shows=w.report()),
    ),
    ("DELETE", "/v1/reports/{uid}"): (KeyScope.REPORTS, lambda w: Request(f"/v1/reports/{w.report()}")),
    ("GET", "/v1/learning"): (
        KeyScope.REPORTS,
        lambda w: Request(f"/v1/learning?tenantUid={w.tenant}", shows=w.tenant),
    ),
    ("DELETE", "/v1/learning"): (
        KeyScope.REPORTS,
        lambda w: Request(f"/v1/learning?tenantUid={w.tenant}", shows="forgotten"),
    ),
    ("GET", "/v1/quarantine"): (KeyScope.HELD, lambda w: Request(f"/v1/quarantine?text={w.mark}", shows=w.held())),
    ("GET", "/v1/quarantine/{uid}"): (KeyScope.HELD, lambda w: Request(f"/v1/quarantine/{w.held()}", shows=w.mark)),
    ("GET", "/v1/quarantine/{uid}/message"): (
        KeyScope.RELEASE,
        lambda w: Request(f"/v1/quarantine/{w.held()}/message", shows="eve@evil.example"),
    ),
    ("POST", "/v1/quarantine/{uid}/release"): (KeyScope.RELEASE, release),
    ("DELETE", "/v1/quarantine/{uid}"): (
        KeyScope.RELEASE,
        lambda w: Request(f"/v1/quarantine/{w.held()}", shows=w.mark),
    ),
    ("POST", f"{LISTS}/addEntries"): (
        KeyScope.WRITE,
        of_lists("addEntries", "modifiedEntries", listName="sender-block", entries=[{"entry": "matrix@evil.example"}]),
    ),
    ("POST", f"{LISTS}/deleteEntries"): (
        KeyScope.WRITE,
        of_lists("deleteEntries", "modifiedEntries", listName="sender-block", entries=["other@evil.example"]),
    ),
    ("POST", f"{LISTS}/getLists"): (KeyScope.READ, of_lists("getLists", "listFileInfos")),
    ("POST", f"{LISTS}/listEntries"): (KeyScope.READ, of_lists("listEntries", "matrix@", listName="sender-block")),
    ("GET", "/v1/events"): (
        KeyScope.EVENTS,
        lambda w: Request(f"/v1/events?types=message.held&tenantUid={w.tenant}", shows=w.tenant),
    ),
    ("GET", "/v1/events/schemas"): (None, lambda _: Request("/v1/events/schemas")),
    ("POST", "/v1/admin/status"): (KeyScope.STATUS, lambda _: Request("/v1/admin/status")),
    ("GET", "/metrics"): ("admin.metrics", lambda _: Request("/metrics")),
    ("GET", "/healthz"): (None, lambda _: Request("/healthz")),
    ("GET", "/readyz"): (None, lambda _: Request("/readyz")),
    ("GET", "/openapi.json"): (None, lambda _: Request("/openapi.json")),
    ("GET", "/v1/catalogue"): (None, lambda _: Request("/v1/catalogue")),
}
# These say nothing about a tenant.
OF_NO_TENANT = {("POST", "/v1/admin/status")}


@pytest.fixture(scope="module")
def world(deployment: Deployment) -> World:
    made = World(deployment, f"matrix{uuid4().hex}")
    made.held()
    return made


@pytest.fixture(scope="module")
def keys(deployment: Deployment) -> Mapping[tuple[KeyScope, str], str]:
    """Return a key of each scope for the own tenant, the other tenant and the deployment."""
    folder = deployment.product.abby.folder
    address = YAML(typ="safe").load(folder / "abby" / "abby" / "abby.yml")["database"]["url"]
    bound = {OWN: [UUID(deployment.tenants[OWN])], OTHER: [UUID(deployment.tenants[OTHER])], DEPLOYMENT: []}

    async def make() -> dict[tuple[KeyScope, str], str]:
        database = Database(address, 1)
        store = ApiKeys(KeyStore(database), read_ring(folder / "secrets" / "pepper", "apiKeyPepper"))
        made = {}
        for scope in KeyScope:
            for name, tenants in bound.items():
                wanted = NewKey(f"matrix-{scope}-{name}".replace(":", "-"), frozenset({scope}), frozenset(tenants))
                made[scope, name] = (await store.create(Scope.deployment(), wanted, Actor("test")))[1]
        await database.close()
        return made

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(make())).result()


@pytest.fixture(scope="module")
def session(deployment: Deployment) -> Iterator[requests.Session]:
    with requests.Session() as opened:
        opened.trust_env = False
        opened.verify = str(Path(deployment.product.ca))
        yield opened


def described_routes(deployment: Deployment) -> set[tuple[str, str]]:
    paths = deployment.client().using(None).call("GET", "/openapi.json").json["paths"]
    return {(method.upper(), path) for path, methods in paths.items() for method in methods}


def test_every_route_has_a_rule(deployment: Deployment) -> None:
    assert described_routes(deployment) == RULES.keys()


@dataclass(frozen=True)
class Caller:
    session: requests.Session
    url: str

    def call(self, method: str, request: Request, key: str | None) -> Answer:
        authorization = {} if key is None else {"Authorization": f"apikey {key}"}
        headers = {**request.headers, **authorization}
        answer = self.session.request(method, self.url + request.path, headers=headers, data=request.data, timeout=60)
        return Answer(answer.status_code, answer.headers, answer.content)


@pytest.mark.contract("4 key scopes")
@pytest.mark.contract("4 key bound")
@pytest.mark.parametrize(("method", "path"), RULES)
def test_a_route_takes_its_scope_within_the_tenants_of_the_key(
    world: World, keys: Mapping[tuple[KeyScope, str], str], session: requests.Session, method: str, path: str
) -> None:
    needed, make = RULES[method, path]
    caller = Caller(session, world.deployment.product.url)
    if needed is None:
        assert caller.call(method, make(world), None).status == 200
        return
    plain = Request(path.replace("{ggrid}", NOBODY).replace("{uid}", NOBODY))
    assert caller.call(method, plain, None).error == "unauthenticated"
    for (scope, _), key in keys.items():
        if scope is not needed:
            assert caller.call(method, plain, key).error == refusal(scope, path), scope
    if not isinstance(needed, KeyScope):
        return
    request = make(world)
    answer = caller.call(method, request, keys[needed, OTHER])
    if (method, path) not in OF_NO_TENANT:
        shown = answer.body.decode("latin-1")
        assert answer.status in (403, 404) or not request.shows or request.shows not in shown
        assert answer.status < 500
        assert request.shows or answer.status in (403, 404)
        assert world.tenant not in shown
    for name in (OWN, DEPLOYMENT):
        answer = caller.call(method, request, keys[needed, name])
        assert answer.status in (200, 202, 204), (name, answer.body)
        assert request.shows in answer.body.decode("latin-1"), name
        request = make(world)


def refusal(scope: KeyScope, path: str) -> str:
    """Return the error for a key without the scope; a key for lists alone does not apply to other calls."""
    applies = path.startswith(LISTS) or scope not in OF_LISTS
    return "forbidden" if applies else "invalid_credentials"
