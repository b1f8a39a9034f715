"""Sends the digests of a day: at its hour, one recipient after the other, to the next hop, where nothing is scanned.

A recipient gets at most one a day, however many guards there are: a digest is taken on before it is sent. What was not
sent, because it was refused or because the guard died over it, is told the day after. A guard that dies between the
next hop's yes and its own note has the same messages told once more, the day after.

Security: only addresses in a tenant's own domains are written to, so that nobody outside learns of what is held.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, date, datetime

from mailwarden.access.directory import TenantDirectory
from mailwarden.guard.digest_mail import DigestWriter, Unwritable
from mailwarden.guard.quarantine_config import DigestSettings
from mailwarden.guard.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.guard.smtp.next_hop import NO_ANSWER, NextHop, NotTaken
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy
from mailwarden.quarantine.digest import FIRST_JOB, Digest, DigestJob, DigestStore
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

INTERVAL = 30.0  # seconds between two looks at the clock
PATIENCE = 60.0  # seconds for one digest
TRIES = 10  # for a digest over which the next hop falls silent; others wait meanwhile
STOP = 20.0  # seconds for the digest in hand, when guard stops
ALL = Scope.deployment()

_log = get_logger("guard.digests")


class NobodyAnswers(Exception):
    """The next hop is away: no digest was tried, and all that are left are tried again soon."""


class Digests:
    def __init__(
        self,
        store: DigestStore,
        writer: DigestWriter,
        hop: NextHop,
        tenants: TenantDirectory,
        settings: DigestSettings,
        *,
        metrics: Metrics,
        interval: float = INTERVAL,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._writer = writer
        self._hop = hop
        self._tenants = tenants
        self._settings = settings
        self._clock = clock
        self._counted = metrics.counter("quarantine_digests", "Digests of the quarantine, by outcome.", "outcome")
        self._done: date | None = None  # the last day that was worked through
        self._unanswered: tuple[DigestJob | None, int] = None, 0  # the digest that met silence last, and how often
        self._chore = Chore("quarantine digests", self.look, interval)

    def start(self) -> None:
        self._chore.start(rested=True)

    async def stop(self) -> None:
        """Let the digest in hand come to its end, which is not noted otherwise; then end."""
        await self._chore.finish(STOP)

    async def look(self) -> int:
        """Send the digests of today if their hour has come and they are not sent; return how many were."""
        now = self._clock()
        hour = now.replace(hour=self._settings.hour, minute=0, second=0, microsecond=0)
        if now < hour or self._done == now.date():
            return 0
        if not self._tenants.loaded:  # asked before anything is taken on, so that nobody is passed over
            await self._tenants.refresh()
        await self._store.prepare(ALL, now.date(), hour)
        sent, turn = 0, FIRST_JOB
        try:
            while not self._chore.stopping:
                async with self._chore.in_hand:
                    following = await self._store.take(ALL, now.date(), turn)
                    if following is None:
                        self._done = now.date()
                        break
                    turn = following
                    sent += await self._serve(turn, hour)
        except NobodyAnswers:
            _log.warning("digests_wait", reason=NO_ANSWER)
        if sent:
            _log.info("digests_sent", digests=sent)
        return sent

    async def _serve(self, turn: DigestJob, hour: datetime) -> bool:
        """Send one digest and note it; one that fails is logged, and is no reason against the others."""
        if not self._is_own(turn):
            return False
        digest = await self._store.collect(ALL, turn, hour, self._settings.max_messages)
        if not digest.uids:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                await self._send(digest)
        except NotTaken as failure:
            if failure.reply == NO_ANSWER and self._may_wait(turn):
                await self._store.give_back(ALL, turn)
                self._counted.labels("waits").inc()
                raise NobodyAnswers from None
            codes = " ".join(failure.reply.split()[:2])  # what follows them often names the recipient
            self._refused(turn, codes)
            return False
        except (Unwritable, TimeoutError) as failure:
            self._refused(turn, type(failure).__name__)
            return False
        self._unanswered = None, 0
        await self._store.set_reported(ALL, digest)
        self._counted.labels("sent").inc()
        return True

    def _refused(self, turn: DigestJob, reason: str) -> None:
        self._counted.labels("refused").inc()
        _log.warning("digest_refused", tenant=str(turn.tenant), reason=reason)

    def _may_wait(self, turn: DigestJob) -> bool:
        """Tell whether a digest that met silence is tried again today: the silence may be over this one alone."""
        last, tries = self._unanswered
        self._unanswered = turn, tries + 1 if turn == last else 1
        return self._unanswered[1] < TRIES

    def _is_own(self, turn: DigestJob) -> bool:
        """Tell whether the recipient's domain is the tenant's; guards also look at what goes out."""
        assigned = self._tenants.assign(turn.recipient)
        return assigned.by is AssignedBy.DOMAINS and assigned.tenant == turn.tenant

    async def _send(self, digest: Digest) -> None:
        content = self._writer.write(digest, self._clock())
        sender = Sender("", utf8=not digest.recipient.isascii(), eight_bit=not content.isascii())
        recipients = [Recipient(digest.recipient)]
        connection = await self._hop.prepare(sender, recipients, Forwarded(), len(content))
        await self._hop.send(connection, _stream(content))


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content
