"""The signed header fields that carry the result of a scan; forged ones are removed.

The fields stand on top of the message, the signature last. The signature covers the other result fields and every byte
below it: fields that MTAs add above do no harm, and changes below are detected.

Security: reads the header block of hostile messages. Only fields with our own names are removed; every other byte is
passed on unchanged.
"""

import asyncio
import base64
import hashlib
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import Mac
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.release_token import HEADER as BYPASS
from mailwarden.serving.spool import Spooled

MAX_LINE = 76
# A field of ours with its folded lines, at the start of a line; obsolete syntax allows a space before the colon.
_OWN = re.compile(rb"(?im)^x-mailwarden-[^\r\n]*(?:\r\n[ \t][^\r\n]*)*(?:\r\n(?![ \t])|\Z)")
_FIELD = re.compile(rb"(?im)^x-mailwarden-([a-z]+): ?([^\r\n]*(?:\r\n[ \t][^\r\n]*)*)\r\n(?![ \t])")


# Fields that only Mailwarden writes: clients remove them from incoming messages.
OWN = (
    "X-Mailwarden-Ggrid",
    "X-Mailwarden-Verdict",
    "X-Mailwarden-Decision",
    "X-Mailwarden-Tags",
    "X-Mailwarden-Signature",
    BYPASS,
)


class Result(Struct, frozen=True):
    """The content of the result fields."""

    ggrid: UUID
    verdict: Verdict
    decision: Decision
    tags: tuple[str, ...]
    signed: int  # seconds since 1970


class Cleaned(Struct, frozen=True):
    """A message without fields of our names: its header block, and the offset of the rest in the raw bytes."""

    header: bytes
    raw: Spooled
    rest: int

    @property
    def size(self) -> int:
        return len(self.header) + self.raw.size - self.rest

    async def stream(self, fields: bytes = b"") -> AsyncIterator[bytes]:
        """Yield the message, with `fields` in front of its header."""
        yield fields + self.header
        if self.rest < self.raw.size:
            async for chunk in self.raw.window(self.rest, self.raw.size - self.rest).stream():
                yield chunk

    async def digest(self) -> bytes:
        """Return the SHA-256 of the message; large chunks are hashed in a thread."""
        digest = hashlib.sha256()
        async for chunk in self.stream():
            if len(chunk) > 65_536:
                await asyncio.to_thread(digest.update, chunk)
            else:
                digest.update(chunk)
        return digest.digest()


def clean(raw: Spooled) -> Cleaned:
    """Remove the fields that only Mailwarden writes."""
    held = bytearray()
    for chunk in raw.chunks():
        searched = max(len(held) - 3, 0)
        held += chunk
        if held.startswith(b"\r\n"):
            return Cleaned(b"", raw, 0)
        end = held.find(b"\r\n\r\n", searched)
        if end >= 0:
            return Cleaned(_without_own(bytes(held[: end + 2])), raw, end + 2)
    return Cleaned(_without_own(bytes(held)), raw, raw.size)


class ResultSeal:
    def __init__(self, ring: KeyRing) -> None:
        self._mac = Mac(ring, b"mailwarden result fields 1")

    def fields(self, finished: FinishedRequest, digest: bytes, moment: datetime) -> bytes:
        """Return the fields to put on top of a message with this digest."""
        result = Result(
            finished.ggrid, finished.judgement.verdict, finished.ruling.decision, finished.tags, int(moment.timestamp())
        )
        signature = base64.b64encode(self._mac.sign(_signed_text(result, digest))).decode("ascii")
        fields = (
            f"X-Mailwarden-Ggrid: {result.ggrid}",
            f"X-Mailwarden-Verdict: {result.verdict}",
            f"X-Mailwarden-Decision: {result.decision}",
            _fold("X-Mailwarden-Tags:", result.tags),
            f"X-Mailwarden-Signature: v=1; t={result.signed}; s={signature}",
        )
        return "".join(f"{field}\r\n" for field in fields).encode("ascii")

    def read(self, message: bytes) -> Result | None:
        """Return the result in the fields on top of a message, or None if the signature does not match."""
        end = message.find(b"\r\n\r\n")
        header = message if end < 0 else message[: end + 2]
        found = {name.lower(): (value, place) for name, value, place in _fields(header)}
        try:
            stamp = dict(word.split("=", 1) for word in found[b"signature"][0].decode("ascii").split("; "))
            result = Result(
                ggrid=UUID(found[b"ggrid"][0].decode("ascii")),
                verdict=Verdict(found[b"verdict"][0].decode("ascii")),
                decision=Decision(found[b"decision"][0].decode("ascii")),
                tags=tuple(found[b"tags"][0].decode("ascii").split()),
                signed=int(stamp["t"]),
            )
            given = base64.b64decode(stamp["s"], validate=True)
        except (KeyError, ValueError):
            return None
        text = _signed_text(result, hashlib.sha256(message[found[b"signature"][1] :]).digest())
        return result if stamp.get("v") == "1" and self._mac.verify(text, given) else None


def _signed_text(result: Result, digest: bytes) -> bytes:
    """Return the signed text."""
    values = (str(result.ggrid), result.verdict, result.decision, " ".join(result.tags), str(result.signed))
    return "\n".join(values).encode("ascii") + b"\n" + digest


def _without_own(header: bytes) -> bytes:
    return _OWN.sub(b"", header) if b"x-mailwarden-" in header.lower() else header


def _fields(header: bytes) -> Iterable[tuple[bytes, bytes, int]]:
    for found in _FIELD.finditer(header):
        yield found[1], found[2].replace(b"\r\n", b""), found.end()


def _fold(name: str, words: Iterable[str]) -> str:
    """Fold words over as many lines as they need."""
    lines = [name]
    for word in words:
        if len(lines[-1]) + len(word) < MAX_LINE:
            lines[-1] += f" {word}"
        else:
            lines.append(f"\t{word}")
    return "\r\n".join(lines)


async def result_fields(seal: ResultSeal, finished: FinishedRequest, raw: Spooled) -> Sequence[tuple[str, str]]:
    """Return the fields from top to bottom; the signature covers the message as given, without our own fields."""
    crlf = b"\r\n" in next(raw.chunks(), b"")
    message = clean(raw) if crlf else Cleaned(b"", raw, 0)
    written = seal.fields(finished, await message.digest(), datetime.now(UTC)).decode("ascii")
    fields = written.removesuffix("\r\n").replace("\r\n\t", " ").split("\r\n")
    return [(name, value.strip()) for name, _, value in (field.partition(":") for field in fields)]
