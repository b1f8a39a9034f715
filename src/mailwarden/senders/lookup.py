"""Sender history: counts the good messages of each sender to a tenant, and is looked up before a message is judged.

It is updated after the response. A lookup has a short deadline, results are cached, and lookups pause while the store
does not answer: an unknown history is never evidence. A known one yields `first-contact` or `known-sender`, and the
findings of senders/relations.py, threads.py and bank_details.py, which are read and written by the same statements.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain, islice
from uuid import UUID

from msgspec import Struct

from mailwarden.crypto.mac import keyed_digest
from mailwarden.errors import MailwardenError
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence, Fact, Finding, Report, Status
from mailwarden.model.place import area
from mailwarden.model.record import FinishedRequest, MessageSummary
from mailwarden.model.scope import Scope
from mailwarden.senders import bank_details, domain_memory, relations, threads
from mailwarden.senders.model import (
    ContactCount,
    ContactStats,
    Counting,
    DomainCount,
    DomainStats,
    SenderCounts,
    SenderStore,
)
from mailwarden.senders.relations import GOOD, Relation, relation_of
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import end_tasks

DEADLINE = 0.03  # seconds
BATCH = 25  # lookups in one statement, few enough for one index lookup each
SLOW_PAUSE = 1.0  # seconds without lookups after one missed its deadline
ERROR_PAUSE = 5.0  # seconds without lookups after the store failed
CACHE_SECONDS = 60.0
MAX_CACHED = 20_000
MAX_RECIPIENTS = 20  # of one message
MAX_STORED_TODAY = 200_000  # relations that a guard remembers to have stored; more are stored again
MAX_MESSAGES_TODAY = 500_000  # Message-IDs that a guard stores in a day; later ones are not remembered
MAX_DOMAINS_TODAY = 200_000  # sightings of domains that a guard stores in a day; later ones are not remembered
FREE_MAILBOX = "sender.free-mail"
ANALYZER = "relationship"
# A younger or smaller history proves nothing about a sender.
RIPE_DAYS, RIPE_MESSAGES = 7, 200
KNOWN_DAYS, KNOWN_MESSAGES = 3, 5
KNOWN_AGE = 14  # days since the first message: an address made for an attack is seldom kept so long

_ALL = Scope.deployment()
_NO_RELATION, _NO_EVIDENCE = Relation(), Evidence(())
_log = get_logger("history.senders")

_Related = tuple[FinishedRequest, Relation]


class KnownSender(Struct, frozen=True):
    """The stats of a sender: with the tenant, with the recipients, and of the recipients' messages to the sender."""

    tenant: ContactStats = ContactStats()  # of all senders together
    sender: ContactStats = ContactStats()
    pair: ContactStats = ContactStats()
    replies: ContactStats = ContactStats()
    relations: Mapping[str, ContactStats] = {}  # those that were seen
    domain: DomainStats = DomainStats()  # with the whole deployment


class _Lookup(Struct, frozen=True):
    tenant: UUID
    sender: str
    recipients: tuple[str, ...]
    relation: Relation
    domain: str = ""  # for the memory of the deployment


