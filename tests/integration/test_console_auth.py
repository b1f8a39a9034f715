"""The console over HTTP: CSRF tokens, uploads and error pages."""

import io
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import RawTestServer, TestClient

from mailwarden.access.sessions import COOKIE
from mailwarden.access.users import Role, User
from mailwarden.console.auth import BodyType, ConsoleAuth, Page, PublicPage
from mailwarden.console.language import Languages
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, VisitorRequest
from mailwarden.console.services import StatusView
from mailwarden.console.templating import POLICY, Assets, Templates
from mailwarden.errors import StorageUnavailable
from mailwarden.serving.http_app import HttpApp
from mailwarden.telemetry.metrics import Metrics

TOKEN = "the-token-of-this-session"
FORM = {"csrf": TOKEN, "name": "<b>bob</b>"}


Client = TestClient[web.BaseRequest, None]


@dataclass(frozen=True)
class Session:
    user: User | None
    csrf: str = TOKEN


class People:
    """BodyType the name of a role for a cookie of somebody who has it, and `visit` for one of a guest."""

    async def find(self, value: str) -> Session | None:
        if value == "visit":
            return Session(None)
        if value not in set(Role):
            return None
        tenants = frozenset({uuid4()}) if value == Role.TENANT_ADMINISTRATOR else frozenset()
        return Session(User(uuid4(), "alice", Role(value), tenants, datetime.now(UTC)))


class Tenants:
    def known(self, scope: object) -> list[object]:
        return []


async def show(visit: UserRequest) -> web.StreamResponse:
    return visit.render("health/state.html", colour=visit.query.get("colour", "GREEN"), guards=[], database_up=True)


async def take(visit: UserRequest) -> web.StreamResponse:
    file = visit.form.file("file")
    return web.Response(text=f"{visit.form.text('name')}|{file.size if file else 0}")


async def welcome(guest: VisitorRequest) -> web.StreamResponse:
    return web.Response(text="welcome " + guest.form.text("name"))


async def fail(visit: UserRequest) -> web.StreamResponse:
    raise StorageUnavailable("The database is <away>.", retry_after=7)


async def break_down(visit: UserRequest) -> web.StreamResponse:
    raise RuntimeError("a secret of ours")


PAGES = (
    Page("GET", "/show", Permission.OVERVIEW, show),
    Page("POST", "/take", Permission.LISTS_WRITE, take),
    Page("POST", "/upload", Permission.LISTS_WRITE, take, BodyType.UPLOAD),
    Page("GET", "/tenants-only", Permission.TENANTS_WRITE, show),
    Page("GET", "/fail", Permission.OVERVIEW, fail),
    Page("GET", "/break", Permission.OVERVIEW, break_down),
    PublicPage("GET", "/welcome", welcome),
    PublicPage("POST", "/welcome", welcome),
)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    assets = Assets()
    templates = Templates(assets, lambda: StatusView("GREEN"), Languages())
    routes = ConsoleAuth(People(), templates, Tenants(), tmp_path).routes(PAGES)  # type: ignore[arg-type]
    app = HttpApp([*routes, assets.route()], Metrics())
    made: Client = TestClient(RawTestServer(app.answer))
    async with made:
        yield made


