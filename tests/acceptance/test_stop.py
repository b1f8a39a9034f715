"""SIGTERM: no new work, the work in hand is finished, exit code 0."""

import json
import os
import signal

import pytest

from tests.acceptance.client import STATUS
from tests.acceptance.deployment import in_processing, submitting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SOON = 20.0  # less than the grace period: it is not waited for where nothing is left to do
STOPPING = b'"event":"stopping"'


@pytest.mark.contract("6 stop")
@pytest.mark.contract("5 shutting_down")
def test_a_stopping_abby_finishes_requests_and_accepts_no_new_ones(restartable, plain, pausable_clamd):
    client, abby = restartable.client(), restartable.product.abby
    said = abby.log.read_bytes().count(STOPPING)
    pausable_clamd.pause()
    with client.connection() as connection:
        assert client.call_over(connection, "POST", STATUS).status == 200
        with submitting(restartable, plain, 2, pausable_clamd) as calls:
            assert wait_until(lambda: in_processing(restartable, 0) + in_processing(restartable, 1) == 2)
            os.kill(abby.pid, signal.SIGTERM)
            assert wait_until(lambda: abby.log.read_bytes().count(STOPPING) > said)

            refused = client.call_over(connection, "POST", STATUS)
            assert (refused.status, refused.error) == (503, "shutting_down")
            assert int(refused.headers["Retry-After"]) >= 1
            assert abby.running

    assert [call.result().outcome for call in calls] == [("clean", "deliver")] * 2
    assert wait_until(lambda: abby.exit_code is not None, SOON)
    assert abby.exit_code == 0


@pytest.mark.contract("6 stop")
def test_a_stopping_guard_finishes_requests_and_exits_0(restartable, plain, pausable_clamd):
    guard, other = restartable.product.guards
    other.stop()
    said = guard.log.read_bytes().count(STOPPING)
    pausable_clamd.pause()
    with submitting(restartable, plain, 2, pausable_clamd) as calls:
        assert wait_until(lambda: in_processing(restartable, 0) == 2)
        os.kill(guard.pid, signal.SIGTERM)
        assert wait_until(lambda: guard.log.read_bytes().count(STOPPING) > said)
        refused = restartable.client().submit(plain)
        assert refused.status in (502, 503)

    results = [call.result().result for call in calls]
    assert [result["verdict"] for result in results] == ["clean"] * 2
    assert wait_until(lambda: guard.exit_code is not None, SOON)
    assert guard.exit_code == 0
    for line in guard.log.read_text("utf-8").splitlines():
        json.loads(line)
    for result in results:
        assert restartable.client().explain(result["ggrid"]).status == 200, "history was written before the end"
