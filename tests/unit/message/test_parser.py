"""Messages become headers and parts: the union of two views, decoded, each with its place."""

from base64 import encodebytes

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mailwarden.message.limits import Limits
from mailwarden.message.message import Message
from mailwarden.message.parser import parse_message
from mailwarden.model.place import Place

HEAD = b"From: a@sender.example\r\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\r\nMIME-Version: 1.0\r\n"
MIXED = HEAD + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"


def _parts(raw: bytes) -> dict[str, tuple[str, bytes]]:
    return {part.path: (part.media_type, part.content) for part in parse_message(raw).parts}


def test_a_plain_message_is_one_part_seen_by_both():
    message = parse_message(HEAD + b"\r\nhello\r\n")
    (part,) = message.parts
    assert (part.path, part.media_type, part.content, part.seen_by) == ("0", "text/plain", b"hello\r\n", "both")
    assert message.header("subject") == "Grüße"
    assert message.size == len(HEAD) + 9
    assert len(message.sha256) == 64


def test_parts_are_decoded_and_numbered():
    raw = MIXED + (
        b"--b\r\nContent-Type: multipart/alternative; boundary=c\r\n\r\n"
        b"--c\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n"
        b"Gr=C3=BC=C3=9Fe\r\n--c\r\nContent-Type: text/html\r\n\r\n<p>hi</p>\r\n--c--\r\n"
        b'--b\r\nContent-Type: application/pdf; name="a.pdf"\r\nContent-Transfer-Encoding: base64\r\n'
        b"Content-Disposition: attachment\r\n\r\nJVBERg==\r\n--b--\r\n"
    )
    assert _parts(raw) == {
        "1.1": ("text/plain", "Grüße".encode()),
        "1.2": ("text/html", b"<p>hi</p>"),
        "2": ("application/pdf", b"%PDF"),
    }
    pdf = parse_message(raw).parts[-1]
    assert (pdf.name, pdf.disposition, pdf.place) == ("a.pdf", "attachment", Place(part="2", name="a.pdf"))


def test_a_message_in_a_message_is_kept_whole_and_opened():
    inner = HEAD + b"\r\ninner text\r\n"
    parts = _parts(MIXED + b"--b\r\nContent-Type: message/rfc822\r\n\r\n" + inner + b"\r\n--b--\r\n")
    assert parts["1"] == ("message/rfc822", inner)
    assert parts["1.1"] == ("text/plain", b"inner text\r\n")


def test_a_message_wrapped_in_base64_is_opened_too():
    inner = HEAD + b"\r\ninner text\r\n"
    head = b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n\r\n"
    assert any(content == b"inner text\r\n" for _, content in _parts(HEAD + head + encodebytes(inner)).values())


@pytest.mark.parametrize("written", [b"BASE64", b"\r\n base64", b"base64 ", b"(c) base64", b'"base64"', b"base64;"])
def test_base64_is_decoded_however_it_is_written(written: bytes):
    raw = (
        HEAD + b"Content-Type: application/x\r\nContent-Transfer-Encoding: " + written + b"\r\n\r\naGVsbG8gd29ybGQ=\r\n"
    )
    assert any(content == b"hello world" for _, content in _parts(raw).values())


def test_one_bad_part_does_not_cost_the_others():
    raw = MIXED + (
        b"--b\r\nContent-Type: image/png\r\nContent-Transfer-Encoding: base64\r\n\r\nA\r\n"
        b"--b\r\nContent-Type: text/plain\r\n\r\nfine\r\n--b--\r\n"
    )
    assert _parts(raw)["2"] == ("text/plain", b"fine")


def test_the_same_content_under_two_names_is_two_parts():
    part = b'--b\r\nContent-Type: text/plain; name="%s"\r\n\r\nsame\r\n'
    message = parse_message(MIXED + part % b"a.txt" + part % b"a.exe" + b"--b--\r\n")
    assert {part.name for part in message.parts} == {"a.txt", "a.exe"}


def test_a_name_in_rfc_2231_pieces_is_joined():
    field = b"Content-Disposition: attachment; filename*0*=utf-8''%C3%A4; filename*1=.exe\r\n\r\nx"
    raw = HEAD + field
    assert parse_message(raw).parts[0].name == "ä.exe"


def test_a_long_epilogue_is_a_part():
    raw = MIXED + b"--b\r\n\r\nhi\r\n--b--\r\n" + b"visit http://evil.example/ now " * 4
    assert "0.epilogue" in _parts(raw)


def test_limits_stop_the_descent():
    deep = HEAD + b"Content-Type: message/rfc822\r\n\r\n" * 40 + b"\r\nx"
    assert len(parse_message(deep, Limits(depth=5)).parts) <= 6


@given(st.binary(max_size=3_000))
@settings(max_examples=200, deadline=None)
def test_any_bytes_are_parsed(raw: bytes):
    assert isinstance(parse_message(raw), Message)
    assert isinstance(parse_message(MIXED + b"--b\r\n" + raw + b"\r\n--b--\r\n"), Message)
