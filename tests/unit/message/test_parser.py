"""Parsing messages: parts, signed content, and ambiguous structures, which are reported."""

import base64
from base64 import encodebytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.message.charsets import decode_text
from mailwarden.message.limits import Limits
from mailwarden.message.message import Message
from mailwarden.message.parser import parse_message, signed_contents
from mailwarden.message.structure import check_structure
from mailwarden.model.place import Place
from tests.properties import examples
from tests.tables import every
from workshop.torture.ambiguous import EICAR, Ambiguous, ambiguous

HEAD = b"From: a@sender.example\r\nSubject: =?utf-8?b?R3LDvMOfZQ==?=\r\nMIME-Version: 1.0\r\n"
MIXED = HEAD + b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"


SIGNED = bytes.fromhex("06092a864886f70d010702")
DATA = bytes.fromhex("06092a864886f70d010701")
ENTITY = (
    b'Content-Type: multipart/mixed; boundary="in"\r\n\r\n--in\r\nContent-Type: text/html\r\n\r\n<p>Hello</p>\r\n'
    b'--in\r\nContent-Type: text/plain\r\nContent-Disposition: attachment; filename="a.js"\r\n\r\nWScript\r\n--in--\r\n'
)
MANY = b"\x30\x80" + SIGNED + b"\xa0\x80\x30\x80\x02\x01\x01\x31\x00\x30\x80" + DATA + b"\xa0\x80\x24\x80"
MESSAGES = list(ambiguous())
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
def test_base64_is_decoded_in_any_layout(written: bytes):
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
@examples(200)
def test_any_bytes_are_parsed(raw: bytes):
    assert isinstance(parse_message(raw), Message)
    assert isinstance(parse_message(MIXED + b"--b\r\n" + raw + b"\r\n--b--\r\n"), Message)


def wrapped(tag, value):
    length = len(value)
    size = b"" if length < 128 else length.to_bytes(2, "big")
    return bytes([tag, length if length < 128 else 0x82]) + size + value


def signature(inside):
    encapsulated = wrapped(0x30, DATA + inside)
    body = wrapped(0x30, b"\x02\x01\x01" + wrapped(0x31, b"") + encapsulated + wrapped(0x31, b""))
    return wrapped(0x30, SIGNED + wrapped(0xA0, body))


ONE = signature(wrapped(0xA0, wrapped(0x04, ENTITY)))
MANY += wrapped(0x04, ENTITY[:100]) + wrapped(0x04, ENTITY[100:]) + bytes(14)


def mail(content):
    head = b'From: a@b.example\r\nContent-Type: application/pkcs7-mime; smime-type=signed-data; name="smime.p7m"\r\n'
    return head + b"Content-Transfer-Encoding: base64\r\n\r\n" + base64.encodebytes(content).replace(b"\n", b"\r\n")


@pytest.mark.parametrize("content", [ONE, MANY])
def test_signed_content_is_read(content):
    assert list(signed_contents(content)) == [ENTITY]


@pytest.mark.parametrize("content", [b"", signature(b""), wrapped(0x30, DATA), ENTITY, SIGNED, SIGNED + DATA + b"\xa0"])
def test_where_nothing_is_signed_within_there_is_nothing(content):
    assert b"".join(signed_contents(content)) == b""


@given(st.integers(0, 120), st.binary(max_size=20))
def test_nothing_breaks_the_reader(place, noise):
    for content in (ONE, MANY):
        list(signed_contents(content[:place] + noise + content[place + len(noise) :]))
        list(signed_contents(content[:place] + noise))


def test_parts_of_signed_content_are_parts_of_the_message():
    parts = parse_message(mail(ONE)).parts
    assert {(part.media_type, part.name) for part in parts} >= {("text/html", ""), ("text/plain", "a.js")}


def _is_seen(message: Message) -> bool:
    """Look for the file as analyzers do: in the bytes of a part, and in its text."""
    return any(
        EICAR in part.content or EICAR.decode() in decode_text(part.content, part.charset) for part in message.parts
    )


def test_there_are_more_than_two_hundred_and_all_differ():
    assert len({message.raw for message in MESSAGES}) == len(MESSAGES) >= 200


def test_the_file_is_seen_or_the_message_is_reported():
    def check(message: Ambiguous):
        report = check_structure(message.raw)
        parsed = parse_message(message.raw, report=report)
        assert _is_seen(parsed) or parsed.ambiguities or report.tripped

    every(MESSAGES, check, lambda message: message.name)


def test_most_files_are_seen_not_only_reported():
    seen = sum(_is_seen(parse_message(each.raw)) for each in MESSAGES)
    assert seen > 0.85 * len(MESSAGES)


def test_content_that_an_engine_may_miss_is_reported():
    def check(message: Ambiguous):
        assert parse_message(message.raw).ambiguities

    every([each for each in ambiguous() if each.name in UNSEEN], check, lambda each: each.name)


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
def test_regular_mail_is_not_reported(raw: bytes):
    assert not parse_message(raw).ambiguities
