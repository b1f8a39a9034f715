"""Release tokens: valid for the signed bytes, recipients and time only."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.quarantine.release_token import ReleaseToken, ReleaseTokenSigner, find_token
from mailwarden.serving.spool import Spooled

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SIGNER = ReleaseTokenSigner(KeyRing.of(b"k" * 64))
TOKEN = ReleaseToken(uuid4(), uuid4(), NOW + timedelta(minutes=15))
MESSAGE = b"From: ann@north.example\r\nSubject: hello\r\n\r\nText\r\n"
RECIPIENTS = ["bob@south.example"]


def with_token(message: bytes = MESSAGE, recipients: list[str] = RECIPIENTS) -> bytes:
    return SIGNER.field(TOKEN, recipients, sha256(message).digest()) + message


async def verified(message: bytes, recipients: list[str] = RECIPIENTS, now: datetime = NOW) -> ReleaseToken | None:
    return await SIGNER.verify_message(Spooled.of(message), recipients, now)


async def test_a_message_with_its_token_is_verified():
    assert await verified(with_token()) == TOKEN


async def test_trace_fields_above_the_token_are_accepted():
    assert await verified(b"Received: from a\r\n by b\r\n" + with_token()) == TOKEN
    assert await verified(b"Return-Path: <a@b>\r\nX-Spam: no\r\nReceived:from a\r\n\tby b\r\n" + with_token()) == TOKEN


@pytest.mark.parametrize(
    "above",
    [
        b"From: ceo@south.example\r\n",
        b"Received: from a\r\nSUBJECT : pay this\r\n",
        b"Content-Type: application/x-msdownload\r\n",
        b"content-transfer-encoding:\r\n base64\r\n",
        b"MIME-Version: 1.0\r\n",
        b"no field, so that a body begins here\r\n",
        b" no field\r\n",
        b"\r\nbody\r\n",
    ],
)
async def test_other_fields_above_the_token_are_rejected(above: bytes):
    assert await verified(above + with_token()) is None


async def test_recipients_match_in_any_order_and_case():
    message = with_token(recipients=["b@x.example", "a@x.example"])
    assert await verified(message, ["A@x.example", "b@X.example"]) == TOKEN


@pytest.mark.parametrize(
    "recipients", [[], ["eve@south.example"], [*RECIPIENTS, "eve@south.example"], ["bob@south.example\nx"]]
)
async def test_it_is_for_its_recipients_alone(recipients: list[str]):
    assert await verified(with_token(), recipients) is None


async def test_it_is_for_its_message_alone():
    assert await verified(with_token() + b"more") is None
    assert await verified(with_token().replace(b"hello", b"HELLO")) is None
    assert await verified(with_token()[: -len(MESSAGE)] + b"Another: one\r\n" + MESSAGE) is None


async def test_it_ends():
    assert await verified(with_token(), now=TOKEN.expires) is None


async def test_it_is_ours_alone():
    other = ReleaseTokenSigner(KeyRing.of(b"o" * 64))
    assert await other.verify_message(Spooled.of(with_token()), RECIPIENTS, NOW) is None


@pytest.mark.parametrize("name", [b"g=", b"p=", b"e=", b"s="])
async def test_no_word_of_it_can_be_changed(name: bytes):
    message = with_token()
    place = message.index(name) + 3
    changed = b"1" if message[place : place + 1] != b"1" else b"2"
    assert await verified(message[:place] + changed + message[place + 1 :]) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\r\n",
        MESSAGE,
        MESSAGE + with_token(),
        b"X-Mailwarden-Bypass: v=1\r\n\r\n",
        b"X-Mailwarden-Bypass: v=1; g=" + b"-" * 36 + b"; p=" + b"0" * 36 + b"; e=1; s=" + b"A" * 43 + b"=\r\n\r\n",
        b"X-Mailwarden-Bypass: " * 100_000,
    ],
)
def test_a_message_without_a_pass_has_none(message: bytes):
    assert find_token(Spooled.of(message)) is None
