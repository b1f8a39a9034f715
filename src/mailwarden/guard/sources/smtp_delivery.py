"""Carries out decisions over SMTP, and returns the reply to the client.

One message may have recipients of several tenants with separate decisions, but it has one reply. guard forwards nothing
before every part is decided. If one part is undecided, or cannot be carried out, the client must retry the whole
message. A 5xx says that no recipient has the message, so guard replies 451 after a part was carried out. If the retry
ends with the same 5xx, guard passes it on: otherwise every retry, for days, would deliver the first part again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

from msgspec import Struct, field
from msgspec.structs import replace

from mailwarden.errors import MailwardenError, StorageUnavailable
from mailwarden.model.outcome import Decision
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.result_headers import Cleaned, ResultSeal, clean
from mailwarden.scan.shared_answer import Part
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.client import Connection, DeliveryFailed, NextHop
from mailwarden.smtp.commands import UNDECIDED, Forwarded, Recipient, Sender
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

DELIVERY_TIMEOUTS = 3  # times `nextHopTimeout`: the longest time for one whole message
TOO_SLOW = "451 4.4.2 The next hop is too slow; try again later"
NO_QUARANTINE = "451 4.7.1 The message must be held, and guard has no quarantine; try again later"
NOT_HELD = "451 4.3.0 The message could not be held; try again later"
MAX_REJECTED = 1_000  # messages that the next hop rejected in part
REMEMBERED_SECONDS = 86_400.0
IN_PART = "451 4.3.0 The next hop refused the message for some recipients; try again later"

log = get_logger(__name__)


class NotHeld(Exception):
    """The quarantine could not store the message; the log has the reason."""


class QuarantineWriter(Protocol):
    """Stores held messages."""

    async def hold(self, finished: FinishedRequest, raw: Spooled) -> object:
        """Return once the message is stored durably; raise otherwise."""


class Progress(Struct):
    """The parts of one message, and the tenants that have it, or may have it, in a mailbox or in quarantine.

    It belongs to the caller, who reads it also after a failure or a cancellation.
    """

    parts: Sequence[Part]
    recipients: Mapping[UUID, Sequence[Recipient]]  # by tenant
    reached: set[UUID] = field(default_factory=set)
    taken: bool = False  # the next hop accepted a part

    def having(self, decision: Decision) -> list[Part]:
        return [part for part in self.parts if part.decision is decision]


class Prepared(Struct, frozen=True):
    """A connection on which the next hop waits for the data of one part, and the fields that the data begins with."""

    connection: Connection
    fields: bytes
    tenant: UUID


class Answer(Struct, frozen=True):
    """The reply, and whether the decisions were carried out."""

    reply: str
    done: bool


def answered(parts: Sequence[Part]) -> list[Part]:
    """Return the parts that the reply covers: while one is undecided, the others are not carried out."""
    return [part for part in parts if part.decision is Decision.UNDECIDED] or list(parts)


class RejectedInPart:
    """The latest messages that the next hop rejected with 5xx after another part was carried out.

    Only the reply depends on it: a mistake means one more retry, or one retry less.
    """

    def __init__(self) -> None:
        self._moments: dict[int, float] = {}

    def again(self, message: int, *, now: float) -> bool:
        """Return whether the message is a retry; if it is not, remember it."""
        since = self._moments.pop(message, None)
        if since is not None and now - since < REMEMBERED_SECONDS:
            return True
        if len(self._moments) >= MAX_REJECTED:
            del self._moments[next(iter(self._moments))]
        self._moments[message] = now
        return False


class Delivery:
    def __init__(self, hop: NextHop, seal: ResultSeal, writer: QuarantineWriter | None, metrics: Metrics) -> None:
        self._hop = hop
        self._seal = seal
        self._writer = writer
        self._rejected = RejectedInPart()
        self._carried = metrics.counter("smtp_messages", "Messages answered over SMTP, by what was done.", "outcome")

    async def carry_out(self, progress: Progress, sender: Sender, forwarded: Forwarded, raw: Spooled) -> Answer:
        """Carry out the decision for each part, and return the one reply; 250 means that all are done."""
        undecided, bounced, held = map(progress.having, (Decision.UNDECIDED, Decision.BOUNCE, Decision.QUARANTINE))
        if undecided:
            return self._answer("undecided", f"{UNDECIDED} ({undecided[0].finished.ggrid})", done=True)
        if bounced:  # all parts: see `settle`
            return self._answer("bounced", _bounce(bounced[0].finished), done=True)
        if held and self._writer is None:
            return self._answer("not_kept", f"{NO_QUARANTINE} ({held[0].finished.ggrid})", done=True)
        try:
            reply_text = await self._do(progress, sender, forwarded, raw)
        except NotHeld:
            return self._answer("not_held", NOT_HELD, done=False)
        except DeliveryFailed as failure:
            answer = self._not_delivered(failure)
        except TimeoutError:
            answer = self._too_slow()
        else:
            outcome = "delivered" if reply_text else "quarantined" if held else "dropped"
            reply = f"250 2.0.0 Ok: {progress.parts[0].finished.ggrid} {reply_text}".rstrip()
            return self._answer(outcome, reply, done=True)
        if progress.taken:  # a retry delivers a part twice, which is better than not at all
            self.count("delivered_in_part")
        if not progress.reached or not answer.reply.startswith("5"):
            return answer
        # Not by the whole content: before the queue Postfix adds another Received field with each retry.
        addresses = frozenset(
            recipient.address for part in progress.parts for recipient in progress.recipients[part.tenant]
        )
        message = hash((sender.address, progress.parts[0].finished.summary.message_id, addresses))
        again = self._rejected.again(message, now=asyncio.get_running_loop().time())
        return answer if again else replace(answer, reply=IN_PART)

    async def forward_released(
        self, recipients: Sequence[Recipient], sender: Sender, forwarded: Forwarded, raw: Spooled
    ) -> Answer:
        """Forward a released message, which was judged before; it gets no result fields."""
        message = clean(raw)
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUTS * self._hop.timeout):
                connection = await self._hop.prepare(sender, recipients, forwarded, message.size)
                reply_text = (await self._hop.send(connection, message.stream())).text
        except DeliveryFailed as failure:
            return self._not_delivered(failure)
        except TimeoutError:
            return self._too_slow()
        return self._answer("passed", f"250 2.0.0 Ok: {reply_text}".rstrip(), done=True)

    async def _hold_all(self, progress: Progress, raw: Spooled) -> None:
        for part in progress.having(Decision.QUARANTINE):
            assert self._writer is not None
            tenant = part.tenant
            progress.reached.add(tenant)  # a cancellation during the commit leaves open whether it is stored
            try:
                await self._writer.hold(part.finished, raw)
            except MailwardenError as error:  # no room, or no database
                if not (isinstance(error, StorageUnavailable) and error.in_doubt):
                    progress.reached.discard(tenant)
                log.warning("not_held", sentence=error.message)
                raise NotHeld from error
            except Exception as error:
                progress.reached.discard(tenant)
                log.exception("not_held")
                raise NotHeld from error

    async def _do(self, progress: Progress, sender: Sender, forwarded: Forwarded, raw: Spooled) -> str:
        """Store the held parts and forward the others; return the reply of the next hop.

        The next hop accepts every envelope before guard stores anything, so that no copies gather in quarantine while
        the next hop is down. guard stores everything before it sends data: a second copy in quarantine does less harm
        than one in a mailbox.
        """
        delivered = progress.having(Decision.DELIVER)
        if not delivered:
            await self._hold_all(progress, raw)
            return ""
        message, waiting = clean(raw), list[Prepared]()
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(DELIVERY_TIMEOUTS * self._hop.timeout) as timeout:
                digest = await message.digest()
                for part in delivered:
                    fields = self._seal.fields(part.finished, digest, datetime.now(UTC))
                    size = len(fields) + message.size
                    connection = await self._hop.prepare(sender, progress.recipients[part.tenant], forwarded, size)
                    waiting.append(Prepared(connection, fields, part.tenant))
                left = (timeout.when() or 0.0) - clock()
                timeout.reschedule(None)  # the quarantine has its own time
                await self._hold_all(progress, raw)
                timeout.reschedule(clock() + left)
                return await self._send(waiting, message, progress)
        finally:
            for prepared in waiting:
                prepared.connection.close()

    async def _send(self, waiting: list[Prepared], message: Cleaned, progress: Progress) -> str:
        """Send the data of each part in order."""
        reply_text = ""
        while waiting:
            part = waiting.pop(0)
            try:
                reply_text = (await self._hop.send(part.connection, message.stream(part.fields))).text or "taken"
            except BaseException:
                if part.connection.in_doubt:
                    progress.reached.add(part.tenant)
                raise
            progress.reached.add(part.tenant)
            progress.taken = True
        return reply_text

    def _not_delivered(self, failure: DeliveryFailed) -> Answer:
        # The code alone: the text of a next hop may contain an address.
        log.warning("not_delivered", code=failure.reply[:9], cause=type(failure.__cause__).__name__)
        return self._answer("not_delivered", failure.reply, done=False)

    def _too_slow(self) -> Answer:
        log.warning("not_delivered", code=TOO_SLOW[:9])
        return self._answer("not_delivered", TOO_SLOW, done=False)

    def count(self, outcome: str) -> None:
        self._carried.labels(outcome).inc()

    def _answer(self, outcome: str, reply: str, *, done: bool) -> Answer:
        self.count(outcome)
        return Answer(reply, done)


def _bounce(finished: FinishedRequest) -> str:
    """Return the rejection with the ggrid; the summary may name a tenant's list entries, so it is left out."""
    return f"550 5.7.1 Refused: {finished.judgement.verdict} ({finished.ggrid})"
