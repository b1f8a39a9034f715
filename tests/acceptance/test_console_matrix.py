"""Every page of the console for everybody: the matrix is made from the console's own table of pages."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from unittest.mock import MagicMock
from uuid import uuid4

import pytest
import requests

from mailwarden.access.users import Role
from mailwarden.console.app import build_pages
from mailwarden.console.auth import PREFIX, BodyType, Page, PublicPage
from mailwarden.console.permissions import may
from mailwarden.model.ggrid import first_ggrid
from tests.acceptance.console_session import ConsoleSession, sign_in
from tests.acceptance.deployment import Deployment

# The table is wanted and nothing behind it, so the screens are given nothing to show.
TABLE = build_pages(MagicMock(demo=False))
PAGES = [page for page in TABLE if isinstance(page, Page)]
OPEN_PAGES = [page for page in TABLE if isinstance(page, PublicPage)]
PEOPLE: Mapping[str, tuple[Role, tuple[str, ...]]] = {
    "deployment administrator": (Role.DEPLOYMENT_ADMINISTRATOR, ()),
    "tenant administrator of acme": (Role.TENANT_ADMINISTRATOR, ("acme",)),
    "analyst": (Role.ANALYST, ()),
    "analyst of acme": (Role.ANALYST, ("acme",)),
    "auditor": (Role.AUDITOR, ()),
    "auditor of acme": (Role.AUDITOR, ("acme",)),
}
LOGIN = "/console/login"
# Of no message; a page waits a second for a message that may be written in a moment.
YESTERDAY = str(first_ggrid(datetime.now(UTC) - timedelta(days=1)))


@pytest.fixture(scope="module")
def people(deployment: Deployment) -> dict[str, ConsoleSession]:
    return {name: sign_in(deployment, role, tenants) for name, (role, tenants) in PEOPLE.items()}


def path_of(page: Page | PublicPage, deployment: Deployment) -> str:
    """Return an address of the page; what it names is real where that is harmless, and else nothing that exists."""
    known = {"tenant": deployment.tenants["acme"], "name": "sender-block", "format": "csv", "ggrid": YESTERDAY}
    return PREFIX + re.sub(r"\{(\w+)\}", lambda found: known.get(found.group(1), str(uuid4())), page.path)


def send(page: Page, user: ConsoleSession, path: str, csrf: str | None = None) -> requests.Response:
    if page.method == "GET":
        return user.get(path)
    files: dict[str, object] | None = {} if page.body is BodyType.UPLOAD else None
    return user.post(path, {"nothing": "1"}, csrf=csrf, files=files)


def named(page: Page | PublicPage) -> str:
    return f"{page.method} {page.path}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_answers_by_role(page: Page, deployment: Deployment, people: dict[str, ConsoleSession]) -> None:
    path = path_of(page, deployment)
    ends_session = page.path == "/logout"
    for name, (role, tenants) in PEOPLE.items():
        user = sign_in(deployment, role, tenants) if ends_session else people[name]
        status = send(page, user, path).status_code
        if may(role, page.permission, whole_deployment=not tenants):
            assert status != 403, (name, status)
            assert status < 500, (name, status)
        else:
            assert status == 403, (name, status)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_rejects_missing_and_forged_cookies(page: Page, deployment: Deployment) -> None:
    path = path_of(page, deployment)
    for cookie in ("", "x" * 43, "'; DROP TABLE sessions; --"):
        user = ConsoleSession(deployment.product.url, str(deployment.product.ca), "guest", cookie, "token")
        answer = send(page, user, path)
        assert answer.status_code == 303, answer.status_code
        assert answer.headers["Location"].partition("?")[0] == LOGIN


@pytest.mark.parametrize("page", [page for page in PAGES if page.method != "GET"], ids=named)
def test_a_form_without_its_token_changes_nothing(
    page: Page, deployment: Deployment, people: dict[str, ConsoleSession]
) -> None:
    user, other = people["deployment administrator"], people["analyst"]
    for token in ("", other.csrf):
        assert send(page, user, path_of(page, deployment), token).status_code == 403


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_a_page_cannot_be_framed_and_carries_the_policy(
    page: Page, deployment: Deployment, people: dict[str, ConsoleSession]
) -> None:
    user = people["auditor of acme"] if page.path == "/logout" else people["deployment administrator"]
    headers = send(page, user, path_of(page, deployment), "" if page.path == "/logout" else None).headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert re.search(r"frame-ancestors '(none|self)'", policy)
    assert "frame-ancestors 'none'" not in policy or headers["X-Frame-Options"] == "DENY"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("page", OPEN_PAGES, ids=named)
def test_an_open_page_never_breaks(page: PublicPage, deployment: Deployment) -> None:
    user = ConsoleSession(deployment.product.url, str(deployment.product.ca), "guest", "", "token")
    path = path_of(page, deployment)
    answer = user.get(path) if page.method == "GET" else user.post(path, {"nothing": "1"})
    assert answer.status_code < 500
    assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
