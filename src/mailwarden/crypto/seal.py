"""Encrypts small values: AES-256-GCM with a random nonce (NIST SP 800-38D), under a ring's keys.

Security: secrets pass through here. The context of a value is authenticated, so one row's secret cannot replace
another's. A sealed value begins with its version and the id of its key.
"""

import secrets
from functools import cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mailwarden.crypto.keyring import ID, BrokenSeal, Key, KeyRing

_VERSION = b"\x01"
_NONCE = 12
_TAG = 16
HEAD = len(_VERSION) + ID


class Seal:
    """Encrypts with the current key, and decrypts with any key of the ring."""

    def __init__(self, ring: KeyRing, purpose: bytes) -> None:
        self._ring = ring
        self._cipher = cache(lambda key: AESGCM(key.derive(purpose)))

    def close(self, plain: bytes, bound: bytes) -> bytes:
        """Encrypt the value; it opens only with the same `bound`, the context such as the row that it belongs to."""
        key = self._ring.current
        head, nonce = _VERSION + key.key_id, secrets.token_bytes(_NONCE)
        return head + nonce + self._of(key).encrypt(nonce, plain, head + bound)

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """Return the value, or raise BrokenSeal, or UnknownKey if its key is missing."""
        if sealed[:1] != _VERSION or len(sealed) < HEAD + _NONCE + _TAG:
            raise BrokenSeal("It was not sealed here.")
        key = self._ring.need(key_in(sealed))
        head, nonce, rest = sealed[:HEAD], sealed[HEAD : HEAD + _NONCE], sealed[HEAD + _NONCE :]
        try:
            return self._of(key).decrypt(nonce, rest, head + bound)
        except InvalidTag:
            raise BrokenSeal("It was changed, or sealed for something else.") from None

    def is_current(self, sealed: bytes) -> bool:
        """Return whether the value is encrypted with the current key."""
        return key_in(sealed) == self._ring.current.key_id

    def _of(self, key: Key) -> AESGCM:
        cipher: AESGCM = self._cipher(key)
        return cipher


def key_in(sealed: bytes) -> bytes:
    """Return the id of the key of a sealed value."""
    return sealed[len(_VERSION) : HEAD]
