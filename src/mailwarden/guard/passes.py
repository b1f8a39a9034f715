"""Passes of released messages, as the scan source `smtp` takes them: verified, and each of use once.

A pass is taken in one statement of the database before anything is delivered, so that of two messages with the same
pass, at one guard or at two, one goes through. It is taken for a while at first, and spent when the next hop has the
message. So nothing is lost where guard dies in between: the sender has no 250, tries again (RFC 5321, section 4.2.5),
and gets the pass once the while is over. Where guard dies after the next hop took the message and before the pass is
spent, the retry delivers it a second time, to the same recipient: SMTP delivers at least once (section 6.1).

Security: what a pass lets through is not scanned. A message without one costs a look at its header block.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from mailwarden.errors import StorageUnavailable
from mailwarden.model.scope import Scope
from mailwarden.quarantine.bypass import Bypass, BypassSeal
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.logs import get_logger

# Guards go by their own clocks: a spent pass is remembered beyond its end.
CLOCK_SKEW = timedelta(days=1)
TRIES = 3
_ALL = Scope.deployment()
log = get_logger(__name__)


class PassInUse(Exception):
    """Another delivery has the pass at this moment; whether it succeeds is not known yet."""


class TakenPass(Struct, frozen=True):
    """A pass that is ours for one delivery, and until when."""

    bypass: Bypass
    claimed_until: datetime


class Passes:
    def __init__(self, seal: BypassSeal, store: ReleaseStore, claim_seconds: float) -> None:
        """Take what passes are verified with; a delivery must take less than `claim_seconds`."""
        self._seal = seal
        self._store = store
        self._claim_seconds = claim_seconds

    async def take(self, raw: Spooled, recipients: Iterable[str]) -> TakenPass | None:
        """Take the pass by which a message goes through unscanned; None where it has none, or a spent one."""
        bypass = await self._seal.admit(raw, recipients, datetime.now(UTC))
        if bypass is None:
            return None
        until = await self._store.claim_pass(_ALL, bypass.uid, self._claim_seconds)
        if until is not None:
            return TakenPass(bypass, until)
        if await self._store.is_claimed(_ALL, bypass.uid, self._claim_seconds):
            raise PassInUse
        log.warning("pass_spent", ggrid=str(bypass.ggrid))
        return None

    async def spend(self, taken: TakenPass) -> None:
        """Note that the message went through."""
        log.info("passed", ggrid=str(taken.bypass.ggrid))
        for _ in range(TRIES):
            try:
                await self._store.spend_pass(_ALL, taken.bypass.uid, taken.bypass.expires + CLOCK_SKEW)
            except StorageUnavailable:
                continue
            return
        log.error("pass_not_spent", ggrid=str(taken.bypass.ggrid), usable_from=taken.claimed_until.isoformat())

    async def give_back(self, taken: TakenPass) -> None:
        """Let the message come again at once, as it was not delivered; else it may once the claim is over."""
        try:
            await self._store.give_back_pass(_ALL, taken.bypass.uid, taken.claimed_until)
        except StorageUnavailable:
            log.warning("pass_not_given_back", ggrid=str(taken.bypass.ggrid))
