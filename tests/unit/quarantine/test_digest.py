"""Digests: signed links of recipients, and hostile text made inert."""

import base64
import re
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.crypto.keyring import KeyRing
from mailwarden.quarantine.digest import DigestLink, inert_text
from mailwarden.quarantine.digest_links import DigestLinkSigner

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SIGNER = DigestLinkSigner(KeyRing.of(b"k" * 64))
LINK = DigestLink(uuid4(), 2, NOW + timedelta(days=7))


def test_a_link_opens_until_it_expires():
    token = SIGNER.token(LINK)
    assert len(token) == 84
    assert SIGNER.open(token, NOW) == LINK
    assert SIGNER.open(token, LINK.expires - timedelta(seconds=1)) == LINK
    assert SIGNER.open(token, LINK.expires) is None


def test_a_link_with_a_changed_bit_is_rejected():
    raw = base64.urlsafe_b64decode(SIGNER.token(LINK))
    for place in range(len(raw)):
        for bit in range(8):
            changed = bytearray(raw)
            changed[place] ^= 1 << bit
            assert SIGNER.open(base64.urlsafe_b64encode(changed).decode(), NOW) is None


def test_a_link_of_another_key_is_rejected():
    assert DigestLinkSigner(KeyRing.of(b"l" * 64)).open(SIGNER.token(LINK), NOW) is None


@pytest.mark.parametrize(
    "text",
    ["", "x", "A" * 75, "A" * 76, "A" * 77, "A" * 75 + "=", "A" * 75 + "/", "é" * 76, "A" * 75 + "\n", "\0" * 76],
)
def test_malformed_links_are_rejected_without_an_error(text):
    assert SIGNER.open(text, NOW) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Cheap watches", "Cheap watches"),
        ("Größe 42, 3.50 € … 日本語", "Größe 42, 3.50 € … 日本語"),
        ("a\r\nBcc: eve@evil.example", "a Bcc: eve@evil[.]example"),
        ("\x1b[31mred\x07", "[31mred"),
        ("abc\u202egpj.exe", "abc gpj[.]exe"),
        ("zero\u200bwidth\ufeff", "zero width"),
        ("see http://evil.example/x?y=1", "see http[:]//evil[.]example/x?y=1"),
        ("www.evil.example", "www[.]evil[.]example"),
        ("evil\u3002example evil\uff0eexample", "evil[.]example evil[.]example"),
        ("file:\\\\evil", "file[:]\\\\evil"),
        ("The end. Next", "The end. Next"),
        ("\ud800lone", "lone"),
        ("   ", ""),
    ],
)
def test_hostile_text_becomes_inert(text, shown):
    assert inert_text(text, 100) == shown


def test_long_text_is_cut_with_an_ellipsis():
    assert inert_text("x" * 1_000, 10) == "x" * 9 + "…"
    assert inert_text("x" * 10, 10) == "x" * 10


@given(st.text(max_size=500))
def test_inert_text_has_no_controls_and_no_links(text):
    shown = inert_text(text, 100)
    assert shown.isprintable()
    assert len(shown) <= 300
    assert "://" not in shown
    assert not re.search(r"[A-Za-z0-9][.][A-Za-z]", shown)
    shown.encode("utf-8")
