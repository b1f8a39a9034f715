"""SIGHUP: changed settings act without a restart and without a lost request; an invalid file changes nothing."""

import json
import os
import secrets
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.client import Client
from tests.acceptance.deployment import Deployment, DeploymentTemplate, run_deployment
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.product import Service
from workshop.rig.samples import plain_message

pytestmark = pytest.mark.slow
MARK = "reload marker 5d1c77"
RULE = 'rule marker { meta: verdict = "malware" severity = "high" strings: $a = "%s" condition: $a }'
CALLERS = 2
PATIENT = 180.0  # a busy machine takes many seconds to start each worker


@pytest.fixture(scope="module")
def reloadable(
    engines: Engines, deployment_template: DeploymentTemplate, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("reload")
    with run_deployment(engines, deployment_template, folder, one_process=False) as running:
        yield running


@pytest.fixture
def marked(engines: Engines) -> bytes:
    """Return a good message with the line that the YARA rule finds."""
    return engines.dns.sign(plain_message() + f"\r\n{MARK}\r\n".encode(), "pass.example")


def events(service: Service, *names: str) -> list[dict[str, Any]]:
    written = service.log.read_text("utf-8").rpartition("\n")[0]  # the last line may be incomplete
    lines = (json.loads(line) for line in written.splitlines())
    return [line for line in lines if line["event"] in names]


def reload(service: Service) -> dict[str, Any]:
    """Send SIGHUP, and return the log line of its result."""
    names = ("settings_reloaded", "settings_not_reloaded")
    before = len(events(service, *names))
    os.kill(service.pid, signal.SIGHUP)
    assert wait_until(lambda: len(events(service, *names)) > before, PATIENT)
    return events(service, *names)[before]


def test_yara_rules_act_after_a_reload_without_a_lost_request(reloadable: Deployment, plain: bytes, marked: bytes):
    guard, client = reloadable.product.guards[0], reloadable.client()
    assert client.submit(marked).outcome == ("clean", "deliver")
    rules = guard.folder / "yara"
    rules.mkdir()
    (rules / "own.yar").write_text(RULE % MARK)
    guard.configure({"yara": {"rules": "yara"}})

    done = threading.Event()
    with ThreadPoolExecutor(CALLERS) as threads:
        calls = [threads.submit(submit_until, client, plain, done) for _ in range(CALLERS)]
        try:
            assert reload(guard)["changed"] == ["yara.rules"]
        finally:
            done.set()
        outcomes = [outcome for call in calls for outcome in call.result()]
    assert len(outcomes) >= CALLERS
    assert set(outcomes) == {("clean", "deliver")}, "every request of the load was answered as before"
    assert client.submit(marked).outcome[0] == "malware"

    (rules / "own.yar").write_text(RULE % "another marker 5d1c77")
    assert reload(guard)["changed"] == ["yara.rules (files)"], "a changed file counts without a changed key"
    assert client.submit(marked).outcome == ("clean", "deliver")


def submit_until(client: Client, message: bytes, done: threading.Event) -> list[tuple[str, str]]:
    outcomes = []
    while not done.is_set():
        answer = client.submit(message)
        outcomes.append(answer.outcome if answer.status == 200 else (str(answer.status), answer.error))
    return outcomes


def test_an_invalid_configuration_changes_nothing(reloadable: Deployment, plain: bytes):
    guard, client = reloadable.product.guards[0], reloadable.client()
    path = guard.folder / "guard" / "core" / "guard.yml"
    before = path.read_text()
    try:
        guard.configure({"onEngineFailure": "tempfail", "maxThrottleDelay": "soon", "nonsense": 1})
        result = reload(guard)
        assert result["event"] == "settings_not_reloaded"
        assert "maxThrottleDelay" in result["reason"]
        assert "nonsense" in result["reason"], "every error is named"
        assert client.submit(plain).outcome == ("clean", "deliver")
        path.write_text(before)
        assert reload(guard)["changed"] == [], "onEngineFailure was not used either"
    finally:
        path.write_text(before)


def test_a_broken_rule_changes_nothing(reloadable: Deployment, plain: bytes, tmp_path: Path):
    guard = reloadable.product.guards[0]
    path = guard.folder / "guard" / "core" / "guard.yml"
    before = path.read_text()
    (tmp_path / "bad.yar").write_text("rule broken {")
    try:
        guard.configure({"yara": {"rules": str(tmp_path)}})
        result = reload(guard)
        assert result["event"] == "settings_not_reloaded"
        assert "bad.yar" in result["reason"]
        assert reloadable.client().submit(plain).outcome == ("clean", "deliver")
    finally:
        path.write_text(before)


def test_limits_and_engines_are_replaced_and_restarts_are_named(reloadable: Deployment, engines: Engines, plain: bytes):
    guard, client = reloadable.product.guards[0], reloadable.client()
    guard.configure({"onEngineFailure": "tempfail", "engines": {"clamav": {"address": "unix:/nowhere/clamd"}}})
    guard.configure({"workers": {"count": 3}})
    result = reload(guard)
    assert {"onEngineFailure", "engines.clamav.address"} <= {*result["changed"]}
    assert result["restart_needed"] == ["workers.count"]
    answer = client.submit(plain)
    assert (answer.status, answer.error) == (503, "engine_unavailable")
    guard.configure({"onEngineFailure": "undecided", "engines": {"clamav": {"address": engines.clamd.address}}})
    assert reload(guard)["restart_needed"] == ["workers.count"], "it is named until the restart"
    assert client.submit(plain).outcome == ("clean", "deliver")


def test_a_new_token_is_valid_after_a_reload_of_abby(reloadable: Deployment):
    abby, token = reloadable.product.abby, secrets.token_hex(32)
    fresh = reloadable.client().using(token)
    assert fresh.call("POST", "/v1/admin/status").status == 401
    kept = [{"name": "everything", "token": reloadable.tokens["everything"], "permissions": ["*"]}]
    abby.configure({"staticApiTokens": [*kept, {"name": "fresh", "token": token}]})
    result = reload(abby)
    assert result["changed"] == ["staticApiTokens"]
    assert token not in json.dumps(result)
    assert fresh.call("POST", "/v1/admin/status").status == 200
    gone = reloadable.client("watcher").call("POST", "/v1/admin/status")
    assert gone.status == 401, "a removed token is no longer valid"
