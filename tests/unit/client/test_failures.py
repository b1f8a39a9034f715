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


@pytest.mark.parametrize("body", [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[1]", b'{"error": 7}'])
def test_an_answer_of_another_server_is_a_failure(body):
    failure = read_failure(502, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, body)
    assert failure.code == "http_502"
    assert "502" in failure.message
    assert failure.retry_after is None
