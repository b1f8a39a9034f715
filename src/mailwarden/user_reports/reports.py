"""A report about one message: its kind, its training state, and the reported message, compressed and encrypted.

Security: handles whole messages. Each is collected within a limit and encrypted for its report with a key that the
database does not have, so that one cannot be exchanged for another.
"""

import zlib
from datetime import datetime
from enum import StrEnum
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.seal import Seal

MIN_REPORTS = 200  # of threats and of good mail each, before the classifier is used
MAX_CONTENTS = 1024 * 1024  # bytes of a message for training; larger messages are large by attachments, not text


class Kind(StrEnum):
    """The kind of a report."""

    RELEASED = "released"  # from quarantine
    PHISHING = "phishing"
    SPAM = "spam"
    GOOD = "good"

    @property
    def is_threat(self) -> bool:
        return self in (Kind.PHISHING, Kind.SPAM)


class TrainingState(StrEnum):
    """Whether the engine was trained with a report."""

    WAITING = "waiting"
    TRAINED = "trained"
    REJECTED = "rejected"  # too little text, a test message of spam filters, or the engine failed twice
    NOT_STORED = "not-stored"  # the report came without the message, or the message is too large


class UserReport(Struct, frozen=True):
    """A stored report."""

    uid: UUID
    tenant: UUID
    kind: Kind
    state: TrainingState
    size: int
    ggrid: UUID | None
    subject: str
    reported_by: str
    reported_at: datetime


class NewReport(Struct, frozen=True):
    """A report to store; `contents` are sealed."""

    uid: UUID
    tenant: UUID
    kind: Kind
    digest: bytes
    size: int
    contents: bytes | None = None
    ggrid: UUID | None = None
    subject: str = ""


class PendingReport(Struct, frozen=True):
    """A report with which the wanted generation is not trained yet."""

    uid: UUID
    tenant: UUID
    kind: Kind
    contents: bytes
    generation: int


class TrainingStatus(Struct, frozen=True):
    """The reports that a tenant's classifier is trained with."""

    tenant: UUID
    generation: int = 1
    wanted: int = 1
    threats: int = 0
    good: int = 0
    waiting: int = 0

    @property
    def active(self) -> bool:
        """Return whether the classifier has enough reports of both sides to be used."""
        return self.threats >= MIN_REPORTS and self.good >= MIN_REPORTS

    @property
    def rebuilding(self) -> bool:
        return self.wanted > self.generation

    @property
    def classifier(self) -> str:
        return classifier_of(self.tenant, self.generation)


def classifier_of(tenant: UUID, generation: int) -> str:
    """Return the name under which the engine stores the classifier of a tenant's generation."""
    return f"{tenant.hex}.{generation}"


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
        self._seal = Seal(ring, b"mailwarden training 1")

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
