"""Message authentication: HMAC-SHA-256 (RFC 2104) with the keys of a ring, and comparison in constant time.

A MAC is the id of its key and the 32 bytes of the HMAC, so it can be verified after a rotation.
"""

import hmac
from functools import cached_property
from hashlib import sha256

from mailwarden.crypto.keyring import ID, Key, KeyRing

SIZE = ID + 32  # bytes of a MAC with the id of its key


class Mac:
    """Signs and verifies for one purpose; each purpose has its own keys."""

    def __init__(self, ring: KeyRing, purpose: bytes) -> None:
        self._ring = ring
        self._purpose = purpose

    def sign(self, data: bytes) -> bytes:
        """Return the MAC under the current key."""
        return self._signed(self._ring.current, data)

    def verify(self, data: bytes, signed: bytes) -> bool:
        """Return whether a key of the ring made this MAC of the data."""
        expected = self._by_id.get(signed[:ID])
        return expected is not None and equal(hmac.digest(expected, data, sha256), signed[ID:])

    def knows(self, signed: bytes) -> bool:
        """Return whether the ring has the key that a MAC names."""
        return signed[:ID] in self._by_id

    def candidates(self, data: bytes) -> list[bytes]:
        """Return the MAC under every key, the current one first, for a search in the database."""
        return [self._signed(key, data) for key in self._ring.keys]

    def begin(self) -> hmac.HMAC:
        """Return an HMAC under the current key, for data in pieces."""
        return hmac.new(self._by_id[self._ring.current.key_id], digestmod=sha256)

    def _signed(self, key: Key, data: bytes) -> bytes:
        return key.key_id + hmac.digest(self._by_id[key.key_id], data, sha256)

    @cached_property
    def _by_id(self) -> dict[bytes, bytes]:
        return {key.key_id: key.derive(self._purpose) for key in self._ring.keys}


def keyed_digest(key: bytes, data: bytes) -> bytes:
    """Return the HMAC under a key outside of any ring, such as the salt of a pseudonym."""
    return hmac.digest(key, data, sha256)


def equal(one: bytes, other: bytes) -> bool:
    """Compare two values in constant time."""
    return hmac.compare_digest(one, other)
