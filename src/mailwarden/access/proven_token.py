"""Random tokens that prove that they were issued here: 240 random bits and a MAC of them under a key of the pepper.

A caller without such a token cannot make one up, so that a forged token is rejected before any database query.

Security: secrets pass through here. The proof does not replace the digest: only stored tokens are valid.
"""

import base64
import hashlib
import re
import secrets

from mailwarden.crypto.keyring import ID, KeyRing
from mailwarden.crypto.mac import SIZE, Mac

_RANDOM = 30  # bytes; with those of the MAC they fill their base64, so that each token has one spelling
TOKEN_LENGTH = (_RANDOM + SIZE) * 4 // 3
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{TOKEN_LENGTH}}}")


class ProvenTokens:
    """Issues the tokens of one purpose, and recognises them after a rotation of the pepper too."""

    def __init__(self, pepper: KeyRing, purpose: bytes) -> None:
        self._mac = Mac(pepper, purpose)

    def new(self) -> str:
        random = secrets.token_bytes(_RANDOM)
        return base64.urlsafe_b64encode(random + self._mac.sign(random)).decode("ascii")

    def digest(self, token: str) -> bytes | None:
        """Return the digest to store and to search for: key id and SHA-256. None for a token not issued here."""
        if not _TOKEN.fullmatch(token):
            return None
        raw = base64.urlsafe_b64decode(token)
        random, signed = raw[:_RANDOM], raw[_RANDOM:]
        if not self._mac.verify(random, signed):
            return None
        return signed[:ID] + hashlib.sha256(raw).digest()