class SenderHistory:
    """Runs the waiting lookups in batches, one statement at a time, so that a burst uses one connection."""

    def __init__(self, store: SenderStore) -> None:
        self._store = store
        self._salt = b""
        self._cached: OrderedDict[_Lookup, tuple[float, KnownSender]] = OrderedDict()
        self._waiting: dict[_Lookup, asyncio.Future[KnownSender | None]] = {}
        self._running: asyncio.Task[None] | None = None
        self._paused_until = 0.0
        self._stored_today: tuple[date, set[bytes]] = (date.min, set())
        self._messages_today: tuple[date, int] = (date.min, 0)
        self._domains_today: tuple[date, set[bytes]] = (date.min, set())

    async def lookup(
        self, tenant: UUID, sender: str, recipients: Sequence[str], relation: Relation = _NO_RELATION, domain: str = ""
    ) -> KnownSender | None:
        """Return the stats of the sender, or None if they cannot be read in time."""
        lookup, now = _Lookup(tenant, sender.lower(), _normalized(recipients), relation, domain), time.monotonic()
        if not lookup.sender or not lookup.recipients:
            return None
        cached = self._cached.get(lookup)
        if cached and now - cached[0] < CACHE_SECONDS:
            return cached[1]
        if now < self._paused_until:
            return None
        if lookup not in self._waiting:
            self._waiting[lookup] = asyncio.get_running_loop().create_future()
        result = self._waiting[lookup]
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run(), name="sender history")
        # A scan waits no longer than this; the statement continues, and its result is cached.
        done, _ = await asyncio.wait((result,), timeout=DEADLINE)
        if not done:
            self._paused_until = time.monotonic() + SLOW_PAUSE
            return None
        return result.result()

    async def counting(self) -> Counting:
        """Return the function that counts the good messages among newly stored requests."""
        return partial(self._count, await self._read_salt())

    def stored(self, counts: SenderCounts) -> None:
        """Remember what is stored, so that it is not stored again today."""
        if self._stored_today[0] != counts.day or len(self._stored_today[1]) > MAX_STORED_TODAY:
            self._stored_today = counts.day, set()
        self._stored_today[1].update(counts.relations)
        before = self._messages_today[1] if self._messages_today[0] == counts.day else 0
        self._messages_today = counts.day, before + len(counts.messages)
        if self._domains_today[0] != counts.day:
            self._domains_today = counts.day, set()
        self._domains_today[1].update(counts.domain_keys)

    async def record(self, requests: Sequence[FinishedRequest]) -> None:
        """Count the good messages among requests outside of a transaction of history."""
        counts = (await self.counting())(requests)
        await self._store.add(_ALL, counts.contacts)
        await self._store.add_messages(_ALL, counts.messages, counts.day)
        await self._store.add_domains(_ALL, counts.domains)
        self.stored(counts)

    def _count(self, salt: bytes, requests: Sequence[FinishedRequest]) -> SenderCounts:
        day = datetime.now(UTC).date()
        related = [(request, _relation_of(request.envelope, request.summary, request.evidence)) for request in requests]
        proving = [(each, relation) for each, relation in related if _is_good(each)]
        good = [each for each, _ in proving]
        seen = self._relations_not_stored(proving, salt, day)
        domains = self._domains_not_stored(related, salt, day)
        return SenderCounts(
            day=day,
            contacts=(*_counts_of(good, salt, day), *seen),
            messages=tuple(self._messages_of(good, salt, day)),
            domains=tuple(domains.values()),
            domain_keys=tuple(domains),
            relations=tuple(each.contact for each in seen),
        )

    async def stop(self) -> None:
        await end_tasks(self._running)
        self._running = None

    async def _run(self) -> None:
        while self._waiting:
            batch = dict(islice(self._waiting.items(), BATCH))
            found: dict[_Lookup, KnownSender] = {}
            try:
                found = await self._read(list(batch))
            except MailwardenError as error:
                self._paused_until = time.monotonic() + ERROR_PAUSE
                _log.warning("sender_history_lookup_failed", reason=error.message)
            except Exception:
                self._paused_until = time.monotonic() + ERROR_PAUSE
                _log.exception("sender_history_lookup_failed")
            for lookup, result in batch.items():
                del self._waiting[lookup]
                result.set_result(found.get(lookup))
            self._cache(found)

    async def _read(self, lookups: list[_Lookup]) -> dict[_Lookup, KnownSender]:
        salt = await self._read_salt()
        contacts = {lookup: _contacts_of(lookup, salt) for lookup in lookups}
        texts = {lookup: _digests_of(lookup, salt, relations_to_look_up) for lookup in lookups}
        messages = {lookup: _digests_of(lookup, salt, threads.messages_to_look_up) for lookup in lookups}
        domains = {each: domain_memory.domain_digest(salt, each.domain) for each in lookups if each.domain}
        answer = await self._store.lookup(
            _ALL,
            [(each.tenant, one) for each in lookups for one in (*contacts[each], *texts[each])],
            [(each.tenant, one) for each in lookups for one in messages[each]],
            sorted(set(domains.values())),
        )
        stats = answer.contacts
        found = {}
        for lookup, (tenant, sender, *rest) in contacts.items():
            half = len(rest) // 2
            of_recipients = [stats.get(contact, ContactStats()) for contact in rest]
            found[lookup] = KnownSender(
                tenant=stats.get(tenant, ContactStats()),
                sender=stats.get(sender, ContactStats()),
                pair=max(of_recipients[:half]),
                replies=max(of_recipients[half:]),
                relations={
                    text: stats[digest]
                    for digest, text in chain(texts[lookup].items(), messages[lookup].items())
                    if digest in stats
                },
                domain=answer.domains.get(domains.get(lookup, b""), DomainStats()),
            )
        return found

    def _relations_not_stored(self, good: Sequence[_Related], salt: bytes, day: date) -> list[ContactCount]:
        """Return the relations that this guard has not stored today: they count days, not messages."""
        stored = self._stored_today[1] if self._stored_today[0] == day else frozenset()
        seen = {(request.tenant, text) for request, relation in good for text in relations_to_store(relation)}
        rows = (ContactCount(tenant, contact_digest(salt, tenant, "", text), day, 1) for tenant, text in seen)
        return [row for row in rows if row.contact not in stored]

    def _domains_not_stored(self, related: Sequence[_Related], salt: bytes, day: date) -> dict[bytes, DomainCount]:
        """Return each domain of each tenant that is not stored today, good and bad apart, as many as a day may have."""
        stored = self._domains_today[1] if self._domains_today[0] == day else frozenset()
        counts = dict[bytes, DomainCount]()
        for request, relation in related:
            seen = domain_memory.sighting_of(request.tenant, relation, request.evidence, request.judgement)
            if seen and len(stored) + len(counts) < MAX_DOMAINS_TODAY:
                key = contact_digest(salt, seen.tenant, "", f"here\0{seen.domain}\0{seen.good}")
                counts[key] = domain_memory.count_of(seen, salt, day)
        return {key: count for key, count in counts.items() if key not in stored}

    def _messages_of(self, good: Sequence[FinishedRequest], salt: bytes, day: date) -> list[tuple[UUID, bytes]]:
        """Return the messages to remember, as many as a day may have."""
        count = self._messages_today[1] if self._messages_today[0] == day else 0
        texts = ((request.tenant, threads.message_to_store(request.summary)) for request in good)
        kept = [(tenant, contact_digest(salt, tenant, "", text)) for tenant, text in texts if text]
        return kept[: max(0, MAX_MESSAGES_TODAY - count)]

    def _cache(self, found: dict[_Lookup, KnownSender]) -> None:
        now = time.monotonic()
        for lookup, known in found.items():
            self._cached[lookup] = (now, known)
            self._cached.move_to_end(lookup)
        while len(self._cached) > MAX_CACHED:
            self._cached.popitem(last=False)

    async def _read_salt(self) -> bytes:
        self._salt = self._salt or await self._store.salt(_ALL)
        return self._salt


