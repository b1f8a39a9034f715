"""Callers who dawdle are cut off with an answer, in the head as in the body."""

import pytest

from tests.acceptance.client import FORM, SUBMIT

pytestmark = pytest.mark.slow


@pytest.mark.contract("5 request_timeout")
def test_a_request_that_comes_too_slowly_is_answered_408(restartable):
    abby, client = restartable.product.abby, restartable.client()
    abby.configure({"bodyTimeout": 500, "headerTimeout": 500})
    abby.restart()
    head = [f"POST {SUBMIT} HTTP/1.1", "Host: abby", f"Authorization: Bearer {client.token}", f"Content-Type: {FORM}"]
    try:
        slow_body = client.say([*head, "Content-Length: 1000"], b"--acceptance")
        slow_head = client.say_nothing_more(b"POST / HTTP/1.1\r\nHost: abby\r\n")
    finally:
        abby.configure({"bodyTimeout": 30_000, "headerTimeout": 15_000})
        abby.restart()

    for answer in (slow_body, slow_head):
        assert (answer.status, answer.error) == (408, "request_timeout")
        assert answer.headers["X-Request-Id"]
