"""Event receivers in the console: the secret is shown once, tests, pauses, rotations; tenants are separated."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from html import unescape
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer, TestClient

from mailwarden.access.login import build_registry
from mailwarden.access.sessions import COOKIE, ClientOrigin
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.users import NewUser, Position, Role
from mailwarden.console.auth import ConsoleAuth, VisitorSessions
from mailwarden.console.language import Languages
from mailwarden.console.screens.receivers import ReceiversScreen
from mailwarden.console.services import StatusView
from mailwarden.console.templating import Assets, Templates
from mailwarden.event_delivery.model import State
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant
from mailwarden.serving.http_app import HttpApp
from mailwarden.telemetry.metrics import Metrics
from tests.integration.event_delivery.webhook_servers import ALL, PEPPER, ROOT, Outbox, WebhookServer

SECRET = re.compile(r'id="receiver-secret"[^>]*>(whsec_[0-9A-Za-z+/=]+)<')
PAGE = re.compile(r'"(/console/receivers/[0-9a-f-]{36})')


class Directory:
    """The tenants of the database."""

    def __init__(self, tenants: list[Tenant]) -> None:
        self._tenants = tenants

    def known(self, scope: Scope) -> list[Tenant]:
        return [tenant for tenant in self._tenants if scope.allows(tenant.uid)]


class User:
    """A signed-in user who opens pages and sends forms."""

    def __init__(self, client: TestClient[web.BaseRequest, None], cookie: str, csrf: str) -> None:
        self._client = client
        self._headers = {"Cookie": f"{COOKIE}={cookie}"}
        self._csrf = csrf

    async def get(self, path: str) -> tuple[int, str]:
        async with self._client.get(path, headers=self._headers) as answer:
            return answer.status, await answer.text()

    async def post(self, path: str, **fields: object) -> tuple[int, str]:
        """Send a form and follow the redirection of a success."""
        given = [("csrf", self._csrf)]
        for name, value in fields.items():
            given += [(name, str(each)) for each in (value if isinstance(value, list) else [value])]
        async with self._client.post(path, data=given, headers=self._headers, allow_redirects=False) as answer:
            if answer.status != 303:
                return answer.status, await answer.text()
        return await self.get(answer.headers["Location"])

    async def add(self, **fields: object) -> tuple[int, str]:
        given = {"name": f"soar {uuid4().hex[:8]}", "target": "https://soar.example/hook", "bound": "global", **fields}
        return await self.post("/console/receivers/new", **given)


Invite = Callable[..., Awaitable[User]]


@pytest.fixture
async def invite(outbox: Outbox, tmp_path: Path) -> AsyncIterator[Invite]:
    """Return a function that signs a new user in."""
    registry, tenants = build_registry(outbox.database, PEPPER), TenantStore(outbox.database)
    made = [await tenants.create(ALL, name, [f"{name}.example"]) for name in ("acme", "club")]
    assets, visitors = Assets(), VisitorSessions(registry)
    templates = Templates(assets, lambda: StatusView("GREEN"), Languages())
    pages = ReceiversScreen(outbox.service, outbox.channels, visitors).pages()
    auth = ConsoleAuth(registry.sessions, templates, cast("TenantDirectory", Directory(made)), tmp_path)
    app = HttpApp([*auth.routes(pages), assets.route()], Metrics())
    client: TestClient[web.BaseRequest, None] = TestClient(RawTestServer(app.answer))

    async def sign_in(role: Role, *names: str) -> User:
        uids = frozenset(tenant.uid for tenant in made if tenant.name in names)
        user = await registry.users.create(ALL, NewUser(f"user {uuid4().hex[:8]}", Position(role, uids)), ROOT)
        visit, _ = registry.sessions.visit()
        origin = ClientOrigin("https://abby.example", "127.0.0.1", "tests")
        session, cookie = await registry.sessions.log_in(visit, user, "tests", origin)
        return User(client, cookie, session.csrf)

    async with client:
        yield sign_in
    registry.passwords.close()


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).split())


def made_of(answer: tuple[int, str]) -> tuple[str, str]:
    """Return the path of the receiver's page and the secret that is shown once."""
    secret, path = SECRET.search(answer[1]), PAGE.search(answer[1])
    assert secret is not None, text_of(answer[1])
    assert path is not None
    return path[1], secret[1]


