"""Sealing: what was sealed is read with the same pepper, for the same purpose, and unchanged; or not at all."""

import pytest

from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.crypto.seal import Seal

RING = KeyRing.of(b"p" * 32)
SEAL = Seal(RING, b"test 1")


def test_sealed_text_is_opened() -> None:
    sealed = SEAL.close(b"secret", b"totp:1")
    assert b"secret" not in sealed
    assert SEAL.open(sealed, b"totp:1") == b"secret"
    assert SEAL.close(b"secret", b"totp:1") != sealed


def test_anything_else_is_refused() -> None:
    sealed = SEAL.close(b"secret", b"totp:1")
    changed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    for broken, purpose, seal in (
        (sealed, b"totp:2", SEAL),
        (sealed, b"totp:1", Seal(KeyRing.of(b"q" * 32), b"test 1")),
        (sealed, b"totp:1", Seal(RING, b"test 2")),
        (changed, b"totp:1", SEAL),
        (b"\x02" + sealed[1:], b"totp:1", SEAL),
        (sealed[:20], b"totp:1", SEAL),
        (b"", b"totp:1", SEAL),
    ):
        with pytest.raises(BrokenSeal):
            seal.open(broken, purpose)
