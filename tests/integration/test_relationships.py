"""Who has written to whom, in a real PostgreSQL: learned from good messages, asked under a deadline, forgotten."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from mailwarden.database.pool import Database
from mailwarden.guard.relationship import KNOWN_AGE, Relationship
from mailwarden.history import acquaintance
from mailwarden.history.acquaintance import Acquaintance, Acquainted, pair_of
from mailwarden.history.memory import MemoryHistoryStore
from mailwarden.history.partitions import today
from mailwarden.history.relationship_store import Bond, RelationshipStore, Sighting
from mailwarden.history.retention import ACQUAINTED_DAYS, Retention
from mailwarden.history.writer import HistoryWriter
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.summary import MessageSummary
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request

ALL = Scope.deployment()
TENANT = UUID("6f1d2c3b-0000-4000-8000-000000000001")
ADA, BOB = "ada@north.example", "bob@south.example"


@pytest.fixture
async def store(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RelationshipStore]:
    monkeypatch.setattr(acquaintance, "DEADLINE", 20.0)  # what is known is asked for, not how fast this machine is
    database = Database(database_url)
    yield RelationshipStore(database)
    await database.close()


def good(sender: str = ADA, recipient: str = BOB, verdict: Verdict = Verdict.CLEAN) -> FinishedRequest:
    request = finished_request()
    return replace(
        request,
        tenant=TENANT,
        envelope=Envelope(sender, (recipient,)),
        summary=replace(request.summary, from_address=sender),
        judgement=replace(request.judgement, verdict=verdict, incomplete=False),
    )


async def have_seen(store: RelationshipStore, sender: str, messages: int, days: int) -> None:
    """Make the tenant remember a sender, and as much of others as makes its memory ripe."""
    salt = await store.salt(ALL)
    for age in range(days, 0, -1):
        day = today() - timedelta(days=age)
        whole = Sighting(TENANT, pair_of(salt, TENANT, "", ""), day, 100)
        alone = Sighting(TENANT, pair_of(salt, TENANT, sender, ""), day, messages)
        await store.learn(ALL, [whole, alone])


async def names(store: RelationshipStore, sender: str) -> list[str]:
    envelope, summary = Envelope(sender, (BOB,)), MessageSummary(1, "", from_address=sender)
    report = await Relationship(Acquaintance(store)).report(TENANT, envelope, summary)
    assert report.status is Status.FINISHED
    assert not report.required
    return [finding.name for finding in report.findings]


async def test_good_messages_are_counted_by_the_day_and_others_are_not(store: RelationshipStore) -> None:
    memory = Acquaintance(store)
    await memory.learn([good(), good(), good(verdict=Verdict.PHISHING), good(verdict=Verdict.SUSPICIOUS)])
    known = await memory.ask(TENANT, ADA.upper(), [BOB])
    assert known is not None
    assert (known.sender, known.pair, known.answer) == (Bond(2, 1), Bond(2, 1), Bond())
    assert known.tenant.messages == 2


async def test_who_was_written_to_is_no_stranger(store: RelationshipStore) -> None:
    await have_seen(store, "somebody@north.example", 1, 8)
    await Acquaintance(store).learn([good(sender=BOB, recipient=ADA)])
    assert await names(store, ADA) == []


async def test_a_young_memory_knows_no_strangers(store: RelationshipStore) -> None:
    await Acquaintance(store).learn([good()])
    assert await names(store, "new@north.example") == []


async def test_a_ripe_memory_tells_strangers_from_those_it_knows(store: RelationshipStore) -> None:
    await have_seen(store, ADA, 3, KNOWN_AGE)
    assert await names(store, "new@north.example") == ["relationship.first-contact"]
    assert await names(store, ADA) == ["relationship.known-sender"]


async def test_who_began_to_write_a_few_days_ago_is_not_known_however_much_it_writes(store: RelationshipStore) -> None:
    """An address that was made for an attack is no acquaintance after three harmless messages."""
    await have_seen(store, ADA, 100, KNOWN_AGE - 2)
    assert await names(store, ADA) == []


async def test_another_tenant_knows_nothing_of_it(store: RelationshipStore) -> None:
    await have_seen(store, ADA, 3, 8)
    known = await Acquaintance(store).ask(uuid4(), ADA, [BOB])
    assert known is not None
    assert known.sender == known.tenant == Bond()
    assert await store.known(Scope.of(uuid4()), [(TENANT, pair_of(await store.salt(ALL), TENANT, ADA, ""))]) == {}


async def test_no_address_stands_in_the_table(store: RelationshipStore, database_url: str) -> None:
    await Acquaintance(store).learn([good()])
    connection = await asyncpg.connect(database_url)
    rows = await connection.fetch("SELECT * FROM relationships")
    await connection.close()
    assert rows
    assert not any(b"ada" in row["pair"] or "ada" in str(dict(row)) for row in rows)


async def test_what_was_not_seen_for_long_is_forgotten(store: RelationshipStore) -> None:
    salt = await store.salt(ALL)
    old, new = (Sighting(TENANT, pair_of(salt, TENANT, name, ""), day, 1) for name, day in (
        ("old", today() - timedelta(days=ACQUAINTED_DAYS + 1)), ("new", today())
    ))  # fmt: skip
    await store.learn(ALL, [old, new])
    retention = Retention(MemoryHistoryStore(), 30, relationships=store)
    assert await retention.forget_relationships() == 1
    assert list(await store.known(ALL, [(TENANT, old.pair), (TENANT, new.pair)])) == [new.pair]


async def test_the_writer_of_history_shows_what_it_kept(store: RelationshipStore) -> None:
    memory = Acquaintance(store)
    writer = HistoryWriter(MemoryHistoryStore(), 10, Metrics(), memory.learn)
    writer.start()
    writer.save(good())
    await writer.stop(5)
    known = await memory.ask(TENANT, ADA, [BOB])
    assert known is not None
    assert known.sender.messages == 1


async def test_a_crowd_is_asked_for_together_and_what_came_late_is_kept(
    store: RelationshipStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acquaintance, "DEADLINE", 0.03)
    memory = Acquaintance(store)
    senders = [f"{number}@north.example" for number in range(300)]

    async def ask_all() -> list[Acquainted | None]:
        return await asyncio.gather(*(memory.ask(TENANT, sender, [BOB]) for sender in senders))

    until = time.monotonic() + 20
    while not all(await ask_all()):
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
    await memory.stop()


async def test_without_the_database_nothing_is_told_and_nobody_waits() -> None:
    database = Database("postgresql://nobody@127.0.0.1:9/none")
    memory = Acquaintance(RelationshipStore(database))
    started = time.monotonic()
    for number in range(200):
        assert await memory.ask(TENANT, f"{number}@north.example", [BOB]) is None
    assert time.monotonic() - started < 3.0  # a short wait for each of them would be six seconds
    await memory.learn([good()])
    await database.close()
