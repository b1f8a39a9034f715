"""An answer other than 200 becomes the failure that a caller can act upon, with all that it told."""

import pytest

from mailwarden_client import errors as failures
from mailwarden_client.errors import read_failure


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, failures.CallRefused),
        (401, failures.KeyRefused),
        (403, failures.ScopeRefused),
        (404, failures.NotFound),
        (409, failures.Conflict),
        (410, failures.CursorExpired),
        (413, failures.CallRefused),
        (422, failures.CallRefused),
        (429, failures.Unavailable),
        (500, failures.Unavailable),
        (503, failures.Unavailable),
    ],
)
def test_each_status_has_its_failure(status, kind):
    assert type(read_failure(status, {}, b"{}")) is kind


def test_a_full_list_is_a_conflict_of_its_own():
    assert type(read_failure(409, {}, b'{"error": "list_full"}')) is failures.ListFull


def test_a_failure_carries_code_message_details_and_request_id():
    body = b'{"error":"invalid_entry","message":"1 entry is bad.","details":[{"index":3,"entry":"x","reason":"y"}]}'

    failure = read_failure(422, {"X-Request-Id": "r-1", "Retry-After": "7"}, body)

    assert (failure.code, failure.message, failure.status) == ("invalid_entry", "1 entry is bad.", 422)
    assert failure.details == ({"index": 3, "entry": "x", "reason": "y"},)
    assert failure.request_id == "r-1"
    assert failure.retry_after == 7.0
    assert str(failure) == "invalid_entry: 1 entry is bad. (request r-1)"


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[1]", b'{"error": 7}'])
def test_an_answer_of_another_server_is_a_failure(body):
    failure = read_failure(502, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, body)
    assert failure.code == "http_502"
    assert "502" in failure.message
    assert failure.retry_after is None
