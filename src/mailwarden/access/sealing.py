"""Seals small secrets that must be read again, with a key that the database does not have.

Security: secrets pass through here. The key is derived from the pepper; what a seal was made for is part of it, so
that one person's secret cannot be put in the place of another's.
"""

import secrets

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE = 12
_VERSION = b"\x01"


class BrokenSeal(ValueError):
    """The bytes were not sealed here, not for this, or with another pepper."""


class Seal:
    """AES-256-GCM with a random nonce and a key of its own."""

    def __init__(self, pepper: bytes) -> None:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"mailwarden console seal 1").derive(pepper)
        self._cipher = AESGCM(derived)

    def close(self, plain: bytes, purpose: bytes) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        return _VERSION + nonce + self._cipher.encrypt(nonce, plain, _VERSION + purpose)

    def open(self, sealed: bytes, purpose: bytes) -> bytes:
        """Return what was sealed for the purpose, or raise BrokenSeal."""
        if sealed[:1] != _VERSION or len(sealed) < 1 + _NONCE + 16:
            raise BrokenSeal("not sealed here")
        try:
            return self._cipher.decrypt(sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :], _VERSION + purpose)
        except InvalidTag:
            raise BrokenSeal("sealed for something else, or with another pepper") from None
