"""The `parameters` part: what is read from it, and the error for each thing that is wrong with it."""

import ipaddress
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailwarden.errors import InvalidJson, SchemaViolation
from mailwarden.wire.scanning import read_parameters
from tests.properties import examples

BORDER = {"envelopeFrom": "ann@sender.example", "envelopeRecipients": ["bob@corp.example"]}


def parameters(**changes: object) -> bytes:
    return json.dumps({"borderMtaData": {**BORDER, **changes}}).encode()


def test_the_envelope_is_read_as_the_border_mta_saw_it():
    envelope = read_parameters(parameters(remoteAddress="2001:db8::1", senderHelo="mail.sender.example")).envelope
    assert (envelope.sender, envelope.recipients) == ("ann@sender.example", ("bob@corp.example",))
    assert (envelope.remote_address, envelope.helo) == ("2001:db8::1", "mail.sender.example")


@examples(500)
@given(st.from_regex(r"[0-9.٣ ]{0,20}\n?|([0-9]{1,3}\.){3}[0-9]{1,3}", fullmatch=True))
@example("255.249.199.9")
@example("192.0.2.256")
@example("192.0.2.07")
@example("192.0.2.1\n")
def test_an_ipv4_address_is_what_ipaddress_accepts(written):
    try:
        expected = ipaddress.ip_address(written) is not None
    except ValueError:
        expected = False
    if expected:
        assert read_parameters(parameters(remoteAddress=written)).envelope.remote_address == written
    else:
        with pytest.raises(SchemaViolation):
            read_parameters(parameters(remoteAddress=written))


@pytest.mark.parametrize(
    "written",
    [
        "<bob@corp.example>",
        " bob@corp.example ",
        "< bob@corp.example >",
        "Bob <bob@corp.example>",
        "<<bob@corp.example>",
    ],
)
def test_an_address_is_read_without_its_decoration(written):
    envelope = read_parameters(parameters(envelopeFrom=written, envelopeRecipients=["a@b.example", written])).envelope
    assert (envelope.sender, envelope.recipients) == ("bob@corp.example", ("a@b.example", "bob@corp.example"))


def test_brackets_inside_a_quoted_local_part_stay():
    assert read_parameters(parameters(envelopeFrom='"a<b>"@corp.example')).envelope.sender == '"a<b>"@corp.example'


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"envelopeRecipients": []}, "/borderMtaData/envelopeRecipients"),
        ({"envelopeRecipients": ["x"] * 1001}, "/borderMtaData/envelopeRecipients"),
        ({"envelopeRecipients": ["b", "a\r\nFile: /etc/hostname"]}, "/borderMtaData/envelopeRecipients/1"),
        ({"envelopeRecipients": ["b", "<>"]}, "/borderMtaData/envelopeRecipients/1"),
        ({"envelopeRecipients": [" "]}, "/borderMtaData/envelopeRecipients/0"),
        ({"envelopeFrom": "a\tb"}, "/borderMtaData/envelopeFrom"),
        ({"senderHelo": "a\nb"}, "/borderMtaData/senderHelo"),
        ({"remoteAddress": "mail.example"}, "/borderMtaData/remoteAddress"),
        ({"remoteAddress": "fe80::1%eth0"}, "/borderMtaData/remoteAddress"),
        ({"envelopeFrom": 1}, "/borderMtaData/envelopeFrom"),
        ({"enveloperFrom": "typo"}, "/borderMtaData"),
    ],
)
def test_an_error_has_its_json_pointer(changes, pointer):
    with pytest.raises(SchemaViolation) as violation:
        read_parameters(parameters(**changes))
    assert violation.value.details[0]["pointer"] == pointer


def test_a_mistyped_tenant_key_never_chooses_another_scope():
    with pytest.raises(SchemaViolation):
        read_parameters(json.dumps({"borderMtaData": BORDER, "tenantUID": "x"}).encode())


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": 1, "a": 2}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a": "\xff"}',
        b'{"a": "\\u0000"}',
        b'{"a": "\\ud800"}',
        b'{"a": ["\\u0000"]}',
        b'{"a": [["\\ud800"]]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"1" * 10_000 + b"}",
        b"\xef\xbb\xbf{}",
    ],
    ids=range(16),
)
def test_lenient_json_is_rejected(raw):
    with pytest.raises(InvalidJson):
        read_parameters(raw)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"borderMtaData": ' + b"9" * 5_000 + b"}", "too many digits"),
    ],
)
def test_errors_use_the_words_of_the_api(raw, said):
    with pytest.raises(InvalidJson, match=said) as caught:
        read_parameters(raw)
    assert "sys." not in str(caught.value)
    assert "utf-8-sig" not in str(caught.value)


def test_a_control_character_error_shows_no_pattern():
    with pytest.raises(SchemaViolation) as caught:
        read_parameters(parameters(senderHelo="a\x1bb"))
    assert caught.value.details == (
        {"pointer": "/borderMtaData/senderHelo", "problem": "Must not have a control character"},
    )
