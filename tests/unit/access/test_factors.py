"""One-time codes: the vectors of RFC 6238, the steps around now, and recovery codes."""

import base64
import re

import pytest

from mailwarden.access.factors import (
    RECOVERY_CODES,
    looks_like_recovery,
    new_recovery_codes,
    new_totp_secret,
    recovery_candidates,
    recovery_digest,
    totp_step,
    totp_uri,
)
from mailwarden.crypto.keyring import KeyRing

RFC_SECRET = base64.b32encode(b"12345678901234567890").decode()


@pytest.mark.parametrize(
    ("now", "code"), [(1111111111, "050471"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")]
)
def test_the_vectors_of_the_rfc(now: int, code: str) -> None:
    assert totp_step(RFC_SECRET, code, now) == now // 30
    assert totp_step(RFC_SECRET, f"{code[:3]} {code[3:]}", now) == now // 30
    for late in (-30, 30):
        assert totp_step(RFC_SECRET, code, now + late) == now // 30
    for too_late in (-90, 60, 61):
        assert totp_step(RFC_SECRET, code, now + too_late) is None


@pytest.mark.parametrize("wrong", ["", "28708", "2870822", "28708x", "２８７０８２", "287083"])
def test_anything_else_is_wrong(wrong: str) -> None:
    assert totp_step(RFC_SECRET, wrong, 59) is None


def test_secrets_are_long_and_new() -> None:
    assert len({new_totp_secret() for _ in range(20)}) == 20
    assert len(base64.b32decode(new_totp_secret())) >= 20
    assert totp_uri(RFC_SECRET, "ada@mail.example").startswith("otpauth://totp/Mailwarden:ada%40mail.example?secret=")


def test_recovery_codes_are_normalised() -> None:
    codes = new_recovery_codes()
    assert len(set(codes)) == RECOVERY_CODES
    assert all(re.fullmatch(r"[0-9a-hjkmnp-tv-z]{4}(-[0-9a-hjkmnp-tv-z]{4}){3}", code) for code in codes)
    old, both = KeyRing.of(b"p" * 32), KeyRing.of(b"q" * 32, b"p" * 32)
    plain = recovery_digest(codes[0], old)
    assert recovery_digest(codes[0].upper().replace("-", " "), old) == plain
    assert recovery_digest(codes[0], both) != plain
    assert plain in recovery_candidates(codes[0], both), "a code from before a rotation is still found"
    assert looks_like_recovery(codes[0])
    assert not looks_like_recovery("123456")
