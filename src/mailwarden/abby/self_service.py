"""What the links of digests lead to: one held message of one recipient, shown, and released where that is wished.

Security: everybody may call this, with what they like. A link that was signed is the only right that is asked for, and
it holds for one recipient of one message; whatever else is presented is answered alike, and costs no database.
"""

import secrets
from datetime import UTC, datetime

from mailwarden.access.rates import RateLimiter
from mailwarden.access.throttle import address_subject
from mailwarden.crypto.mac import keyed_digest
from mailwarden.errors import RateLimited
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope
from mailwarden.quarantine.digest import DigestLink, DigestLinkSigner, DigestStore, HeldForRecipient

CALLS = 300  # a minute from one address
BUCKETS = 4_096  # so that no number of addresses takes more room
ALL = Scope.deployment()


class SelfServiceDesk:
    def __init__(self, seal: DigestLinkSigner, store: DigestStore, rates: RateLimiter | None = None) -> None:
        self._seal = seal
        self._store = store
        self._rates = rates or RateLimiter(CALLS)
        self._salt = secrets.token_bytes(16)

    async def find(self, token: str, actor: Actor) -> HeldForRecipient | None:
        """Return what the link leads to; None is what is expired, made up, deleted and foreign."""
        link = self._opened(token, actor)
        return None if link is None else await self._store.find(ALL, link)

    async def release(self, token: str, actor: Actor) -> HeldForRecipient | None:
        """Have it released to the recipient of the link; return it as it was before."""
        link = self._opened(token, actor)
        return None if link is None else await self._store.release(ALL, link, actor)

    def _opened(self, token: str, actor: Actor) -> DigestLink | None:
        quota = self._rates.count(self._bucket(actor.address))
        if quota.exceeded:
            raise RateLimited("Too many calls from your network; try again in a minute.", retry_after=quota.seconds)
        return self._seal.open(token, datetime.now(UTC))

    def _bucket(self, address: str | None) -> str:
        digest = keyed_digest(self._salt, address_subject(address).encode())[:8]
        return str(int.from_bytes(digest, "big") % BUCKETS)
