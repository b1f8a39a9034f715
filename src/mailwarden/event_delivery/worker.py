"""Delivers the events of one receiver: reads a page after the cursor, sends it, and moves the cursor.

Webhooks go in lanes by a hash of the subject: one lane sends in order, the lanes run at once. The cursor moves after
every event of the page was acknowledged, so each event is delivered at least once. After a failure the acknowledged
events of the page are remembered and not sent again, unless this process ends.
"""

import asyncio
import random
import zlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mailwarden.errors import CursorExpired, MailwardenError, StorageUnavailable
from mailwarden.event_delivery.http_client import DeliveryFailed
from mailwarden.event_delivery.model import GIVE_UP, Receiver, gives_up, pause_after
from mailwarden.event_delivery.senders import Sender
from mailwarden.event_delivery.store import ReceiverStore
from mailwarden.events.catalogue import Event
from mailwarden.events.reader import EventReader, Filter, Page, cursor_of, number_of
from mailwarden.model.scope import Actor, Scope
from mailwarden.telemetry.logs import get_logger

PAGE = 500
SAVE_EVERY = timedelta(minutes=1)  # for a cursor that passes only events of others
NOTHING = -1.0  # seconds: wait until there are new events
DELIVERY = Actor("system")
ALL = Scope.deployment()
CRASHED = "Internal error of Mailwarden. The log of abby has the details."

_log = get_logger("event_delivery")


class LeaseLost(Exception):
    """Another process delivers for the receiver, or it was disabled or removed."""