def as_(role: str, **headers: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={role}", **headers}


async def test_a_part_of_a_page_sends_the_whole_page_to_sign_in(client: Client) -> None:
    answer = await client.get("/console/show", headers={"HX-Request": "true"})
    assert (answer.status, answer.headers["HX-Redirect"]) == (401, "/console/login")


async def test_text_of_a_message_is_escaped(client: Client) -> None:
    answer = await client.get("/console/show", params={"colour": "<script>alert(1)</script>"}, headers=as_("auditor"))
    text = await answer.text()
    assert "<script" not in text
    assert "&lt;script&gt;" in text


async def test_a_form_of_a_page_of_ours_is_taken(client: Client) -> None:
    answer = await client.post("/console/take", data=FORM, headers=as_("analyst"))
    assert (answer.status, await answer.text()) == (200, "<b>bob</b>|0")


@pytest.mark.parametrize(
    ("data", "headers"),
    [
        ({"name": "bob"}, {}),
        ({"name": "bob", "csrf": ""}, {}),
        ({"name": "bob", "csrf": TOKEN[:-1]}, {}),
        (FORM, {"X-CSRF-Token": "wrong"}),
        (FORM, {"Sec-Fetch-Site": "cross-site"}),
        (FORM, {"Origin": "https://evil.example"}),
    ],
)
async def test_a_form_from_elsewhere_is_refused(client: Client, data: dict[str, str], headers: dict[str, str]) -> None:
    assert (await client.post("/console/take", data=data, headers=as_("analyst", **headers))).status == 403


async def test_the_token_may_stand_in_a_header(client: Client) -> None:
    headers = as_("analyst", **{"X-CSRF-Token": TOKEN})
    assert (await client.post("/console/take", data={"name": "bob"}, headers=headers)).status == 200


async def test_a_role_without_the_right_is_refused_before_its_form_is_read(client: Client) -> None:
    assert (await client.post("/console/take", data=FORM, headers=as_("auditor"))).status == 403


async def test_a_form_of_another_type_or_too_large_is_refused(client: Client) -> None:
    assert (await client.post("/console/take", json=FORM, headers=as_("analyst"))).status == 415
    headers = as_("analyst", **{"Content-Type": "application/x-www-form-urlencoded"})
    large = io.BytesIO(f"csrf={TOKEN}&more=".encode() + b"x" * 4_200_000)
    assert (await client.post("/console/take", data=large, headers=headers)).status == 413


def upload(*parts: tuple[str, str | bytes]) -> aiohttp.FormData:
    form = aiohttp.FormData(default_to_multipart=True)
    for name, value in parts:
        if isinstance(value, bytes):
            form.add_field(name, io.BytesIO(value), filename="a.eml", content_type="message/rfc822")
        else:
            form.add_field(name, value)
    return form


async def test_an_upload_gives_its_fields_and_its_file(client: Client) -> None:
    data = upload(("csrf", TOKEN), ("name", "bob"), ("file", b"x" * 2_000_000))
    answer = await client.post("/console/upload", data=data, headers=as_("analyst"))
    assert (answer.status, await answer.text()) == (200, "bob|2000000")


@pytest.mark.parametrize(
    "parts", [[("file", b"x"), ("csrf", TOKEN)], [("csrf", "wrong"), ("file", b"x")], [("name", "bob")]]
)
async def test_an_upload_without_the_token_first_is_rejected(
    client: Client, parts: list[tuple[str, str | bytes]]
) -> None:
    answer = await client.post("/console/upload", data=upload(*parts), headers=as_("analyst"))
    assert answer.status == 403


async def test_an_error_page_shows_its_message(client: Client) -> None:
    answer = await client.get("/console/fail", headers=as_("analyst"))
    text = await answer.text()
    assert (answer.status, answer.headers["Retry-After"]) == (503, "7")
    assert "The database is &lt;away&gt;." in text
    assert answer.headers["X-Request-Id"] in text


ERRORS = {
    "/console/fail": (503, "Try again in a moment."),
    "/console/break": (500, "give the request id below to an administrator"),
    "/console/tenants-only": (403, "an administrator can change it on the page Users"),
    "/console/no/such/page": (404, "Use the menu, or search for it."),
    "/console/take": (405, "Open the page with the form and send it again."),
}


@pytest.mark.parametrize("path", ERRORS)
async def test_an_error_is_inside_the_layout_and_says_what_to_do(client: Client, path: str) -> None:
    answer = await client.get(path, headers=as_("analyst"))
    status, advice = ERRORS[path]
    text = await answer.text()
    assert (answer.status, advice in text) == (status, True)
    assert 'aria-label="Main"' in text
    assert answer.headers["Content-Security-Policy"] == POLICY
    assert answer.headers["X-Request-Id"] in text


async def test_an_expired_form_leads_back_to_its_page(client: Client) -> None:
    here = f"http://{client.host}:{client.port}"
    for referer, expected in (
        (f"{here}/console/show?colour=RED", 'href="/console/show?colour=RED">Back to the form'),
        ("https://evil.example/console/show", ""),
        (f"{here}/elsewhere", ""),
        (f"{here}/console/take", ""),
    ):
        answer = await client.post("/console/take", data={"name": "bob"}, headers=as_("analyst", Referer=referer))
        text = await answer.text()
        assert answer.status == 403
        assert "The form has expired" in text
        assert expected in text
        assert ("Back to the form" in text) == bool(expected)


async def test_visitors_see_error_pages_without_the_menu(client: Client) -> None:
    answer = await client.get("/console/no-such-page", allow_redirects=False)
    text = await answer.text()
    assert (answer.status, "There is no such page." in text, 'aria-label="Main"' in text) == (404, True, False)


async def test_an_error_is_shown_even_if_the_layout_fails(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_too(_: UserRequest) -> object:
        raise StorageUnavailable("The tenants have not been read yet.")

    monkeypatch.setattr(UserRequest, "navigation", property(fail_too))
    answer = await client.get("/console/fail", headers=as_("analyst"))
    assert (answer.status, "The database is &lt;away&gt;." in await answer.text()) == (503, True)


async def test_an_internal_error_reveals_no_details(client: Client) -> None:
    answer = await client.get("/console/break", headers=as_("analyst", **{"HX-Request": "true"}))
    assert answer.status == 500
    assert "secret" not in await answer.text()


async def test_a_public_page_rejects_other_sites(client: Client) -> None:
    assert await (await client.post("/console/welcome", data={"name": "bob"})).text() == "welcome bob"
    headers = {"Origin": "https://evil.example"}
    assert (await client.post("/console/welcome", data={"name": "bob"}, headers=headers)).status == 403


async def test_static_files_are_cached_and_compressed(client: Client) -> None:
    address = Assets().address("tabler.min.css")
    answer = await client.get(address)
    assert answer.status == 200
    assert "immutable" in answer.headers["Cache-Control"]
    assert answer.headers["Content-Encoding"] == "gzip"
    assert (await client.get("/console/static/000000000000/tabler.min.css")).status == 404
    assert (await client.get("/console/static/..%2f..%2fapp.py")).status == 404
