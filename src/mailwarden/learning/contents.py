"""Keeps messages that were given to learn from: compressed, and sealed with a key that the database does not have.

Security: whole messages pass through here. Each is sealed for its lesson, so that none can stand in another's place.
"""

import secrets
import zlib
from hashlib import sha256
from pathlib import Path
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import Struct

from mailwarden.errors import ConfigurationError

MAX_CONTENTS = 1024 * 1024  # bytes of a message that is learned from; what makes it larger is no text
MIN_KEY = 32
_NONCE = 12
_VERSION = b"\x01"


class GivenMessage(Struct, frozen=True):
    """A message as somebody gave it; `data` is None where it is too large to be learned from."""

    digest: bytes
    size: int
    data: bytes | None

    @classmethod
    def of(cls, message: bytes) -> "GivenMessage":
        return cls(sha256(message).digest(), len(message), message if len(message) <= MAX_CONTENTS else None)


class MessageIntake:
    """Takes a message piece by piece, and holds no more of it than can be learned from."""

    def __init__(self) -> None:
        self._digest = sha256()
        self._size = 0
        self._pieces: list[bytes] = []

    def take(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._size += len(piece)
        if self._size <= MAX_CONTENTS:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def finish(self) -> GivenMessage:
        data = b"".join(self._pieces) if self._size <= MAX_CONTENTS else None
        return GivenMessage(self._digest.digest(), self._size, data)


class BrokenContents(ValueError):
    """The bytes were not sealed for this lesson, or with another key."""


class ContentsSeal:
    def __init__(self, key: bytes) -> None:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"mailwarden lessons 1").derive(key)
        self._cipher = AESGCM(derived)

    def close(self, message: bytes, lesson: UUID) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        return _VERSION + nonce + self._cipher.encrypt(nonce, zlib.compress(message), _VERSION + lesson.bytes)

    def open(self, sealed: bytes, lesson: UUID) -> bytes:
        """Return the message, or raise BrokenContents."""
        if sealed[:1] != _VERSION or len(sealed) < 1 + _NONCE + 16:
            raise BrokenContents("not sealed here")
        try:
            packed = self._cipher.decrypt(sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :], _VERSION + lesson.bytes)
        except InvalidTag:
            raise BrokenContents("sealed for another lesson, or with another key") from None
        return zlib.decompressobj().decompress(packed, MAX_CONTENTS)


def read_contents_key(path: Path) -> bytes:
    """Return the secret that whatever is kept of messages is sealed with."""
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise ConfigurationError(
            f"contents.key: {path} cannot be read ({error.strerror}). `mailwarden init` makes it; by hand: "
            "openssl rand -hex 32, the same file for abby and every guard. What was sealed with another is lost."
        ) from None
    if len(key) < MIN_KEY:
        raise ConfigurationError(f"contents.key: {path} holds fewer than {MIN_KEY} bytes.")
    return key