class Worker:
    """The state of one leased receiver in this process; `step` does the next piece of work."""

    def __init__(
        self,
        receiver: Receiver,
        sender: Sender,
        store: ReceiverStore,
        reader: EventReader,
        *,
        process: UUID,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.receiver = receiver
        self.oldest: datetime | None = None  # time of the oldest event that waits
        self._sender = sender
        self._store = store
        self._reader = reader
        self.process = process
        self._clock = clock
        self._chance = chance
        self._acknowledged: set[UUID] = set()
        self._cursor = receiver.cursor  # ahead of the stored one by events that are not for this receiver
        self._saved = clock()

    async def step(self) -> float:
        """Deliver a page, or retry it; return the seconds until the next step, or NOTHING if there are no events.

        A defect of Mailwarden is a failed delivery: it is counted, and the next attempt waits.
        """
        try:
            return await self._step()
        except (StorageUnavailable, LeaseLost):
            raise
        except MailwardenError as error:
            return await self._record_failure(DeliveryFailed(error.message))
        except Exception:
            return await self._record_failure(self._crash())

    async def _step(self) -> float:
        now = self._clock()
        wait = (self.receiver.next_attempt - now).total_seconds()
        if self.receiver.failing_since is not None and wait > 0:
            return wait
        page = await self._read()
        if page is None:
            return 0.0
        if not page.events:
            self.oldest = None
            await self._pass_by(page, now)
            return 0.0 if page.more else NOTHING
        self.oldest = page.events[0].time
        wait = self._batch_wait(page, now)
        if wait > 0:
            return wait
        failure = await self._send(page.events)
        if failure is not None:
            return await self._record_failure(failure)
        await self._advance(page.next, len(page.events))
        return 0.0

    async def close(self) -> None:
        await self._sender.close()

    async def _read(self) -> Page[Event] | None:
        """Return the next page, or None after the receiver lost events that retention had removed."""
        receiver = self.receiver
        wanted = Filter(receiver.scope, receiver.is_deployment, receiver.types)
        try:
            return await self._reader.read_after(wanted, self._cursor, PAGE)
        except CursorExpired:
            removed = await self._store.last_removed(ALL)
            lost = max(0, removed - number_of(self._cursor))
            _log.error("event_receiver_lost_events", receiver=str(receiver.uid), name=receiver.name, at_most=lost)
            cursor = cursor_of(removed)
            self._use(await self._store.lose(ALL, receiver.uid, self.process, cursor, lost))
            self._cursor = cursor
            return None

    def _batch_wait(self, page: Page[Event], now: datetime) -> float:
        """Return how long to wait for more events of a batch."""
        receiver = self.receiver
        if receiver.batch_size <= 1 or len(page.events) >= receiver.batch_size:
            return 0.0
        return receiver.batch_seconds - (now - page.events[0].time).total_seconds()

    async def _send(self, events: Sequence[Event]) -> DeliveryFailed | None:
        """Send what is not acknowledged yet; return the first failure, after which no lane sends more."""
        lanes: list[list[Event]] = [[] for _ in range(self._sender.lanes)]
        for event in events:
            if event.id not in self._acknowledged:
                lanes[zlib.crc32(event.subject.encode()) % len(lanes)].append(event)
        failures: list[DeliveryFailed] = []

        async def run(lane: Sequence[Event]) -> None:
            for start in range(0, len(lane), self._sender.chunk):
                if failures:
                    return
                chunk = lane[start : start + self._sender.chunk]
                try:
                    await self._sender.send(chunk)
                except DeliveryFailed as failure:
                    failures.append(failure)
                except MailwardenError as error:
                    failures.append(DeliveryFailed(error.message))
                except Exception:
                    failures.append(self._crash())
                else:
                    self._acknowledged.update(event.id for event in chunk)

        async with asyncio.TaskGroup() as group:
            for lane in lanes:
                if lane:
                    group.create_task(run(lane))
        return failures[0] if failures else None

    def _crash(self) -> DeliveryFailed:
        """Log the current exception; return the failure that the receiver shows."""
        _log.exception("event_delivery_crashed", receiver=str(self.receiver.uid), name=self.receiver.name)
        return DeliveryFailed(CRASHED)

    async def _advance(self, cursor: str, delivered: int) -> None:
        now = self._clock()
        recovered = self.receiver.failing_since is not None
        uid = self.receiver.uid
        self._use(await self._store.advance(ALL, uid, self.process, cursor, delivered=delivered, now=now))
        self._acknowledged.clear()
        self._cursor = cursor
        self._saved = now
        if recovered:
            _log.info("event_receiver_recovered", receiver=str(uid), name=self.receiver.name)

    async def _pass_by(self, page: Page[Event], now: datetime) -> None:
        """Move on over events that are not for this receiver; store it now and then."""
        self._cursor = page.next
        if page.next != self.receiver.cursor and now - self._saved >= SAVE_EVERY:
            await self._advance(page.next, 0)

    async def _record_failure(self, failure: DeliveryFailed) -> float:
        now, receiver = self._clock(), self.receiver
        if failure.gone or (receiver.failing_since is not None and gives_up(receiver.failing_since, now)):
            await self._give_up(failure)
        pause = pause_after(receiver.attempts + 1, self._chance(), failure.retry_after)
        if receiver.failing_since is None:
            _log.warning(
                "event_receiver_failing", receiver=str(receiver.uid), name=receiver.name, reason=failure.sentence
            )
        changed = await self._store.fail(
            ALL,
            receiver.uid,
            self.process,
            now=now,
            next_attempt=now + timedelta(seconds=pause),
            error=failure.sentence,
        )
        self._use(changed)
        return pause

    async def _give_up(self, failure: DeliveryFailed) -> None:
        receiver = self.receiver
        reason = failure.sentence
        if not failure.gone:
            reason = f"No delivery succeeded for {GIVE_UP.days} days. {reason}"
        await self._store.disable(ALL, receiver.uid, reason, DELIVERY)
        _log.error("event_receiver_disabled", receiver=str(receiver.uid), name=receiver.name, reason=reason)
        raise LeaseLost

    def _use(self, changed: Receiver | None) -> None:
        if changed is None:
            raise LeaseLost
        self.receiver = changed
