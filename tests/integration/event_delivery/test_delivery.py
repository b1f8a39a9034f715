"""Delivery against PostgreSQL and real servers: order, at least once, outages, slow and dead servers."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from mailwarden.event_delivery import model
from mailwarden.event_delivery.model import Format, Kind, NewReceiver, Receiver, State
from mailwarden.event_delivery.worker import CRASHED, NOTHING, LeaseLost, Worker
from mailwarden.events.catalogue import Event
from mailwarden.events.reader import Filter, cursor_of
from tests.integration.event_delivery.webhook_servers import ALL, ROOT, Outbox, WebhookServer, numbers_by_subject

NewServer = Callable[[], Awaitable[WebhookServer]]


def real_time() -> datetime:
    return datetime.now(UTC)


async def worker_of(outbox: Outbox, receiver: Receiver, clock: Callable[[], datetime] = real_time) -> Worker:
    """Lease the receiver for a new process and return its worker."""
    process = uuid4()
    async with outbox.database.connection() as connection:
        await connection.execute("UPDATE event_receivers SET lease = NULL, lease_until = NULL")
    (held,) = [each for each in await outbox.store.lease(ALL, process, 100) if each.uid == receiver.uid]
    return Worker(held, outbox.channels.sender_of(held), outbox.store, outbox.reader, process=process, clock=clock)


async def test_all_events_arrive_signed_and_in_order_for_each_subject(outbox: Outbox, server: WebhookServer) -> None:
    await outbox.emit(3)  # before the receiver exists: not for it
    receiver = await outbox.add(server)
    async with outbox.running():
        expected = await outbox.emit(300, subjects=20)
        await server.wait_for(300)
        await asyncio.sleep(0.3)
    assert sorted(server.ids) == sorted(expected)
    assert [document["id"] for document in server.seen] == server.ids
    assert all(numbers == sorted(numbers) for numbers in numbers_by_subject(server.seen).values())
    after = await outbox.store.find(ALL, receiver.uid)
    assert (after.delivered, after.failed) == (300, 0)
    assert after.cursor == await outbox.reader.latest()


async def test_a_receiver_that_was_down_gets_everything_in_order(
    outbox: Outbox, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "FIRST_PAUSE", 0.1)
    receiver = await outbox.add(server)
    async with outbox.running():
        first = await outbox.emit(20, subjects=5)
        await server.wait_for(20)
        await server.stop()
        rest = await outbox.emit(100, subjects=5)
        async with asyncio.timeout(60):
            while (state := await outbox.store.find(ALL, receiver.uid)).attempts < 3:
                await asyncio.sleep(0.05)
        assert "cannot be reached" in state.last_error
        assert state.failing_since is not None
        await server.start()
        await server.wait_for(120)
        await asyncio.sleep(0.2)
    assert set(server.ids) == {*first, *rest}
    numbers = numbers_by_subject(server.seen[20:])
    assert all(each == sorted(set(each)) for each in numbers.values())
    after = await outbox.store.find(ALL, receiver.uid)
    assert (after.failing_since, after.attempts, after.last_error) == (None, 0, "")


async def test_a_process_that_dies_leads_to_the_same_ids_again(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server)
    expected = await outbox.emit(40, subjects=8)
    server.refused_subjects = {"s3"}
    first = await worker_of(outbox, receiver)
    assert await first.step() > 0  # some were acknowledged; the process dies before the cursor moved
    before = list(server.ids)
    assert 0 < len(before) < 40
    server.refused_subjects = set()
    second = await worker_of(outbox, receiver, lambda: datetime.now(UTC) + timedelta(hours=1))
    assert await second.step() == 0
    with pytest.raises(LeaseLost):  # the first process can no longer move the cursor
        await first._advance(cursor_of(1), 1)
    assert set(server.ids) == set(expected)
    assert sorted(server.ids) == sorted([*expected, *before])
    assert all(each == sorted(each) for each in numbers_by_subject(server.seen[len(before) :]).values())


async def test_a_retry_skips_what_was_acknowledged(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server)
    expected = await outbox.emit(40, subjects=8)
    server.refused_subjects = {"s3"}
    moment = datetime.now(UTC)
    worker = await worker_of(outbox, receiver, lambda: moment)
    assert await worker.step() > 0
    server.refused_subjects = set()
    moment += timedelta(hours=1)
    assert await worker.step() == 0
    assert sorted(server.ids) == sorted(expected)


async def test_nothing_overtakes_an_event_that_failed_once(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server)
    expected = await outbox.emit(10)
    server.refused_once = {expected[4]}
    moment = datetime.now(UTC)
    worker = await worker_of(outbox, receiver, lambda: moment)
    assert await worker.step() > 0
    moment += timedelta(hours=1)
    assert await worker.step() == 0
    assert server.ids == expected


async def test_a_dead_receiver_is_disabled_after_three_days_with_a_notice(
    outbox: Outbox, server: WebhookServer
) -> None:
    receiver = await outbox.add(server)
    await outbox.emit(1)
    server.status = 500
    start = moment = datetime.now(UTC)
    worker = await worker_of(outbox, receiver, lambda: moment)
    pauses = []
    with suppress(LeaseLost):
        while True:
            pauses.append(await worker.step())
            moment += timedelta(seconds=pauses[-1] + 0.001)
    assert timedelta(days=3) <= moment - start < timedelta(days=3, hours=2)
    assert pauses[0] < 7
    assert 2_800 < max(pauses) <= 4_320
    after = await outbox.store.find(ALL, receiver.uid)
    assert after.state is State.DISABLED
    assert after.last_error == "No delivery succeeded for 3 days. The receiver answered 500."
    page = await outbox.reader.read_after(Filter(ALL, True, frozenset({"receiver.disabled"})), None)
    assert [event.data["receiver"] for event in page.events] == [receiver.name]

    server.status = 204  # enabling it continues where it stopped, with the notice about itself
    await outbox.service.enable(ALL, receiver.uid, ROOT)
    await outbox.store.end_leases(ALL, worker.process)
    async with outbox.running():
        await server.wait_for(2)
    assert sorted(document["type"] for document in server.seen) == ["key.revoked", "receiver.disabled"]


async def test_a_receiver_that_is_gone_is_disabled_at_once(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server)
    await outbox.emit(1)
    server.status = 410
    worker = await worker_of(outbox, receiver)
    with pytest.raises(LeaseLost):
        await worker.step()
    assert (await outbox.store.find(ALL, receiver.uid)).state is State.DISABLED


class DefectiveSender:
    """Raises what no sender should, for one subject; the other lanes are in flight meanwhile."""

    lanes, chunk = 8, 1

    def __init__(self) -> None:
        self.acknowledged = 0

    async def send(self, events: Sequence[Event]) -> None:
        if events[0].subject == "s0":
            raise OverflowError("a defect")
        await asyncio.sleep(0.05)
        self.acknowledged += len(events)

    async def close(self) -> None: ...


async def test_a_defect_is_a_failed_delivery_and_the_next_attempt_waits(
    outbox: Outbox, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = await outbox.add(server)
    await outbox.emit(20, subjects=20)
    moment = datetime.now(UTC)
    worker = await worker_of(outbox, receiver, lambda: moment)
    works, worker._sender = worker._sender, (defective := DefectiveSender())
    assert 4 <= await worker.step() <= 6
    after = await outbox.store.find(ALL, receiver.uid)
    assert (after.failing_since, after.failed, after.last_error) == (moment, 1, CRASHED)
    worker._sender = works
    moment += timedelta(minutes=1)
    with monkeypatch.context() as defect:
        defect.setattr(worker, "_batch_wait", None)
        assert 8 <= await worker.step() <= 12
    moment += timedelta(minutes=1)
    cursor, worker._cursor = worker._cursor, "damaged"
    assert 16 <= await worker.step() <= 24
    worker._cursor = cursor
    after = await outbox.store.find(ALL, receiver.uid)
    assert (after.attempts, "no cursor" in after.last_error) == (3, True)
    moment += timedelta(minutes=1)
    assert await worker.step() == 0
    assert defective.acknowledged > 0  # the other lanes were not interrupted
    assert len(server.seen) == 20 - defective.acknowledged


async def test_a_defect_stops_neither_its_receiver_nor_others(
    outbox: Outbox, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, _ = await outbox.service.add(ALL, NewReceiver("a broken one", Kind.SYSLOG, "tls://siem.example"), ROOT)
    unlucky, _ = await outbox.service.add(ALL, NewReceiver("b unlucky", Kind.FILE, "siem.ndjson"), ROOT)
    await outbox.add(server)
    steps, step = 0, Worker.step

    async def defective(worker: Worker) -> float:
        nonlocal steps
        if worker.receiver.uid != unlucky.uid:
            return await step(worker)
        steps += 1
        raise ValueError("a defect")

    monkeypatch.setattr(Worker, "step", defective)
    async with outbox.database.connection() as connection:
        await connection.execute("UPDATE event_receivers SET url = 'ftp://x' WHERE uid = $1", broken.uid)
    await outbox.emit(5)
    async with outbox.running() as delivery:
        await server.wait_for(5)
        async with asyncio.timeout(60):
            while not (await outbox.store.find(ALL, broken.uid)).failed:
                await asyncio.sleep(0.05)
        assert len(list(delivery._workers())) == 3  # none ended
        assert steps == 1  # and it waits before the next
    assert "must start with tls://" in (await outbox.store.find(ALL, broken.uid)).last_error


async def test_a_slow_receiver_delays_no_other(
    outbox: Outbox, server: WebhookServer, new_server: NewServer, note: Callable[[str], None]
) -> None:
    slow = await new_server()
    slow.delay = 5.0
    await outbox.add(slow)
    await outbox.add(server)
    async with outbox.running():
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        await outbox.emit(200, subjects=50)
        await server.wait_for(200, 4)
        seconds = time.perf_counter() - began
    note(f"events 200 to one server in {seconds:.2f} s beside one that takes 5 s for each")
    assert slow.seen == []


async def test_two_processes_never_deliver_twice_and_one_takes_over(outbox: Outbox, server: WebhookServer) -> None:
    await outbox.add(server)
    async with outbox.running(), outbox.running():
        one = await outbox.emit(50, subjects=5)
        await server.wait_for(50)
        await asyncio.sleep(0.3)
    assert sorted(server.ids) == sorted(one)
    async with outbox.running():  # the leases were returned
        two = await outbox.emit(10)
        await server.wait_for(60)
    assert sorted(server.ids) == sorted([*one, *two])


async def test_events_that_expired_are_counted(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server)
    await outbox.emit(30)
    async with outbox.database.connection() as connection:
        await connection.execute("DELETE FROM events WHERE number <= (SELECT min(number) + 9 FROM events)")
        await connection.execute("UPDATE events_removed SET number = (SELECT min(number) - 1 FROM events)")
    worker = await worker_of(outbox, receiver)
    assert [await worker.step(), await worker.step()] == [0, 0]
    assert [int(document["data"]["name"]) for document in server.seen] == list(range(10, 30))
    assert (await outbox.store.find(ALL, receiver.uid)).lost == 10


async def test_a_batch_is_one_webhook_in_order(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server, batch_size=50, batch_seconds=30)
    await outbox.emit(120, subjects=7)
    moment = datetime.now(UTC)
    worker = await worker_of(outbox, receiver, lambda: moment)
    assert await worker.step() == 0
    assert [document["type"] for document in server.seen] == ["events.batch"] * 3
    events = [event for document in server.seen for event in document["data"]["events"]]
    assert [int(event["data"]["name"]) for event in events] == list(range(120))
    assert len(set(server.ids)) == 3
    await outbox.emit(2)
    assert 20 < await worker.step() <= 31  # waits for more
    moment += timedelta(seconds=32)
    assert await worker.step() == 0
    assert len(server.seen) == 4


async def test_two_secrets_sign_during_the_overlap(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server)
    old = server.secret

    async def deliver(secret: str) -> None:
        server.secret = secret
        await outbox.emit(1)
        assert await (await worker_of(outbox, receiver)).step() == 0

    await deliver(old)
    _, new = await outbox.service.rotate(ALL, receiver.uid, ROOT, timedelta(hours=1))
    await deliver(old)
    await deliver(new)
    _, newest = await outbox.service.rotate(ALL, receiver.uid, ROOT, timedelta(0))
    await deliver(newest)
    assert [len(each.split()) for each in server.signatures] == [1, 2, 2, 1]
    assert len({old, new, newest}) == 3


async def test_events_that_are_not_wanted_are_passed_by(outbox: Outbox, server: WebhookServer) -> None:
    receiver = await outbox.add(server, types=frozenset({"message.held"}))
    await outbox.emit(50)
    moment = datetime.now(UTC)
    worker = await worker_of(outbox, receiver, lambda: moment)
    assert await worker.step() == NOTHING
    moment += timedelta(minutes=2)
    await outbox.emit(1)
    assert await worker.step() == NOTHING
    after = await outbox.store.find(ALL, receiver.uid)
    assert (after.cursor, after.delivered) == (await outbox.reader.latest(), 0)
    assert server.seen == []


async def test_a_file_gets_each_event_once_on_a_line(outbox: Outbox, tmp_path: Path) -> None:
    wanted = NewReceiver("siem", Kind.FILE, "siem.ndjson", format=Format.ECS)
    receiver, secret = await outbox.service.add(ALL, wanted, ROOT)
    expected = await outbox.emit(700)
    worker = await worker_of(outbox, receiver)
    assert [await worker.step(), await worker.step()] == [0, 0]
    await worker.close()
    lines = (tmp_path / "events/siem.ndjson").read_bytes().splitlines()
    assert [msgspec.json.decode(line)["event"]["id"] for line in lines] == list(expected)
    assert secret == ""


async def test_an_outage_of_the_database_loses_nothing(
    outbox: Outbox, server: WebhookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mailwarden.event_delivery.delivery.AFTER_OUTAGE", 0.1)
    await outbox.add(server)
    async with outbox.running():
        first = await outbox.emit(5)
        await server.wait_for(5)
        async with outbox.database.connection() as connection:
            await connection.execute("ALTER TABLE event_receivers RENAME TO away")
        second = await outbox.emit(5)
        await asyncio.sleep(1.5)
        async with outbox.database.connection() as connection:
            await connection.execute("ALTER TABLE away RENAME TO event_receivers")
        await server.wait_for(10)
    assert set(server.ids) == {*first, *second}
