"""Sender history with a real PostgreSQL: counted from good messages, looked up under a deadline, deleted."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.history.maintenance import SENDER_DAYS, THREAD_DAYS, Retention
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest, MessageSummary
from mailwarden.model.scope import Scope
from mailwarden.senders import lookup
from mailwarden.senders.lookup import (
    FREE_MAILBOX,
    KNOWN_AGE,
    KnownSender,
    SenderHistory,
    SenderHistoryReporter,
    contact_digest,
    relation_in,
    relations_to_store,
    sender_contacts,
)
from mailwarden.senders.model import ContactCount, ContactRecord, ContactStats, DomainCount, SenderStore
from mailwarden.senders.relations import MEMORY
from tests.samples.finished import finished_request
from tests.unit.journal.journals import writing
from tests.waiting import eventually

ALL = Scope.deployment()
TENANT = UUID("6f1d2c3b-0000-4000-8000-000000000001")
ADA, BOB = "ada@north.example", "bob@south.example"


def today() -> date:
    """Return the date when it is needed: a run may begin before midnight and end after it."""
    return datetime.now(UTC).date()


@pytest.fixture
async def history(database_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[HistoryStore]:
    monkeypatch.setattr(lookup, "DEADLINE", 20.0)  # these tests are not about the speed of this machine
    database = Database(database_url)
    yield open_history(database)
    await database.close()


@pytest.fixture
def store(history: HistoryStore) -> SenderStore:
    return history.senders


def good(sender: str = ADA, recipient: str = BOB, verdict: Verdict = Verdict.CLEAN) -> FinishedRequest:
    request = finished_request()
    return replace(
        request,
        tenant=TENANT,
        envelope=Envelope(sender, (recipient,)),
        summary=replace(request.summary, from_address=sender),
        judgement=replace(request.judgement, verdict=verdict, incomplete=False),
    )


async def count_messages(store: SenderStore, sender: str, messages: int, days: int) -> None:
    """Count messages of a sender, and enough of others for an established history."""
    salt = await store.salt(ALL)
    for age in range(days, 0, -1):
        day = today() - timedelta(days=age)
        whole = ContactCount(TENANT, contact_digest(salt, TENANT, "", ""), day, 100)
        alone = ContactCount(TENANT, contact_digest(salt, TENANT, sender, ""), day, messages)
        await store.add(ALL, [whole, alone])


async def names(store: SenderStore, sender: str) -> list[str]:
    envelope, summary = Envelope(sender, (BOB,)), MessageSummary(1, "", from_address=sender)
    report = await SenderHistoryReporter(SenderHistory(store)).report(TENANT, envelope, summary)
    assert report.status is Status.FINISHED
    assert not report.required
    return [finding.name for finding in report.findings]


async def test_only_good_messages_are_counted(store: SenderStore) -> None:
    sender_history = SenderHistory(store)
    await sender_history.record([good(), good(), good(verdict=Verdict.PHISHING), good(verdict=Verdict.SUSPICIOUS)])
    known = await sender_history.lookup(TENANT, ADA.upper(), [BOB])
    assert known is not None
    assert (known.sender, known.pair, known.replies) == (ContactStats(2, 1), ContactStats(2, 1), ContactStats())
    assert known.tenant.messages == 2


async def test_a_sender_that_a_recipient_wrote_to_is_no_first_contact(store: SenderStore) -> None:
    await count_messages(store, "other@north.example", 1, 8)
    await SenderHistory(store).record([good(sender=BOB, recipient=ADA)])
    assert await names(store, ADA) == []


async def test_a_young_history_reports_no_first_contact(store: SenderStore) -> None:
    await SenderHistory(store).record([good()])
    assert await names(store, "new@north.example") == []


async def test_an_established_history_reports_first_contacts_and_known_senders(store: SenderStore) -> None:
    await count_messages(store, ADA, 3, KNOWN_AGE)
    assert await names(store, "new@north.example") == ["relationship.first-contact"]
    assert await names(store, ADA) == ["relationship.known-sender", "relationship.new-to-recipient"]


async def test_a_sender_of_a_few_days_is_not_known(store: SenderStore) -> None:
    """An address created for an attack is not known after three harmless messages."""
    await count_messages(store, ADA, 100, KNOWN_AGE - 2)
    assert await names(store, ADA) == []


async def remember(store: SenderStore, request: FinishedRequest, days: int = KNOWN_AGE) -> None:
    """Record a good message, then backdate everything of its tenant: seen on so many days, the first that long ago."""
    await SenderHistory(store).record([request])
    salt = await store.salt(ALL)
    relation = relation_in(request.summary, request.envelope.recipients, request.evidence)
    contacts = [contact_digest(salt, request.tenant, "", text) for text in relations_to_store(relation)]
    contacts += [contact_digest(salt, request.tenant, "", ""), *sender_contacts(request, salt)]
    first = today() - timedelta(days=days)
    past = [ContactRecord(contact, 200, days, first, first) for contact in contacts]
    await store.restore(ALL, request.tenant, past)


def written(sender: str, name: str, tenant: UUID = TENANT) -> FinishedRequest:
    request = good(sender, "dana@acme-works.example")
    return replace(request, tenant=tenant, summary=replace(request.summary, from_name=name, reply_to=""))


async def relations_of(store: SenderStore, request: FinishedRequest, free: str = "") -> set[str]:
    evidence = Evidence((Report("sender", True, Status.FINISHED, 1.0, (Finding(free),)),)) if free else Evidence(())
    reporter = SenderHistoryReporter(SenderHistory(store))
    report = await reporter.report(request.tenant, request.envelope, request.summary, evidence)
    assert report.status is Status.FINISHED
    return {finding.name.removeprefix("relationship.") for finding in report.findings}


async def test_a_lookalike_of_a_stored_correspondent_is_reported(store: SenderStore) -> None:
    await remember(store, written("robin@northbridge.example", "Robin Weaver"))
    seen = await relations_of(store, written("robin@northbrldge.example", "Robin Weaver"))
    assert seen == {"first-contact", "first-seen-domain", "lookalike-domain", "correspondent-name", "impersonation"}
    assert await relations_of(store, written("robin@northbridge.example", "Robin Weaver")) == {
        "known-sender",
        "known-domain",
    }
    other = await relations_of(store, written("sales@northbridge.example", "Kim Field"))
    assert other == {"first-contact", "known-domain"}


async def test_the_name_of_a_stored_colleague_is_reported(store: SenderStore) -> None:
    await remember(store, written("robin@acme-works.example", "Robin Weaver"))
    stranger = written("robin.weaver@mailbox.example", "Weaver, Robin")
    assert await relations_of(store, stranger, FREE_MAILBOX) == {"first-contact", "colleague-name", "impersonation"}


async def test_relations_of_one_tenant_are_no_evidence_for_another(store: SenderStore) -> None:
    await remember(store, written("robin@northbridge.example", "Robin Weaver"))
    elsewhere = written("robin@northbrldge.example", "Robin Weaver", tenant=uuid4())
    assert await relations_of(store, elsewhere) == set()
    await remember(store, written("kim@otherfirm.example", "Kim Field", tenant=elsewhere.tenant))
    assert await relations_of(store, elsewhere) == {"first-contact", "first-seen-domain"}


async def test_a_history_from_before_relations_reports_no_new_domain(store: SenderStore) -> None:
    """After an upgrade the senders are known, and their domains and names are not."""
    await count_messages(store, "ada@northbridge.example", 100, KNOWN_AGE)
    assert await names(store, "new@stranger.example") == ["relationship.first-contact"]


def naming(account: str, tenant: UUID = TENANT, sender: str = "robin@northbridge.example") -> FinishedRequest:
    request = written(sender, "Robin Weaver", tenant)
    found = Finding("fraud.bank-account", facts={"account": account})
    return replace(request, evidence=Evidence((Report("fraud", True, Status.FINISHED, 1.0, (found,)),)))


async def findings_in(store: SenderStore, request: FinishedRequest) -> set[str]:
    reporter = SenderHistoryReporter(SenderHistory(store))
    report = await reporter.report(request.tenant, request.envelope, request.summary, request.evidence)
    return {finding.name.removeprefix("relationship.") for finding in report.findings}


async def test_another_account_of_a_correspondent_is_reported_to_its_tenant_only(store: SenderStore) -> None:
    await remember(store, naming("DE44500105175407324931"))
    assert "new-bank-account" in await findings_in(store, naming("NL91ABNA0417164300"))
    assert "new-bank-account" not in await findings_in(store, naming("DE44500105175407324931"))
    elsewhere = uuid4()
    await remember(store, written("robin@northbridge.example", "Robin Weaver", elsewhere))
    assert "new-bank-account" not in await findings_in(store, naming("NL91ABNA0417164300", elsewhere))
    imitator = naming("NL91ABNA0417164300", sender="robin@northbrldge.example")
    assert "impersonation-bank-account" in await findings_in(store, imitator)


async def test_an_answer_is_compared_with_the_messages_of_its_tenant(store: SenderStore) -> None:
    first = written("robin@northbridge.example", "Robin Weaver")
    await remember(store, replace(first, summary=replace(first.summary, message_id="<1@stranger.example>")))
    elsewhere = uuid4()
    await remember(store, written("robin@northbridge.example", "Robin Weaver", elsewhere))
    answers = Evidence((Report("thread", True, Status.FINISHED, 1.0, (Finding("thread.reply"),)),))

    def answer(reference: str, tenant: UUID) -> FinishedRequest:
        request = written("eve@stranger.example", "Eve Stone", tenant)
        return replace(request, summary=replace(request.summary, references=(reference,)), evidence=answers)

    assert "unknown-thread" not in await findings_in(store, answer("<1@stranger.example>", TENANT))
    assert "unknown-thread" in await findings_in(store, answer("<2@stranger.example>", TENANT))
    assert "unknown-thread" in await findings_in(store, answer("<1@stranger.example>", elsewhere))


async def test_messages_of_conversations_are_deleted_after_their_time(
    history: HistoryStore, store: SenderStore
) -> None:
    old, new = bytes(16), bytes(15) + b"1"
    await store.add_messages(ALL, [(TENANT, old)], today() - timedelta(days=THREAD_DAYS + 1))
    await store.add_messages(ALL, [(TENANT, new), (TENANT, old)], today())
    assert await store.stats(Scope.of(uuid4()), [], [(TENANT, new)]) == {}
    assert await Retention(history, 30).delete_threads() == 1
    assert list(await store.stats(ALL, [], [(TENANT, old), (TENANT, new)])) == [new]


PROVED = Evidence((Report("authentication", True, Status.FINISHED, 1.0, (Finding("authentication.aligned"),)),))


async def seen_by(store: SenderStore, url: str, *tenants: UUID, verdict: Verdict = Verdict.CLEAN) -> None:
    """Record a message of a shop to each tenant, and backdate the memory of the deployment."""
    for tenant in tenants:
        request = written("news@shop.example", "Shop", tenant)
        judged = replace(request.judgement, verdict=verdict)
        await SenderHistory(store).record([replace(request, evidence=PROVED, judgement=judged)] * 2)
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE domain_memory SET first_seen = current_date - 30, days = 9")
    await connection.close()


async def known_here(store: SenderStore, evidence: Evidence = PROVED, sender: str = "news@shop.example") -> bool:
    return "domains.known-to-deployment" in await findings_in(
        store, replace(written(sender, "Shop", uuid4()), evidence=evidence)
    )


async def test_several_tenants_make_a_domain_known_to_all(store: SenderStore, database_url: str) -> None:
    tenants = [UUID(int=number) for number in range(1, 5)]
    await seen_by(store, database_url, *tenants[:1] * 5)
    assert not await known_here(store)
    await seen_by(store, database_url, *tenants)
    assert await known_here(store)
    assert not await known_here(store, Evidence(()))
    assert not await known_here(store, sender="news@other.example")


async def test_one_tenant_cannot_take_a_domain_from_the_others(store: SenderStore, database_url: str) -> None:
    tenants = [UUID(int=number) for number in range(1, 5)]
    await seen_by(store, database_url, *tenants)
    await seen_by(store, database_url, *[UUID(int=99)] * 5, verdict=Verdict.PHISHING)
    assert await known_here(store)
    await seen_by(store, database_url, *(UUID(int=100 + number) for number in range(6)), verdict=Verdict.PHISHING)
    assert not await known_here(store)


async def test_the_memory_of_domains_names_no_domain_and_no_tenant(store: SenderStore, database_url: str) -> None:
    await seen_by(store, database_url, TENANT)
    connection = await asyncpg.connect(database_url)
    (row,) = await connection.fetch("SELECT * FROM domain_memory")
    await connection.close()
    assert set(dict(row)) == {"domain", "good", "bad", "days", "first_seen", "last_seen"}
    assert b"shop" not in row["domain"]
    assert (row["good"].bit_count(), row["bad"]) == (1, 0)
    assert (await store.lookup(Scope.of(TENANT), [], [], [row["domain"]])).domains == {}
    await store.add_domains(Scope.of(TENANT), [DomainCount(bytes(16), 1, 0, today())])
    assert (await store.lookup(ALL, [], [], [bytes(16)])).domains == {}


async def test_domains_that_were_not_seen_again_are_deleted(history: HistoryStore, store: SenderStore) -> None:
    for number, (groups, days) in enumerate(((1, 31), (3, 31), (3, 181), (1, 1))):
        day = today() - timedelta(days=days)
        await store.add_domains(ALL, [DomainCount(bytes([number] * 16), groups, 0, day)])
    assert await store.delete_domains(Scope.of(TENANT), today(), today()) == 0
    assert await Retention(history, 30).delete_domains() == 2
    left = (await store.lookup(ALL, [], [], [bytes([number] * 16) for number in range(4)])).domains
    assert {each[0] for each in left} == {1, 3}


async def test_a_guard_remembers_a_limited_number_of_messages_a_day(
    store: SenderStore, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    monkeypatch.setattr(lookup, "MAX_MESSAGES_TODAY", 2)
    sender_history = SenderHistory(store)
    for number in range(4):
        request = good()
        await sender_history.record(
            [replace(request, summary=replace(request.summary, message_id=f"<{number}@north.example>"))]
        )
    connection = await asyncpg.connect(database_url)
    assert await connection.fetchval("SELECT count(*) FROM thread_messages") == 2
    await connection.close()


async def test_a_guard_stores_a_relation_once_a_day(store: SenderStore) -> None:
    sender_history, request = SenderHistory(store), written("robin@northbridge.example", "Robin Weaver")
    for _ in range(3):
        await sender_history.record([request, request])
    contact = contact_digest(await store.salt(ALL), TENANT, "", MEMORY)
    assert (await store.stats(ALL, [(TENANT, contact)]))[contact] == ContactStats(1, 1, 0)


async def test_another_tenant_does_not_know_the_sender(store: SenderStore) -> None:
    await count_messages(store, ADA, 3, 8)
    known = await SenderHistory(store).lookup(uuid4(), ADA, [BOB])
    assert known is not None
    assert known.sender == known.tenant == ContactStats()
    assert (
        await store.stats(Scope.of(uuid4()), [(TENANT, contact_digest(await store.salt(ALL), TENANT, ADA, ""))]) == {}
    )


async def test_the_table_holds_no_addresses(store: SenderStore, database_url: str) -> None:
    await SenderHistory(store).record([good()])
    connection = await asyncpg.connect(database_url)
    rows = await connection.fetch("SELECT * FROM relationships")
    await connection.close()
    assert rows
    assert not any(b"ada" in row["pair"] or "ada" in str(dict(row)) for row in rows)
    assert not any(b"north" in row["pair"] or "north" in str(dict(row)) for row in rows)


async def test_contacts_not_seen_for_long_are_deleted(history: HistoryStore, store: SenderStore) -> None:
    salt = await store.salt(ALL)
    old, new = (ContactCount(TENANT, contact_digest(salt, TENANT, name, ""), day, 1) for name, day in (
        ("old", today() - timedelta(days=SENDER_DAYS + 1)), ("new", today())
    ))  # fmt: skip
    await store.add(ALL, [old, new])
    assert await Retention(history, 30).delete_senders() == 1
    assert list(await store.stats(ALL, [(TENANT, old.contact), (TENANT, new.contact)])) == [new.contact]


async def test_a_stored_batch_is_counted_and_a_repeated_one_is_not(
    history: HistoryStore, store: SenderStore, tmp_path: Path
) -> None:
    sender_history, requests = SenderHistory(store), [good(), good()]
    for attempt in ("first", "sent again"):
        async with writing(tmp_path / attempt, history, sender_history) as journal:
            await journal.append(requests)
    known = await SenderHistory(store).lookup(TENANT, ADA, [BOB])
    assert known is not None
    assert known.sender.messages == 2


async def test_a_burst_is_looked_up_in_batches_and_late_results_are_cached(
    store: SenderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup, "DEADLINE", 0.03)
    sender_history = SenderHistory(store)
    addresses = [f"{number}@north.example" for number in range(300)]

    async def lookup_all() -> list[KnownSender | None]:
        return await asyncio.gather(*(sender_history.lookup(TENANT, sender, [BOB]) for sender in addresses))

    async def all_found() -> bool:
        return all(await lookup_all())

    await eventually(all_found, 20.0, 0.1)
    await sender_history.stop()


async def test_without_the_database_lookups_return_none_at_once() -> None:
    database = Database("postgresql://nobody@127.0.0.1:9/none")
    sender_history = SenderHistory(open_history(database).senders)
    started = time.monotonic()
    for number in range(200):
        assert await sender_history.lookup(TENANT, f"{number}@north.example", [BOB]) is None
    assert time.monotonic() - started < 3.0  # a short wait for each of them would be six seconds
    await database.close()


async def test_rows_wait_while_the_server_refuses_the_salt(history: HistoryStore, database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("REVOKE SELECT ON relationship_salt FROM CURRENT_USER")
        try:
            with pytest.raises(StorageUnavailable, match="InsufficientPrivilege"):
                await SenderHistory(history.senders).counting()
        finally:
            await connection.execute("GRANT SELECT ON relationship_salt TO CURRENT_USER")
