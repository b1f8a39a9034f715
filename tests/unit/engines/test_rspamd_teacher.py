"""What Rspamd's controller answers to a training message."""

import pytest

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.rspamd_teacher import status_of


def test_status_and_reason_are_read():
    assert status_of(b"HTTP/1.1 204 <x> contains less tokens than required\r\nServer: rspamd\r\n\r\n") == (
        204,
        "<x> contains less tokens than required",
    )


@pytest.mark.parametrize(
    "answer", [b"", b"\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 two hundred\r\n\r\n", b"\xff\xfe"]
)
def test_an_invalid_answer_is_a_failure(answer: bytes):
    with pytest.raises(EngineFailed, match="without an answer"):
        status_of(answer)
