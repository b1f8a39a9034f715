"""Odd places and encodings that an engine may not look into are reported, and what honest mail has is not."""

import pytest

from mailwarden.message.parser import parse_message
from torture.ambiguous import Ambiguous, ambiguous

# clamd sees nothing in the raw bytes of these, though our own parser shows a part that holds the file.
UNSEEN = {
    "place, preamble",
    "place, epilogue",
    "place, between inner and outer end",
    "place, message in a message without headers",
    "place, part without headers",
    "base64, text before",
    "quoted-printable, soft breaks with spaces",
    "charset utf-16",
}
MULTIPART = b'From: a@sender.example\r\nMIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="b"\r\n\r\n'
PART = b"--b\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b--\r\n"
FOOTER = (
    b"_" * 70 + b"\r\nTo leave the list: https://lists.sender.example/" + b"abcdefghijklmnop0123456789" * 3 + b"\r\n"
)


@pytest.mark.parametrize("message", [each for each in ambiguous() if each.name in UNSEEN], ids=lambda each: each.name)
def test_what_an_engine_may_not_see_is_reported(message: Ambiguous):
    assert parse_message(message.raw).ambiguities


def test_the_names_above_are_those_of_messages():
    assert {each.name for each in ambiguous()} >= UNSEEN


@pytest.mark.parametrize(
    "raw",
    [
        MULTIPART + b"This is a multi-part message in MIME format. Your mail program should show its parts.\r\n" + PART,
        MULTIPART + PART + FOOTER,
        b"Content-Type: text/plain\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\na =3D b =\r\nc\r\n",
        b"Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\naGVsbG8gd29ybGQ=\r\n",
    ],
    ids=["a sentence before the parts", "a rule and a link after them", "a soft line break", "plain base64"],
)
def test_what_honest_mail_has_is_not_reported(raw: bytes):
    assert not parse_message(raw).ambiguities
