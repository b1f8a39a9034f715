"""Every route of abby, called without a credential and with forged ones: none of these requests causes a query.

The routes are those of the process as it is built, so that a new route is tested without being named here.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer, TestClient

from mailwarden.abby.app import open_abby
from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.access.key_texts import KeyTexts
from mailwarden.access.login import build_registry
from mailwarden.access.sessions import COOKIE, SignedTokens
from mailwarden.access.users import Position, Role
from mailwarden.cli.init import PEPPER
from mailwarden.cli.main import main
from mailwarden.crypto.keyring import KeyRing, read_ring
from mailwarden.database.pool import Connection, Database
from mailwarden.quarantine.digest import DigestLink
from mailwarden.quarantine.digest_links import DigestLinkSigner
from mailwarden.serving.http_app import HttpApp, Route
from mailwarden.settings.reader import read
from mailwarden.telemetry.metrics import Metrics
from tests.samples.accounts import ADA, ALL

FOREIGN = KeyRing.of(b"q" * 32)
# A login attempt reads the user: attempts are throttled by name and address. See docs/decisions/0034.
ATTEMPTS = {("POST", "/console/login")}

Client = TestClient[web.BaseRequest, None]
_serving: ContextVar[bool] = ContextVar("serving", default=False)


class Queries:
    """Counts the connections that requests take from a pool; nothing is asked without one."""

    def __init__(self) -> None:
        self.count = 0


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> Queries:
    counted, connect = Queries(), Database.connection

    @asynccontextmanager
    async def connection(self: Database, *given: float) -> AsyncIterator[Connection]:
        counted.count += _serving.get()
        async with connect(self, *given) as made:
            yield made

    monkeypatch.setattr(Database, "connection", connection)
    return counted


@pytest.fixture
def folder(tmp_path: Path, database_url: str) -> Path:
    folder = tmp_path / "made"
    assert main(["init", str(folder), "--host", "127.0.0.1", "--database-url", database_url]) == 0
    return folder


@pytest.fixture
async def app(folder: Path, queries: Queries) -> AsyncIterator[HttpApp]:
    async with open_abby(read(folder / PATH, AbbyConfig), folder, Metrics()) as (app, _):
        yield app


@pytest.fixture
async def client(app: HttpApp) -> AsyncIterator[Client]:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        _serving.set(True)  # in the context of this connection's task alone
        return await app.answer(request)

    made: Client = TestClient(RawTestServer(answer))
    async with made:
        yield made


def token_for(path: str) -> str:
    """Return a token that looks right at this path, signed with another installation's key."""
    if path.startswith("/held/"):
        return DigestLinkSigner(FOREIGN).token(DigestLink(uuid4(), 1, datetime.now(UTC) + timedelta(days=1)))
    if path.startswith("/console/setup/"):
        return SignedTokens(FOREIGN, b"mailwarden setup links 1").new()
    return str(uuid4())


async def credentials(client: Client, database_url: str) -> list[tuple[dict[str, str], str]]:
    """Return headers and CSRF token of every caller that has proven nothing."""
    page = await client.get("/console/login")
    own = page.headers["Set-Cookie"].partition(";")[0]
    (csrf,) = set(re.findall(r'name="csrf" value="([^"]+)"', await page.text()))
    database = Database(database_url, 1)
    registry = build_registry(database, FOREIGN)
    visit, visiting = registry.sessions.visit()
    stored = SignedTokens(FOREIGN, b"mailwarden console cookies 1").new()
    registry.passwords.close()
    await database.close()
    _, key = KeyTexts(FOREIGN).new()
    return [
        ({}, ""),
        ({"Cookie": f"{COOKIE}=" + "A" * 43}, "x"),
        ({"Cookie": f"{COOKIE}={stored}"}, "x"),
        ({"Cookie": f"{COOKIE}={visiting}"}, visit.csrf),
        ({"Cookie": own}, csrf),
        ({"Authorization": f"apikey {key}"}, ""),
        ({"Authorization": "Bearer " + "0" * 64}, ""),
    ]


async def call(client: Client, route: Route, headers: dict[str, str], csrf: str) -> int:
    path = re.sub(r"\{\w+\}", token_for(route.path), route.path)
    form = (
        {"csrf": csrf, "name": "ada", "password": "x", "code": "1", "answer": "{}"} if route.method == "POST" else None
    )
    query = {"state": "x", "code": "x"} if "callback" in path else None
    answer = await client.request(route.method, path, params=query, data=form, headers=headers, allow_redirects=False)
    await answer.read()
    return answer.status


async def test_no_route_queries_for_a_caller_that_proved_nothing(
    client: Client, app: HttpApp, queries: Queries, database_url: str
) -> None:
    callers = await credentials(client, database_url)
    queries.count = 0
    asked = set()
    for route in app.routes:
        for headers, csrf in callers:
            status = await call(client, route, headers, csrf)
            assert status < 500 or route.path == "/readyz", (route, status)
            if queries.count:
                asked.add((route.method, route.path))
            queries.count = 0
    assert len(app.routes) > 80
    assert asked == ATTEMPTS


async def test_a_link_that_was_issued_here_is_searched_for(
    client: Client, folder: Path, queries: Queries, database_url: str
) -> None:
    database = Database(database_url, 1)
    registry = build_registry(database, read_ring(folder / PEPPER, "apiKeyPepper"))
    token = await registry.links.invite(ALL, Position(Role.DEPLOYMENT_ADMINISTRATOR), "", ADA)
    registry.passwords.close()
    await database.close()
    opened = await client.get(f"/console/setup/{token}", allow_redirects=False)
    assert (opened.status, queries.count > 0) == (303, True)
    queries.count = 0
    page = await client.get("/console/setup", headers={"Cookie": opened.headers["Set-Cookie"].partition(";")[0]})
    assert (page.status, queries.count > 0) == (200, True)
