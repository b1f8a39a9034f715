"""The signed links of a digest, and the requests that come by them.

A link contains no address: a reader of a log learns neither the recipient nor the content.

Security: a link is hostile input; only a link with a valid signature is accepted.
"""

import base64
import re
import secrets
from datetime import UTC, datetime
from uuid import UUID

from mailwarden.access.rate_limits import RateLimiter, address_subject
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import SIZE, Mac, keyed_digest
from mailwarden.errors import RateLimited
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.digest import DigestLink, HeldForRecipient
from mailwarden.quarantine.digest_store import DigestStore

LINK_PATH = "/held"
_UID, _NUMBER, _EXPIRES = 16, 4, 7  # bytes; with the signature they need no base64 padding
_SIGNED = _UID + _NUMBER + _EXPIRES
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{(_SIGNED + SIZE) * 4 // 3}}}")

CALLS_PER_MINUTE = 300  # a minute from one address
MAX_BUCKETS = 4_096  # bounds the memory for any number of addresses
_ALL = Scope.deployment()


class DigestLinkSigner:
    def __init__(self, ring: KeyRing) -> None:
        self._mac = Mac(ring, b"mailwarden digest 1")

    def token(self, link: DigestLink) -> str:
        """Return the link's token for a URL."""
        signed = (
            link.message.bytes
            + link.number.to_bytes(_NUMBER, "big")
            + int(link.expires.timestamp()).to_bytes(_EXPIRES, "big")
        )
        return base64.urlsafe_b64encode(signed + self._mac.sign(signed)).decode("ascii")

    def open(self, token: str, now: datetime) -> DigestLink | None:
        """Return the link if its signature is valid and it has not expired."""
        if not _TOKEN.fullmatch(token):
            return None
        raw = base64.urlsafe_b64decode(token)
        signed, signature = raw[:_SIGNED], raw[_SIGNED:]
        if not self._mac.verify(signed, signature):
            return None
        number = int.from_bytes(signed[_UID : _UID + _NUMBER], "big")
        link = DigestLink(UUID(bytes=signed[:_UID]), number, _moment(signed[_UID + _NUMBER :]))
        return link if now < link.expires else None


def _moment(raw: bytes) -> datetime:
    return datetime.fromtimestamp(int.from_bytes(raw, "big"), UTC)


class DigestLinkService:
    def __init__(self, seal: DigestLinkSigner, store: DigestStore, rates: RateLimiter | None = None) -> None:
        self._seal = seal
        self._store = store
        self._rates = rates or RateLimiter(CALLS_PER_MINUTE)
        self._salt = secrets.token_bytes(16)

    async def find(self, token: str, actor: Actor) -> HeldForRecipient | None:
        """Return the message of a link; None for an expired, forged or deleted one."""
        link = self._opened(token, actor)
        return None if link is None else await self._store.find(_ALL, link)

    async def release(self, token: str, actor: Actor) -> HeldForRecipient | None:
        """Request the release to the recipient of the link; return the state before."""
        link = self._opened(token, actor)
        return None if link is None else await self._store.release(_ALL, link, actor)

    def _opened(self, token: str, actor: Actor) -> DigestLink | None:
        quota = self._rates.count(self._bucket(actor.address))
        if quota.exceeded:
            raise RateLimited("Too many calls from your network; try again in a minute.", retry_after=quota.seconds)
        return self._seal.open(token, datetime.now(UTC))

    def _bucket(self, address: str | None) -> str:
        digest = keyed_digest(self._salt, address_subject(address).encode())[:8]
        return str(int.from_bytes(digest, "big") % MAX_BUCKETS)
