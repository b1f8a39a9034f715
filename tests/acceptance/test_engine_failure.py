"""An engine that is away: nothing is ever passed as clean, and a conviction never waits for it."""

import os
import signal

import pytest

from tests.acceptance.deployment import run_deployment
from tests.waiting import wait_until
from workshop.rig.ports import free_port
from workshop.rig.samples import malware_message, plain_message, spam_message

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lame(engines, deployment_template, tmp_path_factory):
    """One guard whose clamd is not there."""
    guard = {"engines": {"clamav": {"address": f"tcp:127.0.0.1:{free_port()}"}}}
    with run_deployment(engines, deployment_template, tmp_path_factory.mktemp("lame"), guards=(guard,)) as deployment:
        yield deployment


@pytest.mark.contract("2 unknown")
@pytest.mark.contract("2 undecided")
@pytest.mark.contract("6 engine down")
def test_a_harmless_message_is_undecided_and_never_clean(lame, engines):
    answer = lame.client().submit(engines.dns.sign(plain_message(), "pass.example"))

    assert answer.status == 200
    assert answer.outcome == ("unknown", "undecided")
    assert "analysis.incomplete" in answer.result["tags"]
    explanation = lame.client().explained(answer.result["ggrid"])
    failed = [report for report in explanation["engines"] if report["status"] == "failed"]
    assert [report["analyzer"] for report in failed] == ["clamav"]
    assert "cannot be reached" in failed[0]["failure"]


@pytest.mark.contract("2 conviction incomplete")
def test_spam_is_convicted_all_the_same_and_tagged_as_incomplete(lame):
    answer = lame.client().submit(spam_message())

    assert answer.outcome == ("spam", "quarantine")
    assert "analysis.incomplete" in answer.result["tags"]


@pytest.mark.contract("2 conviction incomplete")
@pytest.mark.contract("2 undecided")
def test_malware_is_convicted_while_rspamd_is_down(client, stoppable_engines, plain):
    stoppable_engines.rspamd.kill()

    found = client.submit(malware_message())
    assert found.outcome == ("malware", "quarantine")
    assert "analysis.incomplete" in found.result["tags"]
    assert client.submit(plain).outcome == ("unknown", "undecided")


@pytest.mark.contract("6 engine down")
@pytest.mark.contract("5 engine_unavailable")
def test_under_tempfail_callers_get_503_and_convictions_are_answered(lame, engines):
    guard = lame.product.guards[0]
    guard.configure({"onEngineFailure": "tempfail"})
    os.kill(guard.pid, signal.SIGHUP)
    client, message = lame.client(), engines.dns.sign(plain_message(), "pass.example")
    assert wait_until(lambda: client.submit(message).status == 503)

    answer = client.submit(message)
    assert (answer.status, answer.error) == (503, "engine_unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert client.submit(spam_message()).outcome == ("spam", "quarantine")
