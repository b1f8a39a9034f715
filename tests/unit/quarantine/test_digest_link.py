"""A link of a digest: one message, one recipient, so long, and from us; it names nobody."""

import base64
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mailwarden.crypto.keyring import KeyRing
from mailwarden.quarantine.digest_link import Link, LinkSeal

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SEAL = LinkSeal(KeyRing.of(b"k" * 64))
LINK = Link(uuid4(), 2, NOW + timedelta(days=7))


def test_a_link_opens_until_its_time_is_over():
    token = SEAL.token(LINK)
    assert len(token) == 84
    assert SEAL.open(token, NOW) == LINK
    assert SEAL.open(token, LINK.expires - timedelta(seconds=1)) == LINK
    assert SEAL.open(token, LINK.expires) is None


def test_no_bit_of_a_link_can_be_changed():
    raw = base64.urlsafe_b64decode(SEAL.token(LINK))
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            assert SEAL.open(base64.urlsafe_b64encode(changed).decode(), NOW) is None


def test_a_link_of_another_key_is_none():
    assert LinkSeal(KeyRing.of(b"l" * 64)).open(SEAL.token(LINK), NOW) is None


@pytest.mark.parametrize(
    "text",
    ["", "x", "A" * 75, "A" * 76, "A" * 77, "A" * 75 + "=", "A" * 75 + "/", "é" * 76, "A" * 75 + "\n", "\0" * 76],
)
def test_what_strangers_write_is_no_link_and_raises_nothing(text):
    assert SEAL.open(text, NOW) is None
