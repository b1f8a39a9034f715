"""Remembers who has written to whom in a tenant, and is asked before a message is judged.

It is learned from messages that were found to be good, behind the scan's back. Asking has a short deadline, what was
asked lately is kept, and with the database away it is not asked for a while: nothing known is never evidence.
"""

import asyncio
import hmac
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import sha256
from uuid import UUID

from msgspec import Struct

from mailwarden.errors import MailwardenError
from mailwarden.history.partitions import today
from mailwarden.history.relationship_store import Bond, RelationshipStore, Sighting
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger

DEADLINE = 0.03  # seconds
PAUSE = 5.0  # without asking, after the store did not answer
FRESH = 60.0
KEPT = 20_000
RECIPIENTS = 20  # of one message that are looked at
GOOD = frozenset({Verdict.CLEAN, Verdict.BULK})

_ALL = Scope.deployment()
_log = get_logger("history.acquaintance")


class Acquainted(Struct, frozen=True):
    """What is known of a sender: to the tenant as a whole, to the recipients, and whether they wrote to it."""

    tenant: Bond = Bond()  # how much the tenant has seen at all
    sender: Bond = Bond()
    pair: Bond = Bond()
    answer: Bond = Bond()


class Acquaintance:
    def __init__(self, store: RelationshipStore) -> None:
        self._store = store
        self._salt = b""
        self._kept: OrderedDict[tuple[UUID, str, tuple[str, ...]], tuple[float, Acquainted]] = OrderedDict()
        self._silent_until = 0.0

    async def ask(self, tenant: UUID, sender: str, recipients: Sequence[str]) -> Acquainted | None:
        """Return what is known, or None where that cannot be told now."""
        sender, people = sender.lower(), tuple(sorted({each.lower() for each in recipients})[:RECIPIENTS])
        if not sender or not people:
            return None
        key, now = (tenant, sender, people), time.monotonic()
        kept = self._kept.get(key)
        if kept and now - kept[0] < FRESH:
            return kept[1]
        if now < self._silent_until:
            return None
        try:
            async with asyncio.timeout(DEADLINE):
                found = await self._look(tenant, sender, people)
        except (MailwardenError, TimeoutError) as error:
            self._silent_until = now + PAUSE
            _log.warning("relationships_not_asked", reason=str(error) or "no answer in time")
            return None
        self._kept[key] = (now, found)
        self._kept.move_to_end(key)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return found

    async def learn(self, requests: Sequence[FinishedRequest]) -> None:
        """Count the good ones among finished requests; where the store is away, these are not counted."""
        try:
            await self._store.learn(_ALL, self._sightings(requests, await self._salted()))
        except MailwardenError as error:
            _log.warning("relationships_not_learned", reason=error.message, messages=len(requests))

    async def _look(self, tenant: UUID, sender: str, people: tuple[str, ...]) -> Acquainted:
        salt = await self._salted()
        pairs = [pair_of(salt, tenant, sender, each) for each in people]
        answers = [pair_of(salt, tenant, each, sender) for each in people]
        whole, alone = pair_of(salt, tenant, "", ""), pair_of(salt, tenant, sender, "")
        known = await self._store.known(_ALL, tenant, [whole, alone, *pairs, *answers], DEADLINE)

        def most(wanted: list[bytes]) -> Bond:
            return max((known.get(each, Bond()) for each in wanted), key=lambda bond: bond.messages)

        return Acquainted(known.get(whole, Bond()), known.get(alone, Bond()), most(pairs), most(answers))

    def _sightings(self, requests: Sequence[FinishedRequest], salt: bytes) -> list[Sighting]:
        day = today()
        seen: Counter[tuple[UUID, bytes]] = Counter()
        for request in requests:
            if request.judgement.verdict in GOOD and not request.judgement.incomplete:
                seen.update((request.tenant, pair) for pair in _pairs_of(request, salt))
        return [Sighting(tenant, pair, day, count) for (tenant, pair), count in seen.items()]

    async def _salted(self) -> bytes:
        self._salt = self._salt or await self._store.salt(_ALL)
        return self._salt


def _pairs_of(request: FinishedRequest, salt: bytes) -> Iterator[bytes]:
    sender = request.summary.from_address.lower()
    if sender:
        yield pair_of(salt, request.tenant, "", "")
        yield pair_of(salt, request.tenant, sender, "")
        for recipient in sorted({each.lower() for each in request.envelope.recipients})[:RECIPIENTS]:
            yield pair_of(salt, request.tenant, sender, recipient)


def pair_of(salt: bytes, tenant: UUID, sender: str, recipient: str) -> bytes:
    """Return the digest under which a pair is counted; the same two in another tenant are another pair."""
    text = f"{sender}\0{recipient}".encode("utf-8", "replace")
    return hmac.digest(salt, tenant.bytes + text, sha256)[:16]
