"""Base64 is decoded as `binascii` decodes it, however it is written; junk, breaks and cuts are reported."""

import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.decoding import decode_transfer

CONTENT = bytes(range(256)) * 4
LETTERS = "ABab01+/"
ODD = "==\r\n \t-_!é\0\x0b"


def decoded_by_binascii(body: bytes) -> bytes | None:
    try:
        return binascii.a2b_base64(body, strict_mode=False)
    except binascii.Error:
        return None


@given(st.text(alphabet=LETTERS + ODD, max_size=60))
def test_base64_is_decoded_as_by_binascii(text):
    body = text.encode("latin-1")
    expected = decoded_by_binascii(body)
    decoded = decode_transfer(body, b"base64")
    if expected is None:
        assert decoded.doubt == "A base64 body is cut off or has the wrong length"
    else:
        assert decoded.content == expected


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b" \r\n"], ids=["LF", "CRLF", "CR", "space"])
@pytest.mark.parametrize("width", [1, 4, 60, 76, 5_000])
def test_lines_of_any_width_are_no_junk(width, end):
    letters = base64.b64encode(CONTENT)
    body = end.join(letters[start : start + width] for start in range(0, len(letters), width)) + end
    assert decode_transfer(body, b"base64") == (CONTENT, "", ())


def test_junk_between_regular_lines_is_reported():
    lines = base64.encodebytes(CONTENT).split(b"\n")
    body = b"\r\n".join([*lines[:5], b"!" * 76, *lines[5:]])
    assert decode_transfer(body, b"base64").doubt == "A base64 body has characters that do not belong there"
