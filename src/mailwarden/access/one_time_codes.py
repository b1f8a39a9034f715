"""Codes of an authenticator application (TOTP, RFC 6238) and recovery codes, as pure functions.

Security: secrets pass through here. A step of TOTP is accepted once only; the store keeps the last one.
"""

import secrets

import pyotp

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import Mac, equal

ISSUER = "Mailwarden"
STEP_SECONDS = 30
RECOVERY_CODES = 10
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # no letter that looks like another
_LENGTH = 16  # 80 bits
_RECOVERY = b"mailwarden recovery codes 1"


def new_secret() -> str:
    """Return a secret of 160 bits as an authenticator takes it."""
    return pyotp.random_base32(32)


def address_of(secret: str, name: str) -> str:
    """Return what the QR code says."""
    return pyotp.TOTP(secret).provisioning_uri(name=name, issuer_name=ISSUER)


def step_of(secret: str, code: str, now: float) -> int | None:
    """Return the step that the code belongs to: this one, the one before or the one after; None for a wrong code."""
    digits = "".join(code.split())
    if len(digits) != 6 or not digits.isascii() or not digits.isdigit():
        return None
    current = int(now) // STEP_SECONDS
    totp = pyotp.TOTP(secret)
    found = None
    for step in (current - 1, current, current + 1):
        if equal(totp.at(step * STEP_SECONDS).encode(), digits.encode()):
            found = step
    return found


def new_recovery_codes() -> list[str]:
    """Return ten codes, each good once, in groups of four."""
    codes = ["".join(secrets.choice(_DIGITS) for _ in range(_LENGTH)) for _ in range(RECOVERY_CODES)]
    return ["-".join(code[start : start + 4] for start in range(0, _LENGTH, 4)) for code in codes]


def looks_like_recovery(code: str) -> bool:
    return len(_plain(code)) == _LENGTH


def recovery_digest(code: str, pepper: KeyRing) -> bytes:
    """Return what is stored of a recovery code."""
    return Mac(pepper, _RECOVERY).sign(_plain(code).encode())


def recovery_candidates(code: str, pepper: KeyRing) -> list[bytes]:
    """Return what may be stored of a recovery code: one digest for every key."""
    return Mac(pepper, _RECOVERY).candidates(_plain(code).encode())


def _plain(code: str) -> str:
    return "".join(code.lower().split()).replace("-", "")[:64]
