"""What is signed within a signature is read, in one piece or in many, and nothing breaks the reader."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.parser import parse_message
from mailwarden.message.signed_content import signed_contents

SIGNED = bytes.fromhex("06092a864886f70d010702")
DATA = bytes.fromhex("06092a864886f70d010701")
ENTITY = (
    b'Content-Type: multipart/mixed; boundary="in"\r\n\r\n--in\r\nContent-Type: text/html\r\n\r\n<p>Hello</p>\r\n'
    b'--in\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename="a.js"\r\n\r\nWScript\r\n--in--\r\n'
)


def wrapped(tag, value):
    length = len(value)
    size = b"" if length < 128 else length.to_bytes(2, "big")
    return bytes([tag, length if length < 128 else 0x82]) + size + value


def signature(inside):
    encapsulated = wrapped(0x30, DATA + inside)
    body = wrapped(0x30, b"\x02\x01\x01" + wrapped(0x31, b"") + encapsulated + wrapped(0x31, b""))
    return wrapped(0x30, SIGNED + wrapped(0xA0, body))


ONE = signature(wrapped(0xA0, wrapped(0x04, ENTITY)))
MANY = b"\x30\x80" + SIGNED + b"\xa0\x80\x30\x80\x02\x01\x01\x31\x00\x30\x80" + DATA + b"\xa0\x80\x24\x80"
MANY += wrapped(0x04, ENTITY[:100]) + wrapped(0x04, ENTITY[100:]) + bytes(14)


def mail(content):
    head = b'From: a@b.example\r\nContent-Type: application/pkcs7-mime; smime-type=signed-data; name="smime.p7m"\r\n'
    return head + b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(content).replace(b"\n", b"\r\n")


@pytest.mark.parametrize("content", [ONE, MANY])
def test_what_is_signed_is_read(content):
    assert list(signed_contents(content)) == [ENTITY]


@pytest.mark.parametrize("content", [b"", signature(b""), wrapped(0x30, DATA), ENTITY, SIGNED, SIGNED + DATA + b"\xa0"])
def test_where_nothing_is_signed_within_there_is_nothing(content):
    assert b"".join(signed_contents(content)) == b""


@given(st.integers(0, 120), st.binary(max_size=20))
def test_nothing_breaks_the_reader(place, noise):
    for content in (ONE, MANY):
        list(signed_contents(content[:place] + noise + content[place + len(noise) :]))
        list(signed_contents(content[:place] + noise))


def test_the_parts_of_what_is_signed_are_parts_of_the_message():
    parts = parse_message(mail(ONE)).parts
    assert {(part.media_type, part.name) for part in parts} >= {("text/html", ""), ("text/plain", "a.js")}
