"""The links of a digest: which held message, for which of its recipients, until when; signed, so that none is made up.

A link names no address: who only sees it in a log or over a shoulder learns neither who it is for nor of what.

Security: reads what strangers put into an address. What is not exactly what was signed is no link.
"""

import base64
import re
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import SIZE, Mac

PLACE = "/held"
_UID, _NUMBER, _EXPIRES = 16, 4, 7  # bytes of each; with those of the signature they fill their base64
_SAID = _UID + _NUMBER + _EXPIRES
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{(_SAID + SIZE) * 4 // 3}}}")


class Link(Struct, frozen=True):
    """One recipient's way to one held message; `number` is the recipient's, counted from 1."""

    message: UUID
    number: int
    expires: datetime


class LinkSeal:
    def __init__(self, ring: KeyRing) -> None:
        self._mac = Mac(ring, b"mailwarden digest 1")

    def token(self, link: Link) -> str:
        """Return a link as it stands in an address."""
        said = (
            link.message.bytes
            + link.number.to_bytes(_NUMBER, "big")
            + int(link.expires.timestamp()).to_bytes(_EXPIRES, "big")
        )
        return base64.urlsafe_b64encode(said + self._mac.sign(said)).decode("ascii")

    def open(self, token: str, now: datetime) -> Link | None:
        """Return the link if we signed it and its time is not over."""
        if not _TOKEN.fullmatch(token):
            return None
        raw = base64.urlsafe_b64decode(token)
        said, signature = raw[:_SAID], raw[_SAID:]
        if not self._mac.verify(said, signature):
            return None
        number = int.from_bytes(said[_UID : _UID + _NUMBER], "big")
        link = Link(UUID(bytes=said[:_UID]), number, _moment(said[_UID + _NUMBER :]))
        return link if now < link.expires else None


def _moment(raw: bytes) -> datetime:
    return datetime.fromtimestamp(int.from_bytes(raw, "big"), UTC)
