"""Keeps messages that were given to learn from: compressed, and sealed with a key that the database does not have.

Security: whole messages pass through here. Each is sealed for its lesson, so that none can stand in another's place.
"""

import zlib
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal

MAX_CONTENTS = 1024 * 1024  # bytes of a message that is learned from; what makes it larger is no text


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


class ContentsSeal:
    def __init__(self, ring: KeyRing) -> None:
        self._seal = Seal(ring, b"mailwarden lessons 1")

    def close(self, message: bytes, lesson: UUID) -> bytes:
        return self._seal.close(zlib.compress(message), lesson.bytes)

    def open(self, sealed: bytes, lesson: UUID) -> bytes:
        """Return the message, or raise BrokenSeal."""
        return zlib.decompressobj().decompress(self._seal.open(sealed, lesson.bytes), MAX_CONTENTS)

    def renewed(self, sealed: bytes, lesson: UUID) -> bytes | None:
        """Return the contents under the current key; None where they are already."""
        if self._seal.is_current(sealed):
            return None
        return self._seal.close(self._seal.open(sealed, lesson.bytes), lesson.bytes)
