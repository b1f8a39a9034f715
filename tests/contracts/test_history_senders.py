"""Every history store counts the messages of contacts within a scope, and can undo and delete the counts."""

from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

from mailwarden.model.scope import Scope
from mailwarden.senders.model import ContactCount, ContactRecord, ContactStats, SenderStore

ALL = Scope.deployment()
TENANT = uuid4()
ADA, BOB = b"a" * 16, b"b" * 16


def today() -> date:
    """Return the date when it is needed: a run may begin before midnight and end after it."""
    return datetime.now(UTC).date()


def count(contact: bytes, age: int = 0, messages: int = 1) -> ContactCount:
    return ContactCount(TENANT, contact, today() - timedelta(days=age), messages)


async def stats(senders: SenderStore, contact: bytes = ADA) -> ContactStats | None:
    return (await senders.stats(ALL, [(TENANT, contact)])).get(contact)


async def test_messages_and_days_add_up_and_the_first_day_stays(senders: SenderStore) -> None:
    await senders.add(ALL, [count(ADA, age=3, messages=2), count(BOB)])
    await senders.add(ALL, [count(ADA)])
    await senders.add(ALL, [count(ADA, messages=4)])
    assert await stats(senders) == ContactStats(messages=7, days=2, age=3)
    assert await stats(senders, BOB) == ContactStats(messages=1, days=1, age=0)
    assert await stats(senders, b"c" * 16) is None


async def test_the_salt_is_one_secret_of_the_deployment(senders: SenderStore) -> None:
    salt = await senders.salt(ALL)
    assert len(salt) >= 16
    assert await senders.salt(ALL) == salt


async def test_a_scope_neither_reads_nor_changes_another_tenant(senders: SenderStore) -> None:
    other = Scope.of(uuid4())
    await senders.add(other, [count(BOB)])
    await senders.add(ALL, [count(ADA)])
    await senders.subtract(other, TENANT, [ADA])
    assert await senders.remove(other, TENANT, [ADA]) == []
    await senders.restore(other, TENANT, [ContactRecord(ADA, 5, 5, today(), today())])
    assert await senders.delete_unseen(other, today() + timedelta(days=1)) == 0
    assert await senders.stats(other, [(TENANT, ADA)]) == {}
    assert await stats(senders) == ContactStats(1, 1, 0)
    assert await stats(senders, BOB) is None


async def test_subtracting_stops_at_zero(senders: SenderStore) -> None:
    await senders.add(ALL, [count(ADA, messages=2), count(BOB)])
    for _ in range(3):
        await senders.subtract(ALL, TENANT, [ADA])
    assert await stats(senders) == ContactStats(0, 1, 0)
    assert await stats(senders, BOB) == ContactStats(1, 1, 0)


async def test_removed_contacts_are_restored_beside_newer_counts(senders: SenderStore) -> None:
    await senders.add(ALL, [count(ADA, age=10, messages=6)])
    removed = await senders.remove(ALL, TENANT, [ADA, BOB])
    first = today() - timedelta(days=10)
    assert removed == [ContactRecord(ADA, 6, 1, first, first)]
    assert await stats(senders) is None
    await senders.add(ALL, [count(ADA)])
    await senders.restore(ALL, TENANT, removed)
    assert await stats(senders) == ContactStats(7, 2, 10)


async def test_contacts_not_seen_since_a_day_are_deleted(senders: SenderStore) -> None:
    await senders.add(ALL, [count(ADA, age=5), count(BOB, age=4)])
    assert await senders.delete_unseen(ALL, today() - timedelta(days=4)) == 1
    assert await stats(senders) is None
    assert await stats(senders, BOB) is not None
