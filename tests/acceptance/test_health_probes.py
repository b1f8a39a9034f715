"""guard's health listener: what a container platform asks, without a client certificate."""

import http.client

import requests
from ruamel.yaml import YAML

from tests.acceptance.deployment import Deployment
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.product import CONFIGURATION_FILES


def ask(deployment: Deployment, path: str) -> requests.Response:
    guard = YAML(typ="safe").load(deployment.product.guards[1].folder / CONFIGURATION_FILES["guard"])
    return requests.get(f"http://127.0.0.1:{guard['health']['port']}{path}", timeout=5)


def test_a_guard_without_a_required_engine_is_alive_but_not_ready(
    restartable: Deployment, stoppable_engines: Engines
) -> None:
    assert ask(restartable, "/readyz").text == "ok\n"
    stoppable_engines.clamd.stop()
    assert wait_until(lambda: ask(restartable, "/readyz").status_code == http.HTTPStatus.SERVICE_UNAVAILABLE)
    assert ask(restartable, "/readyz").text == "not ready: clamav is down\n"
    assert ask(restartable, "/healthz").text == "ok\n"
    stoppable_engines.clamd.start()
    assert wait_until(lambda: ask(restartable, "/readyz").ok)


def test_the_health_listener_serves_nothing_else(restartable: Deployment) -> None:
    for path in ("/metrics", "/", "/v1/status"):
        assert ask(restartable, path).status_code == http.HTTPStatus.NOT_FOUND
