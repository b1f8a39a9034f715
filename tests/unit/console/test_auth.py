"""Where a login may redirect to, and which sites a form may come from."""

import pytest
from aiohttp.test_utils import make_mocked_request

from mailwarden.console.auth import check_site, safe_return_path, to_login
from mailwarden.errors import Forbidden
from mailwarden.serving.http_app import Call


@pytest.mark.parametrize("wanted", ["/console/lists?scope=global", "/console/messages/1", "/console/"])
def test_a_login_leads_back_to_the_page_that_was_wanted(wanted: str) -> None:
    assert safe_return_path(wanted) == wanted


@pytest.mark.parametrize(
    "wanted",
    [
        "",
        "https://evil.example/console/",
        "//evil.example/console/",
        "/\\evil.example/console/",
        "/console/\\evil.example",
        "/v1/messages",
        "/console/login?next=/console/login",
        "/console/logout",
        "javascript:alert(1)",
        "/console/\r\nSet-Cookie: a=b",
        "console/lists",
    ],
)
def test_a_login_leads_nowhere_else(wanted: str) -> None:
    assert safe_return_path(wanted) == "/console/"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://evil.example"},
    ],
)
def test_requests_from_another_site_are_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        check_site(make_mocked_request("POST", "/console/x", {"Host": "mw.example:9081", **headers}))


@pytest.mark.parametrize(
    "headers",
    [{}, {"Sec-Fetch-Site": "same-origin", "Origin": "https://mw.example:9081"}, {"Sec-Fetch-Site": "none"}],
)
def test_our_own_pages_may_send(headers: dict[str, str]) -> None:
    check_site(make_mocked_request("POST", "/console/x", {"Host": "mw.example:9081", **headers}))


@pytest.mark.parametrize(
    ("method", "path", "leads"),
    [
        ("GET", "/console/lists?scope=global", "/console/login?next=%2Fconsole%2Flists%3Fscope%3Dglobal"),
        ("POST", "/console/quarantine/1/release", "/console/login?done=not-done"),
        ("POST", "/console/logout", "/console/login?done=signed-out"),
    ],
)
def test_an_expired_session_is_explained(method: str, path: str, leads: str) -> None:
    answer = to_login(Call(make_mocked_request(method, path), "1", {}))
    assert (answer.status, answer.headers["Location"]) == (303, leads)


@pytest.mark.parametrize(("method", "leads"), [("GET", "/console/login"), ("POST", "/console/login?done=not-done")])
def test_a_part_of_a_page_leads_the_whole_page_there(method: str, leads: str) -> None:
    answer = to_login(Call(make_mocked_request(method, "/console/x", {"HX-Request": "true"}), "1", {}))
    assert (answer.status, answer.headers["HX-Redirect"]) == (401, leads)
