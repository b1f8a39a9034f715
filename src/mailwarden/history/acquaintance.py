"""Remembers who has written to whom in a tenant, and is asked before a message is judged.

It is learned from messages that were found to be good, behind the scan's back. Asking has a short deadline, what was
asked lately is kept, and with the database away it is not asked for a while: nothing known is never evidence.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.mac import keyed_digest
from mailwarden.errors import MailwardenError
from mailwarden.history.partitions import today
from mailwarden.history.relationship_store import Bond, RelationshipStore, Sighting
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.telemetry.chore import end_tasks
from mailwarden.telemetry.logs import get_logger

DEADLINE = 0.03  # seconds
BATCH = 25  # questions in one statement, few enough to be looked up in the index one by one
BREATH = 1.0  # without asking, after an answer took too long
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


class _Question(Struct, frozen=True):
    """Who is asked about."""

    tenant: UUID
    sender: str
    people: tuple[str, ...]


class Acquaintance:
    """Asks for all who wait at once, one statement after the other, so that a burst costs one connection."""

    def __init__(self, store: RelationshipStore) -> None:
        self._store = store
        self._salt = b""
        self._kept: OrderedDict[_Question, tuple[float, Acquainted]] = OrderedDict()
        self._waiting: dict[_Question, asyncio.Future[Acquainted | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        self._silent_until = 0.0

    async def ask(self, tenant: UUID, sender: str, recipients: Sequence[str]) -> Acquainted | None:
        """Return what is known, or None where that cannot be told now."""
        people = tuple(sorted({each.lower() for each in recipients})[:RECIPIENTS])
        if not sender or not people:
            return None
        question, now = _Question(tenant, sender.lower(), people), time.monotonic()
        kept = self._kept.get(question)
        if kept and now - kept[0] < FRESH:
            return kept[1]
        if now < self._silent_until:
            return None
        if question not in self._waiting:
            self._waiting[question] = asyncio.get_running_loop().create_future()
        answer = self._waiting[question]
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask_all(), name="relationships")
        # Who has waited long enough goes on; the statement goes on too, and its answer is kept.
        done, _ = await asyncio.wait((answer,), timeout=DEADLINE)
        if not done:
            self._silent_until = time.monotonic() + BREATH
            return None
        return answer.result()

    async def stop(self) -> None:
        await end_tasks(self._asking)
        self._asking = None

    async def learn(self, requests: Sequence[FinishedRequest]) -> None:
        """Count the good ones among finished requests; where the store is away, these are not counted."""
        try:
            await self._store.learn(_ALL, self._sightings(requests, await self._salted()))
        except MailwardenError as error:
            _log.warning("relationships_not_learned", reason=error.message, messages=len(requests))

    async def _ask_all(self) -> None:
        while self._waiting:
            asked = dict(islice(self._waiting.items(), BATCH))
            found: dict[_Question, Acquainted] = {}
            try:
                found = await self._look(list(asked))
            except MailwardenError as error:
                self._silent_until = time.monotonic() + PAUSE
                _log.warning("relationships_not_asked", reason=error.message)
            except Exception:
                self._silent_until = time.monotonic() + PAUSE
                _log.exception("relationships_not_asked")
            for question, answer in asked.items():
                del self._waiting[question]
                answer.set_result(found.get(question))
            self._keep(found)

    async def _look(self, questions: list[_Question]) -> dict[_Question, Acquainted]:
        salt = await self._salted()
        pairs = {question: _asked_pairs(question, salt) for question in questions}
        known = await self._store.known(_ALL, [(each.tenant, pair) for each in questions for pair in pairs[each]])
        found = {}
        for question, (whole, alone, *rest) in pairs.items():
            half = len(rest) // 2
            bonds = [known.get(pair, Bond()) for pair in rest]
            found[question] = Acquainted(
                known.get(whole, Bond()), known.get(alone, Bond()), max(bonds[:half]), max(bonds[half:])
            )
        return found

    def _keep(self, found: dict[_Question, Acquainted]) -> None:
        now = time.monotonic()
        for question, known in found.items():
            self._kept[question] = (now, known)
            self._kept.move_to_end(question)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

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


def _asked_pairs(question: _Question, salt: bytes) -> list[bytes]:
    """Return the tenant as a whole, the sender, the sender with each recipient, and each recipient with the sender."""
    tenant, sender, people = question.tenant, question.sender, question.people
    return [
        pair_of(salt, tenant, "", ""),
        pair_of(salt, tenant, sender, ""),
        *(pair_of(salt, tenant, sender, each) for each in people),
        *(pair_of(salt, tenant, each, sender) for each in people),
    ]


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
    return keyed_digest(salt, tenant.bytes + text)[:16]