def contact_digest(salt: bytes, tenant: UUID, sender: str, recipient: str) -> bytes:
    """Return the digest of a sender and a recipient; in another tenant the same two have another digest.

    Without a recipient it stands for the sender to the whole tenant; without both, for all mail of the tenant. Without
    a sender, the recipient's place has a relation.
    """
    text = f"{sender}\0{recipient}".encode("utf-8", "replace")
    return keyed_digest(salt, tenant.bytes + text)[:16]


def sender_contacts(request: FinishedRequest, salt: bytes) -> list[bytes]:
    """Return the digests of a message's sender: alone, and with each recipient. Empty without a sender."""
    sender = request.summary.from_address.lower()
    if not sender:
        return []
    recipients = _normalized(request.envelope.recipients)
    return [contact_digest(salt, request.tenant, sender, each) for each in ("", *recipients)]


def _contacts_of(lookup: _Lookup, salt: bytes) -> list[bytes]:
    """Return the tenant, the sender, the sender with each recipient, and each recipient with the sender."""
    tenant, sender, recipients = lookup.tenant, lookup.sender, lookup.recipients
    return [
        contact_digest(salt, tenant, "", ""),
        contact_digest(salt, tenant, sender, ""),
        *(contact_digest(salt, tenant, sender, recipient) for recipient in recipients),
        *(contact_digest(salt, tenant, recipient, sender) for recipient in recipients),
    ]


def account_contacts(request: FinishedRequest, salt: bytes) -> list[bytes]:
    """Return the digests of a message's bank accounts with its sender."""
    relation = _relation_of(request.envelope, request.summary, request.evidence)
    return [contact_digest(salt, request.tenant, "", text) for text in bank_details.accounts_of(relation)]


def relations_to_store(relation: Relation) -> Iterator[str]:
    """Yield the relations that a good message proves."""
    yield from relations.relations_to_store(relation)
    yield from threads.relations_to_store(relation)
    yield from bank_details.relations_to_store(relation)


def relations_to_look_up(relation: Relation) -> Iterator[str]:
    """Yield the relations that a message is compared with, without the messages that it answers."""
    yield from relations.relations_to_look_up(relation)
    yield from threads.relations_to_look_up(relation)
    yield from bank_details.relations_to_look_up(relation)


