"""The pass of a released message: a signed header field that lets it through a guard unscanned, once.

The field stands on top of the message. What it signs: the analysis, the pass itself, when it ends, for whom it is, and
every byte below the field. The recipients are those of the one transaction it is for. MTAs may put fields above it, but
none that says what the message is: with such, whoever got hold of a pass could make another message of what it signs.

Security: reads the header block of hostile messages. What is not exactly what was signed is no pass.
"""

import asyncio
import base64
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

import re2
from msgspec import Struct

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import Mac
from mailwarden.serving.spool import Spooled

NAME = "X-Mailwarden-Bypass"
MAX_HEADER = 1_048_576  # bytes in which the field is looked for
_FIELD = re.compile(
    rb"(?im)^x-mailwarden-bypass: v=1; g=([0-9a-f-]{36}); p=([0-9a-f-]{36}); e=([0-9]{1,12}); "
    rb"s=([A-Za-z0-9+/]{48})\r\n"
)
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
# By RE2, which needs no memory for each of the lines.
_TRACES = re2.compile(rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*", _BYTES)
_MEANING = re.compile(
    rb"(?im)^(?:from|sender|reply-to|to|cc|subject|date|message-id|mime-version|content-[!-9;-~]*)[ \t]*:"
)


class Bypass(Struct, frozen=True):
    """A pass: which analysis it is of, its own uid, and until when it holds."""

    ggrid: UUID
    uid: UUID
    expires: datetime


class Presented(Struct, frozen=True):
    """A pass as it stands in a message, not verified; `end` is where the bytes begin that it speaks of."""

    bypass: Bypass
    signature: bytes
    end: int


class BypassSeal:
    def __init__(self, ring: KeyRing) -> None:
        self._mac = Mac(ring, b"mailwarden bypass 1")

    def field(self, bypass: Bypass, recipients: Iterable[str], digest: bytes) -> bytes:
        """Return the field to put on top of a message of this SHA-256."""
        signature = base64.b64encode(self._mac.sign(_said(bypass, recipients, digest))).decode("ascii")
        moment = int(bypass.expires.timestamp())
        return f"{NAME}: v=1; g={bypass.ggrid}; p={bypass.uid}; e={moment}; s={signature}\r\n".encode("ascii")

    def verify(self, presented: Presented, recipients: Iterable[str], digest: bytes, now: datetime) -> Bypass | None:
        """Return the pass if it is for exactly this message, these recipients and this moment; is it spent already?"""
        said = _said(presented.bypass, recipients, digest)
        if not self._mac.verify(said, presented.signature) or now >= presented.bypass.expires:
            return None
        return presented.bypass

    async def admit(self, raw: Spooled, recipients: Iterable[str], now: datetime) -> Bypass | None:
        """Return the pass that a message has, verified; a message without one costs a look at its header block."""
        presented = find_pass(raw)
        if presented is None:
            return None
        below = raw.window(presented.end, raw.size - presented.end)
        return self.verify(presented, recipients, await asyncio.to_thread(below.sha256), now)


def _said(bypass: Bypass, recipients: Iterable[str], digest: bytes) -> bytes:
    """Return what the field signs."""
    names = sorted({each.lower() for each in recipients})
    said = (str(bypass.ggrid), str(bypass.uid), str(int(bypass.expires.timestamp())), str(len(names)), *names)
    return "\n".join(said).encode("utf-8", "surrogateescape") + b"\n" + digest


def find_pass(raw: Spooled) -> Presented | None:
    """Return the first pass in the header block of a message, not verified."""
    held = bytearray()
    for chunk in raw.chunks():
        held += chunk
        if b"\r\n\r\n" in held or len(held) >= MAX_HEADER:
            break
    end = held.find(b"\r\n\r\n")
    found = _FIELD.search(bytes(held[: end + 2] if end >= 0 else held))
    above = b"" if found is None else found.string[: found.start()]
    if found is None or not _TRACES.fullmatch(above) or _MEANING.search(above):
        return None
    try:
        moment = datetime.fromtimestamp(int(found[3]), UTC)
        bypass = Bypass(UUID(found[1].decode("ascii")), UUID(found[2].decode("ascii")), moment)
    except (ValueError, OverflowError, OSError):
        return None
    return Presented(bypass, base64.b64decode(found[4]), found.end())
