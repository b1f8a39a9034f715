"""What may be repeated is repeated a bounded number of times, not before the service wants it."""

import pytest

from mailwarden_client.errors import ApiError, StreamCut, Unavailable, Unreachable
from mailwarden_client.requests import Repeat
from mailwarden_client.retries import Retries, RetrySchedule, may_retry


def unavailable(retry_after: float | None = None) -> ApiError:
    return Unavailable("Try again.", status=503, retry_after=retry_after)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_failures_named_by_the_contract_are_retried(status):
    assert may_retry(ApiError("", status=status))


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 413, 415, 422, 500])
def test_no_other_answer_is_tried_again(status):
    assert not may_retry(ApiError("", status=status))


def test_a_failed_connection_is_tried_again_but_not_a_bad_certificate():
    assert may_retry(Unreachable("", code="unreachable"))
    assert not may_retry(Unreachable("", code="certificate"))
    assert not may_retry(StreamCut(""))
    assert not may_retry(Unreachable("", code="unreachable"), Repeat.IF_ANSWERED)
    assert not may_retry(Unreachable("", code="unreachable"), Repeat.IF_REFUSED)


def test_waits_grow_and_stay_below_the_longest():
    patience = RetrySchedule(Retries(attempts=8, seconds=1000, first_wait=1, longest_wait=5), lambda: 0.0, lambda: 1.0)
    assert [patience.wait_after(unavailable()) for _ in range(8)] == [1, 2, 4, 5, 5, 5, 5, None]


def test_half_of_a_wait_is_chance():
    patience = RetrySchedule(Retries(first_wait=1), lambda: 0.0, lambda: 0.0)
    assert patience.wait_after(unavailable()) == 0.5


def test_retry_after_is_honoured():
    patience = RetrySchedule(Retries(), lambda: 0.0, lambda: 0.0)
    assert patience.wait_after(unavailable(42.0)) == 42.0


def test_it_is_given_up_when_the_service_wants_more_time_than_there_is():
    patience = RetrySchedule(Retries(seconds=30), lambda: 0.0, lambda: 0.0)
    assert patience.wait_after(unavailable(42.0)) is None
