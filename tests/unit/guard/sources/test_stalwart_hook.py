"""The message that Stalwart takes apart is put together byte for byte, and what it never sends is refused."""

import json

import pytest

from mailwarden.errors import BadRequest, InvalidJson, MailwardenError, PayloadTooLarge, SchemaViolation
from mailwarden.guard.sources.stalwart_hook import envelope_of, read_request, rebuild
from tests.samples.stalwart import hook_call

MESSAGE = (
    b"Received: from a.example\r\n\tby b.example\r\nSubject:no blank\r\nno field at all\r\nFrom: a@b.example\r\n"
    b"X-MAILWARDEN-Tags: list.sender-allow\r\n\r\nText \xc3\xbc\r\n.\r\nEnd"
)


def read(call: object):
    request = read_request(json.dumps(call).encode())
    assert request.message is not None
    return request, rebuild(request.message)


def test_a_message_is_put_together_byte_for_byte() -> None:
    request, rebuilt = read(hook_call(MESSAGE))
    assert rebuilt.content == MESSAGE
    assert request.message is not None
    assert request.message.size == len(MESSAGE)
    assert rebuilt.forged == ["X-MAILWARDEN-Tags"]


def test_values_without_their_line_ends_make_fields_too() -> None:
    call = hook_call(MESSAGE)
    call["message"]["headers"] = [["Subject", "x"], ["To", "y"]]
    assert read(call)[1].content.startswith(b"Subject: x\r\nTo: y\r\n\r\nText")


def test_eight_bit_text_comes_as_stalwart_shows_it() -> None:
    assert b"Text \xef\xbf\xbd\r\n" in read(hook_call(MESSAGE.replace(b"\xc3\xbc", b"\xfc")))[1].content


@pytest.mark.parametrize(
    "field",
    [
        ["Subject", " x\r\n\r\nbody"],
        ["Subject", " x\nTo: y\r\n"],
        ["Sub:ject", " x\r\n"],
        ["", " x\r\n"],
        ["a\nb", "c"],
        ["\n", ""],
        ["\r\n", ""],
    ],
)
def test_a_field_that_would_be_two_is_refused(field) -> None:
    call = hook_call(MESSAGE)
    call["message"]["headers"].append(field)
    with pytest.raises(SchemaViolation):
        read(call)


def test_the_envelope_is_the_one_of_the_scanning_api() -> None:
    request, _ = read(hook_call(MESSAGE, recipients=["bob@company.example", "eve@bank.example"]))
    envelope = envelope_of(request)
    assert (envelope.sender, envelope.recipients) == ("alice@pass.example", ("bob@company.example", "eve@bank.example"))
    assert (envelope.remote_address, envelope.helo) == ("192.0.2.10", "mail.pass.example")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("envelope", "from", "address"), "a\r\nb@c.example"),
        (("envelope", "to"), [{"address": "a\x00@b.example"}]),
        (("envelope", "to"), [{"address": ""}]),
        (("envelope", "to"), "bob"),
        (("context", "client", "ip"), "somewhere"),
        (("context", "client", "helo"), "x" * 2_000),
        (("envelope",), None),
    ],
)
def test_an_envelope_that_the_scanning_api_refuses_is_refused(path, value) -> None:
    call = hook_call(MESSAGE)
    place = call
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises((SchemaViolation, BadRequest)):
        envelope_of(read_request(json.dumps(call).encode()))


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b"null", b'{"context": 1}', b"\xff", b"[" * 100_000, b'{"context": {"stage": "\\ud800"}}'],
)
def test_an_invalid_call_is_rejected(raw) -> None:
    with pytest.raises((InvalidJson, SchemaViolation)):
        read_request(raw)


def test_an_invalid_value_is_named_without_python_types() -> None:
    with pytest.raises(SchemaViolation, match=r"`\$\.context` must be an object, not an integer"):
        read_request(b'{"context": 1}')


def test_endless_fields_and_recipients_are_refused_before_they_are_made() -> None:
    call = hook_call(MESSAGE)
    call["message"]["headers"] = [["a", "b"]] * 300_000
    with pytest.raises(PayloadTooLarge):
        read(call)
    call = hook_call(MESSAGE, recipients=["bob@company.example"] * 60_000)
    with pytest.raises(PayloadTooLarge):
        envelope_of(read(call)[0])
    call = hook_call(MESSAGE)
    call["message"]["headers"] = [["X-Mailwarden-A", "b"]] * 300
    with pytest.raises(MailwardenError):
        read(call)