async def test_a_webhook_from_its_form_to_its_deletion(invite: Invite, outbox: Outbox, server: WebhookServer) -> None:
    root = await invite(Role.DEPLOYMENT_ADMINISTRATOR)
    path, server.secret = made_of(await root.add(target=server.url, types=["key.revoked", "message.held"]))
    first = server.secret
    assert first not in (await root.get("/console/receivers/made"))[1]
    assert "accepted the test event" in text_of((await root.post(f"{path}/test"))[1])
    assert [document["type"] for document in server.seen] == ["receiver.test"]

    assert (await root.post(f"{path}/rotate", overlap="9"))[0] == 400
    same, second = made_of(await root.post(f"{path}/rotate", overlap="24"))
    assert (same, second != first) == (path, True)
    await root.post(f"{path}/test")  # the server still verifies with the first secret
    server.secret = second
    await root.post(f"{path}/test")
    assert len(server.seen) == 3
    _, server.secret = made_of(await root.post(f"{path}/rotate", overlap="0"))
    await root.post(f"{path}/test")
    assert len(server.seen) == 4

    server.status = 500
    status, page = await root.post(f"{path}/test")
    assert (status, "not delivered. The receiver answered 500." in text_of(page)) == (200, True)
    for action, notice, state in (
        ("pause", "are paused", State.DISABLED),
        ("enable", "continue after", State.ENABLED),
    ):
        assert notice in text_of((await root.post(f"{path}/{action}"))[1])
        (receiver,) = await outbox.store.list(ALL)
        assert (receiver.state, receiver.types) == (state, frozenset({"key.revoked", "message.held"}))
    for shown in (path, "/console/receivers"):
        page = (await root.get(shown))[1]
        assert server.url.replace("hook", "…") in text_of(page)
        assert "/hook" not in page
    assert (await root.get(f"{path}/delete"))[0] == 200
    assert "was deleted" in text_of((await root.post(f"{path}/delete"))[1])
    assert (await root.get(path))[0] == 404
    async with outbox.database.connection() as connection:
        audit = await connection.fetch(
            "SELECT actor, action FROM audit WHERE action LIKE 'receivers.%' ORDER BY number"
        )
    actions = ("create", "rotate", "rotate", "disable", "enable", "remove")
    recorded = [str(row["action"]).removeprefix("receivers.") for row in audit]
    assert [action for action in recorded if action != "test"] == list(actions)
    assert recorded.count("test") == 5
    assert all(str(row["actor"]).startswith("user:user ") for row in audit)


async def test_receivers_of_others_do_not_exist(invite: Invite, outbox: Outbox) -> None:
    root, acme = await invite(Role.DEPLOYMENT_ADMINISTRATOR), await invite(Role.TENANT_ADMINISTRATOR, "acme")
    club = await invite(Role.TENANT_ADMINISTRATOR, "club")
    own, _ = made_of(await acme.add(bound="acme", name="of acme"))
    whole, _ = made_of(await root.add(name="of the deployment"))
    seen = {
        name: [each for each in ("of acme", "of the deployment") if each in (await user.get("/console/receivers"))[1]]
        for name, user in (("root", root), ("acme", acme), ("club", club))
    }
    assert seen == {"root": ["of acme", "of the deployment"], "acme": ["of acme"], "club": []}
    for user, path in ((club, own), (acme, whole), (acme, "/console/receivers/no-uuid")):
        for page in ("", "/rotate", "/delete"):
            assert (await user.get(path + page))[0] == 404
        for action in ("test", "pause", "enable", "rotate", "delete"):
            assert (await user.post(f"{path}/{action}", overlap="24"))[0] == 404
    assert {each.state for each in await outbox.store.list(ALL)} == {"enabled"}
    assert (await acme.get(own))[0] == 200


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"bound": "global"}, "There is no tenant `global`"),
        ({"bound": "club"}, "There is no tenant `club`"),
        ({"bound": ""}, "Choose whose events"),
        ({"kind": "file", "target": "siem.ndjson"}, "Only the deployment can have"),
        ({"kind": "syslog", "target": "tls://siem.example:6514"}, "Only the deployment can have"),
        ({"kind": "pigeon"}, "Choose a value of the menu"),
        ({"target": "http://soar.example/hook"}, "The URL must start with https://"),
        ({"target": "https://user:pass@soar.example/"}, "no user name"),
        ({"types": ["no.such"]}, "There is no event type"),
        ({"batch": "501"}, "A batch has 1 to 500"),
        ({"batch": "-1"}, "The batch is a number"),
        ({"name": ""}, "The name must have"),
    ],
)
async def test_a_mistake_is_shown_in_the_form(invite: Invite, fields: dict[str, object], reason: str) -> None:
    acme = await invite(Role.TENANT_ADMINISTRATOR, "acme")
    status, page = await acme.add(**{"bound": "acme", **fields})
    assert (status, reason in text_of(page)) == (400, True), text_of(page)


async def test_a_file_has_no_secret(invite: Invite) -> None:
    root = await invite(Role.DEPLOYMENT_ADMINISTRATOR)
    status, page = await root.add(kind="file", target="siem.ndjson", format="ecs")
    found = PAGE.search(page)
    assert (status, "The receiver was added." in page, found is not None) == (200, True, True), text_of(page)
    assert found is not None
    assert (await root.get(f"{found[1]}/rotate"))[0] == 400
    assert "accepted the test event" in text_of((await root.post(f"{found[1]}/test"))[1])


async def test_failing_and_disabled_receivers_say_why(invite: Invite, outbox: Outbox) -> None:
    root = await invite(Role.DEPLOYMENT_ADMINISTRATOR)
    path, _ = made_of(await root.add())
    (receiver,) = await outbox.store.list(ALL)
    async with outbox.database.connection() as connection:
        await connection.execute("UPDATE event_receivers SET failing_since = now(), last_error = 'It failed.'")
    for shown in (path, "/console/receivers"):
        assert "failing" in text_of((await root.get(shown))[1])
    assert "Deliveries have failed since" in text_of((await root.get(path))[1])
    await outbox.store.disable(ALL, receiver.uid, "The receiver answered 410 Gone.", ROOT)
    text = text_of((await root.get(path))[1])
    assert "This receiver is disabled and gets no events. The receiver answered 410 Gone." in text
