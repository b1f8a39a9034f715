"""A receiver that is down for one hour of simulated time gets every event, in order for each message.

The database, the receiver's process and HTTP are real. The worker's clock is simulated: it jumps to the next attempt.
"""

import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from mailwarden.event_delivery import http_client
from mailwarden.event_delivery.model import Endpoint, Kind, NewEndpoint, State
from mailwarden.event_delivery.worker import NOTHING, Worker
from mailwarden.events.catalogue import KeyRevoked
from mailwarden.events.outbox import new_event, record
from rig.ports import free_port
from rig.process import ServerProcess
from tests.integration.event_delivery import receiver_process
from tests.integration.event_delivery.receivers import ALL, ROOT, Outbox

FULL = os.environ.get("MAILWARDEN_FULL") == "1"
EVENTS = int(os.environ.get("EVENTS", "20000" if FULL else "1500"))
EACH = 5  # events of one message, spread over the hour
HOUR = timedelta(hours=1)
WAYS = ("refused", "error", "hang", "cut")  # of failing, one after the other
LOST_ANSWERS = 20


class Receiver:
    """The process, and the events that it has stored."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._mode, self._stored = folder / "mode", folder / "stored"
        command = [sys.executable, receiver_process.__file__, str(self.port), str(folder)]
        self.process = ServerProcess("receiver", command, folder / "log", self._is_open)

    def fail(self, way: str) -> None:
        """Fail in this way from now on; `well` ends the outage."""
        if way == "refused":
            self.process.kill()
            return
        self._mode.write_text(way, "ascii")
        if not self.process.running:
            self.process.start()

    def _is_open(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def stored(self) -> list[tuple[str, str, int]]:
        return [msgspec.json.decode(line, type=tuple[str, str, int]) for line in self._stored.read_bytes().splitlines()]


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(tmp_path)
    made.fail("well")
    yield made
    made.process.kill()


class Hour:
    """The simulated clock, and the events of the hour, which are written as it passes."""

    def __init__(self, outbox: Outbox) -> None:
        self.start = self.now = datetime.now(UTC)
        self.ids: list[str] = []
        self._outbox = outbox

    def clock(self) -> datetime:
        return self.now

    async def pass_by(self, pause: timedelta) -> None:
        """Let time pass and write the events that are due."""
        self.now += pause
        due = min(EVENTS, 1 + int(EVENTS * ((self.now - self.start) / HOUR)))
        numbers = range(len(self.ids), due)
        messages = EVENTS // EACH
        events = [
            new_event(KeyRevoked("k1", str(each), by="user:root"), None, f"message {each % messages}")
            for each in numbers
        ]
        async with self._outbox.database.connection() as connection, connection.transaction():
            await record(connection, events)
        self.ids += [str(event.id) for event in events]


async def new_worker(outbox: Outbox, endpoint: Endpoint, clock: Callable[[], datetime]) -> Worker:
    """Return the worker of a new abby process, after the one before has died."""
    process = uuid4()
    async with outbox.database.connection() as connection:
        await connection.execute("UPDATE event_endpoints SET lease = NULL, lease_until = NULL")
    (held,) = [each for each in await outbox.store.lease(ALL, process, 1) if each.uid == endpoint.uid]
    return Worker(held, outbox.channels.sender_of(held), outbox.store, outbox.reader, process=process, clock=clock)


async def fail_for_an_hour(worker: Worker, receiver: Receiver, hour: Hour) -> Counter[str]:
    """Attempt deliveries until the hour is over; return the errors of the attempts."""
    errors = Counter[str]()
    while hour.now - hour.start < HOUR:
        receiver.fail(WAYS[errors.total() % len(WAYS)])
        pause = await worker.step()
        assert pause > 0
        errors[worker.endpoint.last_error] += 1
        await hour.pass_by(timedelta(seconds=pause))
    return errors


async def test_a_receiver_that_is_down_for_an_hour_gets_everything(
    outbox: Outbox,
    receiver: Receiver,
    note: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_client, "DEADLINE", 0.5)  # real seconds: a receiver that hangs never answers
    wanted = NewEndpoint("soar", Kind.WEBHOOK, f"http://127.0.0.1:{receiver.port}/hook")
    endpoint, _ = await outbox.service.add(ALL, wanted, ROOT)
    hour = Hour(outbox)
    worker = await new_worker(outbox, endpoint, hour.clock)
    await hour.pass_by(timedelta(seconds=10))
    errors = await fail_for_an_hour(worker, receiver, hour)
    assert len(errors) >= 3, errors
    assert receiver.stored() == []
    assert len(hour.ids) == EVENTS

    receiver.fail(f"forget {LOST_ANSWERS}")  # stored, and the answer is lost: these events come again
    assert await worker.step() > 0
    worker = await new_worker(outbox, endpoint, hour.clock)  # abby dies: it forgets what was acknowledged
    while (pause := await worker.step()) != NOTHING:
        await hour.pass_by(timedelta(seconds=pause))

    stored = receiver.stored()
    first = {uid: (subject, number) for uid, subject, number in reversed(stored)}
    assert all(first[uid] == (subject, number) for uid, subject, number in stored), "a duplicate differs"
    lost = set(hour.ids) - first.keys()
    assert (len(lost), len(first)) == (0, EVENTS)
    assert disordered(stored) == []
    duplicates = len(stored) - len(first)
    assert duplicates > 0
    after = await outbox.store.find(ALL, endpoint.uid)
    assert (after.state, after.failing_since, after.lost, after.delivered) == (State.ENABLED, None, 0, EVENTS)
    note(
        f"receiver down 1 h (simulated time): {EVENTS} events, {len(lost)} lost, 0 out of order, {errors.total()} "
        f"failed attempts, {duplicates} duplicates with the same id"
    )


def disordered(stored: list[tuple[str, str, int]]) -> list[str]:
    """Return the messages whose events, without the duplicates, did not come in the order of their numbers."""
    arrived: dict[str, list[int]] = {}
    for _, subject, number in stored:
        numbers = arrived.setdefault(subject, [])
        if number not in numbers:
            numbers.append(number)
    return [subject for subject, numbers in arrived.items() if numbers != sorted(numbers)]
