"""Every route, with a key of every scope, of the own tenant, of another tenant and of the deployment.

The routes, their scopes and the calls come from the declarations of the endpoints.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode
from uuid import UUID, uuid4

import pytest
import requests
from ruamel.yaml import YAML

from mailwarden.abby.endpoints import ENDPOINTS
from mailwarden.access.endpoints import AnyEndpoint
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


def release(world: World) -> Request:
    return Request(f"/v1/quarantine/{world.held()}/release", JSON, b"{}", world.mark)


# Calls whose answer shows something, or that need more than the example of their declaration.
CALLS: Mapping[str, Callable[[World], Request]] = {
    "submitEmail": submission,
    "searchMessages": lambda w: Request(f"/v1/messages?q={w.mark}", shows=w.mark),
    "countMessages": lambda w: Request(f"/v1/messages/count?q={w.mark}", shows=w.tenant),
    "explainMessage": lambda w: Request(f"/v1/messages/{w.ggrid()}", shows=w.mark),
    "reportContents": report,
    "listReports": lambda w: Request(f"/v1/reports?tenantUid={w.tenant}&limit=500", shows=w.report()),
    "withdrawReport": lambda w: Request(f"/v1/reports/{w.report()}"),
    "listHeldMessages": lambda w: Request(f"/v1/quarantine?text={w.mark}", shows=w.held()),
    "showHeldMessage": lambda w: Request(f"/v1/quarantine/{w.held()}", shows=w.mark),
    "downloadHeldMessage": lambda w: Request(f"/v1/quarantine/{w.held()}/message", shows="eve@evil.example"),
    "releaseHeldMessage": release,
    "deleteHeldMessage": lambda w: Request(f"/v1/quarantine/{w.held()}", shows=w.mark),
    "deleteEntries": lambda w: Request(
        "/api/public/lists/v1/deleteEntries",
        JSON,
        json.dumps({"tenantUid": w.tenant, "listName": "sender-block", "entries": ["other@evil.example"]}).encode(),
    ),
}
# What the answer to the example of a declaration shows to callers who may see it.
SHOWN: Mapping[str, Callable[[World], str]] = {
    "getStatistics": lambda w: w.tenant,
    "reportMessage": lambda w: w.tenant,
    "getTraining": lambda w: w.tenant,
    "resetTraining": lambda _: "deleted",
    "listEvents": lambda w: w.tenant,
    "addEntries": lambda _: "modifiedEntries",
    "deleteEntries": lambda _: "modifiedEntries",
    "getLists": lambda _: "listFileInfos",
    "listEntries": lambda _: "billing@evil.example",
}


def example(world: World, endpoint: AnyEndpoint) -> Request:
    """Return the example of a declaration as a call about the own tenant."""
    path = endpoint.path.replace("{ggrid}", world.ggrid()) if "{ggrid}" in endpoint.path else endpoint.path
    fields = {**({"tenantUid": world.tenant} if endpoint.names_tenant else {}), **endpoint.example}
    if endpoint.body is not None:
        return Request(path, JSON, json.dumps(fields).encode())
    return Request(f"{path}?{urlencode(fields)}" if fields else path)


def request_of(world: World, endpoint: AnyEndpoint) -> Request:
    return CALLS[endpoint.name](world) if endpoint.name in CALLS else example(world, endpoint)


# These say nothing about a tenant.
OF_NO_TENANT = {"getStatus"}


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


def test_every_declared_endpoint_is_served_and_described(deployment: Deployment) -> None:
    assert described_routes(deployment) == {(each.method, each.path) for each in ENDPOINTS}
    assert {*CALLS, *SHOWN} <= {each.name for each in ENDPOINTS}


@dataclass(frozen=True)
class Caller:
    session: requests.Session
    url: str

    def call(self, method: str, request: Request, key: str | None) -> Answer:
        authorization = {} if key is None else {"Authorization": f"apikey {key}"}
        headers = {**request.headers, **authorization}
        answer = self.session.request(method, self.url + request.path, headers=headers, data=request.data, timeout=60)
        return Answer(answer.status_code, answer.headers, answer.content)


@pytest.mark.spec("5 keys")
@pytest.mark.contract("5 invalid_credentials")
@pytest.mark.contract("4 key scopes")
@pytest.mark.contract("4 key bound")
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: each.name)
def test_a_route_takes_its_scope_within_the_tenants_of_the_key(
    world: World, keys: Mapping[tuple[KeyScope, str], str], session: requests.Session, endpoint: AnyEndpoint
) -> None:
    caller = Caller(session, world.deployment.product.url)
    method, path = endpoint.method, endpoint.path
    if endpoint.permission is None:
        assert caller.call(method, request_of(world, endpoint), None).status == 200
        return
    needed = endpoint.permission.scope
    plain = Request(path.replace("{ggrid}", NOBODY).replace("{uid}", NOBODY))
    assert caller.call(method, plain, None).error == "unauthenticated"
    for (scope, _), key in keys.items():
        if scope is not needed:
            assert caller.call(method, plain, key).error == refusal(scope, endpoint), scope
    if needed is None:
        return
    request = request_of(world, endpoint)
    answer = caller.call(method, request, keys[needed, OTHER])
    if endpoint.name not in OF_NO_TENANT:
        shown = answer.body.decode("latin-1")
        assert answer.status in (403, 404) or not request.shows or request.shows not in shown
        assert answer.status < 500
        assert request.shows or answer.status in (403, 404)
        assert world.tenant not in shown
    for name in (OWN, DEPLOYMENT):
        answer = caller.call(method, request, keys[needed, name])
        assert answer.status in (200, 202, 204), (name, answer.body)
        shown = SHOWN[endpoint.name](world) if endpoint.name in SHOWN else request.shows
        assert shown in answer.body.decode("latin-1"), name
        request = request_of(world, endpoint)


def refusal(scope: KeyScope, endpoint: AnyEndpoint) -> str:
    """Return the error for a key without the scope; a key for lists alone does not apply to other calls."""
    return "invalid_credentials" if endpoint.takes_token and scope in OF_LISTS else "forbidden"
