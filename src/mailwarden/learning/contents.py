"""Reported messages: collected within a limit, compressed, and encrypted with a key that the database does not have.

Security: handles whole messages. Each is encrypted for its report, so that one cannot be exchanged for another.
"""

import zlib
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal

MAX_CONTENTS = 1024 * 1024  # bytes of a message for training; larger messages are large by attachments, not text


class ReportedMessage(Struct, frozen=True):
    """A message as reported; `data` is None if it is too large for training."""

    digest: bytes
    size: int
    data: bytes | None

    @classmethod
    def of(cls, message: bytes) -> "ReportedMessage":
        return cls(sha256(message).digest(), len(message), message if len(message) <= MAX_CONTENTS else None)


class MessageCollector:
    """Collects a message chunk by chunk, and holds at most MAX_CONTENTS of it."""

    def __init__(self) -> None:
        self._digest = sha256()
        self._size = 0
        self._chunks: list[bytes] = []

    def add(self, chunk: bytes) -> None:
        self._digest.update(chunk)
        self._size += len(chunk)
        if self._size <= MAX_CONTENTS:
            self._chunks.append(chunk)
        else:
            self._chunks.clear()

    def finish(self) -> ReportedMessage:
        data = b"".join(self._chunks) if self._size <= MAX_CONTENTS else None
        return ReportedMessage(self._digest.digest(), self._size, data)


class ContentsSeal:
    """Encrypts the message of a report; `close` and `open` are bound to the report's uid."""

    def __init__(self, ring: KeyRing) -> None:
        self._seal = Seal(ring, b"mailwarden lessons 1")

    def close(self, message: bytes, report: UUID) -> bytes:
        return self._seal.close(zlib.compress(message), report.bytes)

    def open(self, sealed: bytes, report: UUID) -> bytes:
        """Return the message, or raise BrokenSeal."""
        return zlib.decompressobj().decompress(self._seal.open(sealed, report.bytes), MAX_CONTENTS)

    def renewed(self, sealed: bytes, report: UUID) -> bytes | None:
        """Return the contents sealed with the current key; None if they are already."""
        if self._seal.is_current(sealed):
            return None
        return self._seal.close(self._seal.open(sealed, report.bytes), report.bytes)
