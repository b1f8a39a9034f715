"""The HTTP application: routes, request ids, errors as answers, and the stop."""

import json

import pytest
from aiohttp import HttpVersion11, web
from aiohttp.test_utils import make_mocked_request

from mailwarden.errors import Overloaded
from mailwarden.serving.http_app import HttpApp, Route
from mailwarden.telemetry.metrics import Metrics


async def answer_ok(call):
    return web.json_response({"variables": dict(call.variables), "id": call.request_id})


async def fail(call):
    raise ValueError("a secret")


async def refuse(call):
    raise Overloaded("full", retry_after=7)


@pytest.fixture
async def app():
    return HttpApp(
        [
            Route("GET", "/v1/ok", answer_ok),
            Route("POST", "/v1/ok", answer_ok),
            Route("GET", "/v1/things/{name}", answer_ok),
            Route("GET", "/fail", fail),
            Route("GET", "/refuse", refuse),
        ],
        Metrics(),
    )


async def ask(app, method="GET", path="/v1/ok", version=HttpVersion11, **headers):
    headers = {name.replace("_", "-"): value for name, value in {"Host": "a", **headers}.items() if value is not None}
    response = await app.answer(make_mocked_request(method, path, headers=headers, version=version))
    assert isinstance(response, web.Response)
    body = json.loads(response.body) if isinstance(response.body, bytes) else {}
    return response, body


async def test_a_route_is_found_with_its_variables(app):
    response, body = await ask(app, path="/v1/things/a-b")
    assert (response.status, body["variables"]) == (200, {"name": "a-b"})
    assert response.headers["X-API-Version"] == "1.1.0"


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/ok/", "/v1/things/", "/v1/things/a/b", "/v1/OK", "//v1/ok"])
async def test_an_unknown_path_is_not_found(app, path):
    response, body = await ask(app, path=path)
    assert (response.status, body["error"]) == (404, "not_found")


@pytest.mark.parametrize("given", ["a", "A-b_c.9", "x" * 64])
async def test_a_usable_request_id_is_kept(app, given):
    response, body = await ask(app, X_Request_Id=given)
    assert response.headers["X-Request-Id"] == body["id"] == given


@pytest.mark.parametrize("given", [None, "", "a b", "x" * 65, "a/b", "é", "a\u2028"])
async def test_any_other_is_replaced(app, given):
    response, _ = await ask(app, X_Request_Id=given)
    assert response.headers["X-Request-Id"] not in (given, "")


async def test_a_bug_leaks_nothing(app):
    response, body = await ask(app, path="/fail")
    assert (response.status, body["error"]) == (500, "internal_error")
    assert "secret" not in str(body)
    assert response.headers["X-Request-Id"]


async def test_a_rejection_has_retry_after(app):
    response, _ = await ask(app, path="/refuse")
    assert (response.status, response.headers["Retry-After"]) == (503, "7")


@pytest.mark.parametrize("headers", [{"Host": None}, {"Expect": "tea"}, {"X": "a" * 33_000}])
async def test_a_doubtful_head_is_refused(app, headers):
    response, body = await ask(app, **headers)
    assert (response.status, body["error"]) == (400, "bad_request")


async def test_requests_are_counted_by_route_and_status(app):
    metrics = Metrics()
    counted = HttpApp([Route("GET", "/v1/things/{name}", answer_ok)], metrics)
    await ask(counted, path="/v1/things/a")
    await ask(counted, path="/nothing")
    page = metrics.page().decode()
    assert 'mailwarden_http_requests_total{route="/v1/things/{name}",status="200"} 1.0' in page
    assert 'mailwarden_http_requests_total{route="none",status="404"} 1.0' in page
