"""`mailwarden serve all`: one process reloads, logs and stops as two do; most other files test it as well."""

import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.acceptance.client import STATUS
from tests.acceptance.deployment import (
    Deployment,
    DeploymentTemplate,
    guard_status,
    in_processing,
    run_deployment,
)
from tests.acceptance.pausable_clamd import PausableClamd
from tests.acceptance.test_metrics import scrape_abby, scrape_guard, value
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.ports import free_port
from workshop.rig.product import CONFIGURATION_FILES

pytestmark = pytest.mark.slow
PLACES = {"mainWorkerCount": 3, "maxGuardRequestsInProcessing": 3, "guardRequestThrottleThreshold": 3}
LONGEST_WAIT = 30_000  # milliseconds, longer than a busy machine takes to refuse
SCANNED = 'mailwarden_http_requests_total{route="/v1/messageQueue/submitEmail",status="%d"}'


@pytest.fixture(scope="module")
def installed(
    engines: Engines,
    deployment_template: DeploymentTemplate,
    pausable_clamd: PausableClamd,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Deployment]:
    clamav = {"address": pausable_clamd.address, "maxConcurrency": 3}
    health = {"host": "127.0.0.1", "port": free_port()}
    guard = {**PLACES, "maxThrottleDelay": LONGEST_WAIT, "health": health, "engines": {"clamav": clamav}}
    folder = tmp_path_factory.mktemp("one")
    with run_deployment(engines, deployment_template, folder, guards=(guard,), start=False) as running:
        yield running


@pytest.fixture
def one(installed: Deployment, pausable_clamd: PausableClamd) -> Deployment:
    """Return the running deployment: one process, three requests at once, behind the pausable clamd."""
    pausable_clamd.resume()
    installed.product.start()
    return installed


def lines(deployment: Deployment) -> list[dict[str, Any]]:
    written = deployment.product.abby.log.read_text("utf-8").rpartition("\n")[0]
    return [json.loads(line) for line in written.splitlines()]


@pytest.mark.spec("1 static configuration")
@pytest.mark.spec("1 restApi")
@pytest.mark.spec("1 restart")
@pytest.mark.contract("5 scanning_disabled")
def test_scanning_is_disabled_until_rest_api_is_added_and_the_process_restarted(
    installed: Deployment, pausable_clamd: PausableClamd, plain: bytes
) -> None:
    pausable_clamd.resume()
    client, path = installed.client(), installed.product.abby.folder / CONFIGURATION_FILES["guard"]
    enabled = path.read_text("utf-8")
    path.write_text(enabled.replace("scanSources:\n  restApi: {}", "scanSources: {}"), "utf-8")
    assert path.read_text("utf-8") != enabled
    try:
        installed.product.start()
        answer = client.submit(plain)
        assert (answer.status, answer.error) == (503, "scanning_disabled")
        assert answer.headers["Retry-After"] == "300"
    finally:
        path.write_text(enabled, "utf-8")
    assert client.submit(plain).error == "scanning_disabled", "the settings need a restart"
    installed.product.abby.restart()
    assert client.submit(plain).outcome == ("clean", "deliver")


def test_guard_listens_on_its_own_port(one):
    status = guard_status(one, 0)
    assert (status["name"], status["scanningEnabled"], status["maxInProcessing"]) == ("guard-1", True, 3)
    assert wait_until(lambda: one.client().colour() == "GREEN")


def test_each_program_has_its_own_log_lines_and_metrics(one, plain):
    scanned = SCANNED % 200
    one.client().submit(plain)
    before = value(scrape_abby(one), scanned), value(scrape_guard(one), scanned)
    answer = one.client().submit(plain, headers={"X-Request-Id": "one-process-1"})
    assert (value(scrape_abby(one), scanned), value(scrape_guard(one), scanned)) == (before[0] + 1, before[1] + 1)

    def speaking() -> dict[tuple[str, str], dict[str, Any]]:
        found = [line for line in lines(one) if line.get("ggrid") == answer.result["ggrid"]]
        return {(line["program"], line["event"]): line for line in found}

    wanted = {("abby", "request"), ("guard", "judged")}
    assert wait_until(lambda: wanted <= set(speaking()))
    assert {line["request_id"] for line in speaking().values()} == {"one-process-1"}
    started = {(line["program"], line["event"]) for line in lines(one)}
    assert {("abby", "listening"), ("guard", "listening"), ("guard", "workers_started")} <= started
    assert ("abby", "workers_started") not in started


def test_a_reload_reads_both_files(one, plain):
    guard = one.product.guards[0]
    guard.configure({"maxGuardRequestsInProcessing": 4, "guardRequestThrottleThreshold": 4})
    before = len([line for line in lines(one) if line["event"] == "settings_reloaded"])

    def reloaded() -> dict[str, list[str]]:
        found = [line for line in lines(one) if line["event"] == "settings_reloaded"]
        return {line["program"]: line["changed"] for line in found[before:]}

    try:
        os.kill(one.product.abby.pid, signal.SIGHUP)
        assert wait_until(lambda: set(reloaded()) == {"abby", "guard"})
        assert reloaded()["abby"] == []
        assert "maxGuardRequestsInProcessing" in reloaded()["guard"]
        assert guard_status(one, 0)["maxInProcessing"] == 4
    finally:
        guard.configure(PLACES)
        os.kill(one.product.abby.pid, signal.SIGHUP)
        assert wait_until(lambda: guard_status(one, 0)["maxInProcessing"] == 3)
    assert one.client().submit(plain).status == 200


def test_a_stop_finishes_accepted_messages_and_rejects_new_ones(one, plain, pausable_clamd):
    client, process = one.client(), one.product.abby
    stopped = len([line for line in lines(one) if line["event"] == "stopping"])
    pausable_clamd.pause()
    with client.connection() as connection, ThreadPoolExecutor(2) as threads:
        assert client.call_over(connection, "POST", STATUS).status == 200
        calls = [threads.submit(client.submit, plain) for _ in range(2)]
        try:
            assert wait_until(lambda: in_processing(one, 0) == 2)
            os.kill(process.pid, signal.SIGTERM)
            assert wait_until(lambda: len([line for line in lines(one) if line["event"] == "stopping"]) == stopped + 2)
            refused = client.call_over(connection, "POST", STATUS)
            assert (refused.status, refused.error) == (503, "shutting_down")
            assert process.running
        finally:
            pausable_clamd.resume()
        results = [call.result().result for call in calls]
    assert [result["verdict"] for result in results] == ["clean"] * 2
    assert wait_until(lambda: process.exit_code is not None, 20.0)
    assert process.exit_code == 0
    one.product.start()
    for result in results:
        assert one.client().explain(result["ggrid"]).status == 200, "history was written before the end"
