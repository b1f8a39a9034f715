"""The delivery of one abby process: it leases receivers, runs a worker for each, and wakes them for new events.

Every worker is its own task with its own receiver, so that a slow receiver delays no other. The database connections
are separate from those of the APIs.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from uuid import UUID, uuid4

from mailwarden.errors import MailwardenError
from mailwarden.event_delivery.model import Receiver, pause_after
from mailwarden.event_delivery.senders import Channels, Sender, UnusableSender
from mailwarden.event_delivery.store import MAX_RECEIVERS, ReceiverStore
from mailwarden.event_delivery.worker import ALL, CRASHED, NOTHING, LeaseLost, Worker
from mailwarden.events.reader import EventReader
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics, Samples
from mailwarden.telemetry.periodic_task import PeriodicTask, end_tasks

LOOK_EVERY = 1.0  # seconds between two looks for new events
LEASE_EVERY = 5  # looks between two renewals
AFTER_OUTAGE = 2.0

_log = get_logger("event_delivery")


class Delivery:
    def __init__(self, store: ReceiverStore, reader: EventReader, channels: Channels, metrics: Metrics) -> None:
        self.process = uuid4()
        self._store = store
        self._reader = reader
        self._channels = channels
        self._running: dict[UUID, tuple[Worker, asyncio.Task[None]]] = {}
        self._settled = -1
        self._looks = 0
        self._news = asyncio.Event()
        self._task = PeriodicTask("event_delivery", self._look, LOOK_EVERY, quiet=True)
        labels = "receiver", "uid"
        self._delivered = metrics.counter("events_delivered", "Events that a receiver acknowledged.", *labels)
        self._failed = metrics.counter("event_delivery_failures", "Failed attempts to deliver events.", *labels)
        metrics.read_gauge("event_delivery_lag_seconds", "Age of the oldest event that waits.", self._lags, *labels)
        metrics.read_gauge("event_receiver_failing", "1 while deliveries to a receiver fail.", self._states, *labels)
        self._disabled = metrics.gauge("event_receivers_disabled", "Receivers that were disabled by their failures.")

    def start(self) -> None:
        self._task.start(at_once=True)

    async def stop(self) -> None:
        """Stop; another process continues at once."""
        await self._task.stop()
        await end_tasks(*(task for _, task in self._running.values()))
        self._running.clear()
        with suppress(MailwardenError):
            await self._store.end_leases(ALL, self.process)

    async def _look(self) -> None:
        if self._looks % LEASE_EVERY == 0:
            await self._lease()
        self._looks += 1
        if self._running:
            settled = await self._reader.settled()
            if settled != self._settled:
                self._settled = settled
                self._news.set()
                self._news = asyncio.Event()

    async def _lease(self) -> None:
        """Start and stop workers, so that there is one for each leased receiver in its current form."""
        self._disabled.set(await self._store.count_disabled(ALL))
        held = {receiver.uid: receiver for receiver in await self._store.lease(ALL, self.process, MAX_RECEIVERS)}
        for uid, (worker, task) in list(self._running.items()):
            if task.done() or uid not in held or _settings(held[uid]) != _settings(worker.receiver):
                await end_tasks(task)
                del self._running[uid]
                for counter in (self._delivered, self._failed):  # the series of removed receivers must not pile up
                    with suppress(KeyError):
                        counter.remove(*_labels(worker.receiver))
        for uid, receiver in held.items():
            if uid not in self._running:
                worker = Worker(receiver, self._sender_of(receiver), self._store, self._reader, process=self.process)
                self._running[uid] = worker, asyncio.create_task(self._run(worker), name=f"deliver {receiver.name}")

    def _sender_of(self, receiver: Receiver) -> Sender:
        """Return the sender; a receiver that cannot have one fails alone, and starts with the others."""
        try:
            return self._channels.sender_of(receiver)
        except MailwardenError as error:
            return UnusableSender(error.message)
        except Exception:
            _log.exception("event_delivery_crashed", receiver=str(receiver.uid), name=receiver.name)
            return UnusableSender(CRASHED)

    async def _run(self, worker: Worker) -> None:
        crashes = 0
        try:
            while True:
                news = self._news
                try:
                    wait = await self._counted(worker)
                    crashes = 0
                except MailwardenError as error:
                    _log.debug("event_delivery_waits", receiver=str(worker.receiver.uid), reason=str(error))
                    wait = AFTER_OUTAGE
                except LeaseLost:
                    raise
                except Exception:  # not even the failure could be recorded
                    _log.exception(
                        "event_delivery_crashed", receiver=str(worker.receiver.uid), name=worker.receiver.name
                    )
                    crashes += 1
                    wait = pause_after(crashes, 0.5)
                if wait == NOTHING:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(60.0):
                            await news.wait()
                else:
                    await asyncio.sleep(wait)
        except LeaseLost:
            _log.debug("event_receiver_left", receiver=str(worker.receiver.uid))
        finally:
            await worker.close()

    async def _counted(self, worker: Worker) -> float:
        before = worker.receiver
        try:
            return await worker.step()
        finally:
            after, labels = worker.receiver, _labels(before)
            self._delivered.labels(*labels).inc(after.delivered - before.delivered)
            self._failed.labels(*labels).inc(after.failed - before.failed)

    def _workers(self) -> Iterator[Worker]:
        return (worker for worker, task in self._running.values() if not task.done())

    def _lags(self) -> Samples:
        now = datetime.now(UTC)
        for worker in self._workers():
            lag = 0.0 if worker.oldest is None else max(0.0, (now - worker.oldest).total_seconds())
            yield _labels(worker.receiver), lag

    def _states(self) -> Samples:
        for worker in self._workers():
            yield _labels(worker.receiver), float(worker.receiver.failing_since is not None)


def _labels(receiver: Receiver) -> tuple[str, str]:
    return receiver.name, str(receiver.uid)


def _settings(receiver: Receiver) -> tuple[object, ...]:
    """Return what a worker needs anew: the rest of the record is the worker's own progress."""
    return (
        receiver.url,
        receiver.format,
        receiver.types,
        receiver.tenants,
        receiver.batch_size,
        receiver.batch_seconds,
        receiver.sealed_url,
        receiver.secret,
        receiver.previous_secret,
    )