def relation_in(summary: MessageSummary, recipients: Sequence[str], evidence: Evidence) -> Relation:
    """Return the relation of a message with this evidence."""
    found = (
        finding.facts.get("account", "") for _, finding in evidence.findings if finding.name == bank_details.ACCOUNT
    )
    return relation_of(
        summary,
        recipients,
        free_mailbox=evidence.has(FREE_MAILBOX),
        answers=evidence.has(threads.REPLY),
        accounts=tuple(dict.fromkeys(map(str, filter(None, found)))),
    )


def _digests_of(lookup: _Lookup, salt: bytes, texts_of: Callable[[Relation], Iterable[str]]) -> dict[bytes, str]:
    texts = texts_of(lookup.relation) if lookup.relation.address else ()
    return {contact_digest(salt, lookup.tenant, "", text): text for text in texts}


def _relation_of(envelope: Envelope, summary: MessageSummary, evidence: Evidence) -> Relation:
    return relation_in(summary, _normalized(envelope.recipients), evidence)


def _is_good(request: FinishedRequest) -> bool:
    return request.judgement.verdict in GOOD and not request.judgement.incomplete


def _counts_of(good: Sequence[FinishedRequest], salt: bytes, day: date) -> list[ContactCount]:
    counts: Counter[tuple[UUID, bytes]] = Counter()
    for request in good:
        counts.update((request.tenant, contact) for contact in _counted_contacts(request, salt))
    return [ContactCount(tenant, contact, day, messages) for (tenant, contact), messages in counts.items()]


def _counted_contacts(request: FinishedRequest, salt: bytes) -> Iterator[bytes]:
    contacts = sender_contacts(request, salt)
    if contacts:
        yield contact_digest(salt, request.tenant, "", "")
        yield from contacts


def _normalized(recipients: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({recipient.lower() for recipient in recipients})[:MAX_RECIPIENTS])


class SenderHistoryReporter:
    def __init__(self, senders: SenderHistory) -> None:
        self._senders = senders

    async def report(
        self, tenant: UUID, envelope: Envelope, summary: MessageSummary, evidence: Evidence = _NO_EVIDENCE
    ) -> Report:
        """Return the report; it is skipped if the sender is ambiguous or the lookup fails, and never required."""
        started = time.perf_counter()
        relation = _relation_of(envelope, summary, evidence)
        domain = domain_memory.domain_to_look_up(relation, evidence)
        known = None
        if not evidence.has(AMBIGUOUS_SENDER):
            known = await self._senders.lookup(tenant, summary.from_address, envelope.recipients, relation, domain)
        took = round((time.perf_counter() - started) * 1000, 3)
        if known is None:
            return Report(ANALYZER, required=False, status=Status.SKIPPED, milliseconds=took)
        found = (
            *findings_of(known, summary.from_address, relation),
            *domain_memory.findings_of(domain, known.domain),
        )
        return Report(ANALYZER, required=False, status=Status.FINISHED, milliseconds=took, findings=found)


def findings_of(known: KnownSender, sender: str, relation: Relation = _NO_RELATION) -> Iterator[Finding]:
    new = known.sender.messages == 0 and known.replies.messages == 0
    ripe = known.tenant.days >= RIPE_DAYS and known.tenant.messages >= RIPE_MESSAGES
    regular = not new and _is_known(known.sender)
    if new and ripe:
        yield Finding("relationship.first-contact", area("From"), {"address": sender[:200]})
    elif regular:
        facts: dict[str, Fact] = {"address": sender[:200], "count": known.sender.messages}
        yield Finding("relationship.known-sender", area("From"), facts)
        if not known.pair.messages and not known.replies.messages:
            yield Finding("relationship.new-to-recipient", area("From"), {"address": sender[:200]})
    seen, stranger = known.relations, new and ripe
    found = tuple(relations.findings_of(relation, seen, new_sender=stranger, known_sender=regular))
    yield from found
    imitates = any(each.name == relations.IMITATION for each in found)
    yield from threads.findings_of(relation, seen, new_sender=stranger)
    yield from bank_details.findings_of(relation, seen, imitates=imitates)


def _is_known(sender: ContactStats) -> bool:
    return sender.days >= KNOWN_DAYS and sender.messages >= KNOWN_MESSAGES and sender.age >= KNOWN_AGE
