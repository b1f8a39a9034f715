"""The pass of a released message: for these bytes, these recipients, this long, and from us."""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.quarantine.bypass import Bypass, BypassSeal, find_pass
from mailwarden.serving.spool import Spooled

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SEAL = BypassSeal(KeyRing.of(b"k" * 64))
PASS = Bypass(uuid4(), uuid4(), NOW + timedelta(minutes=15))
MESSAGE = b"From: ann@north.example\r\nSubject: hello\r\n\r\nText\r\n"
RECIPIENTS = ["bob@south.example"]


def stamped(message: bytes = MESSAGE, recipients: list[str] = RECIPIENTS) -> bytes:
    return SEAL.field(PASS, recipients, sha256(message).digest()) + message


async def admitted(message: bytes, recipients: list[str] = RECIPIENTS, now: datetime = NOW) -> Bypass | None:
    return await SEAL.admit(Spooled.of(message), recipients, now)


async def test_a_message_with_its_pass_is_let_through():
    assert await admitted(stamped()) == PASS


async def test_what_mtas_put_on_top_does_no_harm():
    assert await admitted(b"Received: from a\r\n by b\r\n" + stamped()) == PASS
    assert await admitted(b"Return-Path: <a@b>\r\nX-Spam: no\r\nReceived:from a\r\n\tby b\r\n" + stamped()) == PASS


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
async def test_what_would_make_another_message_of_it_does_not_stand_on_top(above: bytes):
    assert await admitted(above + stamped()) is None


async def test_recipients_are_the_same_whatever_their_order_and_case():
    message = stamped(recipients=["b@x.example", "a@x.example"])
    assert await admitted(message, ["A@x.example", "b@X.example"]) == PASS


@pytest.mark.parametrize(
    "recipients", [[], ["eve@south.example"], [*RECIPIENTS, "eve@south.example"], ["bob@south.example\nx"]]
)
async def test_it_is_for_its_recipients_alone(recipients: list[str]):
    assert await admitted(stamped(), recipients) is None


async def test_it_is_for_its_message_alone():
    assert await admitted(stamped() + b"more") is None
    assert await admitted(stamped().replace(b"hello", b"HELLO")) is None
    assert await admitted(stamped()[: -len(MESSAGE)] + b"Another: one\r\n" + MESSAGE) is None


async def test_it_ends():
    assert await admitted(stamped(), now=PASS.expires) is None


async def test_it_is_ours_alone():
    other = BypassSeal(KeyRing.of(b"o" * 64))
    assert await other.admit(Spooled.of(stamped()), RECIPIENTS, NOW) is None


@pytest.mark.parametrize("name", [b"g=", b"p=", b"e=", b"s="])
async def test_no_word_of_it_can_be_changed(name: bytes):
    message = stamped()
    place = message.index(name) + 3
    changed = b"1" if message[place : place + 1] != b"1" else b"2"
    assert await admitted(message[:place] + changed + message[place + 1 :]) is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\r\n",
        MESSAGE,
        MESSAGE + stamped(),
        b"X-Mailwarden-Bypass: v=1\r\n\r\n",
        b"X-Mailwarden-Bypass: v=1; g=" + b"-" * 36 + b"; p=" + b"0" * 36 + b"; e=1; s=" + b"A" * 43 + b"=\r\n\r\n",
        b"X-Mailwarden-Bypass: " * 100_000,
    ],
)
def test_a_message_without_a_pass_has_none(message: bytes):
    assert find_pass(Spooled.of(message)) is None
