"""Admission: how many guard requests are let into processing, slowed down or refused."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.deployment import Deployment, in_processing, run_deployment, submitting
from tests.acceptance.pausable_clamd import PausableClamd
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

UNSET = {"mainWorkerCount": None, "maxGuardRequestsInProcessing": None, "guardRequestThrottleThreshold": None}
LONGEST_WAIT = 30_000  # milliseconds, longer than a busy machine takes to refuse


@pytest.fixture(scope="module")
def crowded(engines, deployment_template, tmp_path_factory, pausable_clamd: PausableClamd):
    """Two guards behind the pausable clamd: the first without limits, the second for three; only the first runs."""
    clamav = {"address": pausable_clamd.address, "maxConcurrency": 40}
    engine = {"engines": {"clamav": clamav}, "maxThrottleDelay": LONGEST_WAIT}
    guards = ({**UNSET, **engine}, {**UNSET, **engine, "mainWorkerCount": 3})
    with run_deployment(
        engines, deployment_template, tmp_path_factory.mktemp("crowded"), guards=guards, start=False, one_process=False
    ) as deployment:
        deployment.product.guards[0].start()
        deployment.product.abby.start()
        yield deployment


def fill(deployment: Deployment, number: int, count: int) -> None:
    assert wait_until(lambda: in_processing(deployment, number) == count), in_processing(deployment, number)


@pytest.mark.spec("1 processing limits")
@pytest.mark.spec("8 maxGuardRequestsInProcessing")
@pytest.mark.spec("8 guardRequestThrottleThreshold")
@pytest.mark.contract("3 admission defaults")
@pytest.mark.contract("3 admission refused")
@pytest.mark.contract("3 admission other guard")
@pytest.mark.contract("5 overloaded")
def test_with_twenty_in_processing_the_next_is_refused_unless_another_guard_takes_it(crowded, plain, pausable_clamd):
    client = crowded.client()
    pausable_clamd.pause()
    with submitting(crowded, plain, 20, pausable_clamd) as first:
        fill(crowded, 0, 20)

        began = time.monotonic()
        refused = client.submit(plain)
        assert time.monotonic() - began < LONGEST_WAIT / 2_000, "it is refused at once, and not after the longest wait"
        assert (refused.status, refused.error) == (503, "overloaded")
        assert 1 <= int(refused.headers["Retry-After"]) <= 5

        crowded.product.guards[1].start()
        with submitting(crowded, plain, 3, pausable_clamd) as second:
            fill(crowded, 1, 3)
            assert client.submit(plain).error == "overloaded"
    answers = [call.result() for call in (*first, *second)]

    assert [answer.outcome for answer in answers] == [("clean", "deliver")] * 23
    guards = [client.explained(answer.result["ggrid"])["guard"] for answer in answers]
    assert guards == ["guard-1"] * 20 + ["guard-2"] * 3


@pytest.mark.spec("1 restart")
@pytest.mark.spec("8 guardRequestThrottleThreshold")
@pytest.mark.contract("3 admission band")
def test_between_threshold_and_maximum_a_guard_request_waits_linearly_and_uncounted(crowded, plain, pausable_clamd):
    first, second = crowded.product.guards
    second.stop()
    first.configure({"maxGuardRequestsInProcessing": 4, "guardRequestThrottleThreshold": 2, "maxThrottleDelay": 4_000})
    first.restart()
    pausable_clamd.pause()

    with ThreadPoolExecutor(4) as threads, contextlib.ExitStack() as stack:
        stack.callback(pausable_clamd.resume)
        calls = [threads.submit(crowded.client().submit, plain) for _ in range(2)]
        fill(crowded, 0, 2)
        # With two of four in processing and a threshold of two the wait is a half of the longest, then all of it.
        for wait, present in ((2.0, 2), (4.0, 3)):
            began = time.monotonic()
            calls.append(threads.submit(crowded.client().submit, plain))
            time.sleep(wait * 0.4)  # the length of the wait is under test
            assert in_processing(crowded, 0) == present, "who waits is not counted"
            fill(crowded, 0, present + 1)
            assert wait * 0.9 <= time.monotonic() - began < wait + 10.0
        assert crowded.client().submit(plain).error == "overloaded"
    assert [call.result().status for call in calls] == [200] * 4
