"""`--replay`: judges scanned messages in the order of time, mailbox by mailbox, with the memory of a deployment.

The messages of each mailbox are spread over thirty days in the order of their Date fields; those with equal dates are
in an arbitrary order that stays the same. Only `recall` and `remember` know the memory of a deployment.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence, Report, Status
from mailwarden.policy.rules import Policy
from mailwarden.senders import domain_memory
from mailwarden.senders.lookup import (
    ANALYZER,
    KnownSender,
    findings_of,
    relation_in,
    relations_to_look_up,
    relations_to_store,
)
from mailwarden.senders.model import ContactStats, DomainStats
from mailwarden.senders.relations import GOOD, Relation
from mailwarden.senders.threads import message_to_store, messages_to_look_up
from workshop.evaluate.records import Scanned
from workshop.evaluate.shipped import attacks_of, counted, ham_of, held, suspicious
from workshop.evaluate.trial import Judged, try_all

DAYS = 30
REPLAYED_TENANTS = 4  # over which a second run distributes each mailbox, for the memory of the deployment
RIPE_DAY = 14  # from here on a deployment knows the usual senders


class Seen(Struct):
    """The good messages of one contact."""

    messages: int = 0
    first: int = 0
    days: set[int] = set()


class Memory:
    """The contacts of one tenant until a day."""

    def __init__(self) -> None:
        self._contacts: defaultdict[tuple[str, str], Seen] = defaultdict(Seen)

    def add(self, record: Scanned, day: int) -> None:
        sender = _sender(record)
        if not sender:
            return
        contacts = [("", ""), *((sender, recipient) for recipient in ("", *_recipients(record)))]
        texts = (*relations_to_store(_relation(record)), message_to_store(record.summary) if record.summary else "")
        relations = (("", text) for text in texts if text)
        for contact in (*contacts, *(each for each in relations if day not in self._contacts[each].days)):
            seen = self._contacts[contact]
            seen.first = seen.first if seen.messages else day
            seen.messages += 1
            seen.days.add(day)

    def stats(self, sender: str, recipient: str, day: int) -> ContactStats:
        seen = self._contacts.get((sender, recipient))
        return ContactStats(seen.messages, len(seen.days), day - seen.first) if seen else ContactStats()


class SeenDomain(Struct):
    """The tenants that had good and bad mail of a domain."""

    first: int
    days: set[int] = set()
    good: set[UUID] = set()
    bad: set[UUID] = set()


class DomainMemory:
    """The domains of the whole deployment until a day."""

    def __init__(self) -> None:
        self._domains: dict[str, SeenDomain] = {}

    def add(self, judged: Judged, tenant: UUID, day: int) -> None:
        record = judged.scanned
        sighting = domain_memory.sighting_of(tenant, _relation(record), record.evidence, judged.judgement)
        if sighting:
            seen = self._domains.setdefault(sighting.domain, SeenDomain(day))
            seen.days.add(day)
            (seen.good if sighting.good else seen.bad).add(tenant)

    def stats(self, domain: str, day: int) -> DomainStats:
        seen = self._domains.get(domain)
        return DomainStats(len(seen.good), len(seen.bad), len(seen.days), day - seen.first) if seen else DomainStats()


def recall(record: Scanned, memory: Memory, day: int, domains: DomainMemory | None = None) -> tuple[Report, ...]:
    """Return the reports of everything that is remembered about the sender of a message."""
    sender, recipients = _sender(record), _recipients(record)
    if not sender or not recipients or record.evidence.has(AMBIGUOUS_SENDER):
        return ()
    relation = _relation(record)
    seen = {
        text: memory.stats("", text, day) for text in (*relations_to_look_up(relation), *messages_to_look_up(relation))
    }
    known = KnownSender(
        tenant=memory.stats("", "", day),
        sender=memory.stats(sender, "", day),
        pair=max(memory.stats(sender, each, day) for each in recipients),
        replies=max(memory.stats(each, sender, day) for each in recipients),
        relations={text: stats for text, stats in seen.items() if stats.messages},
    )
    found = tuple(findings_of(known, sender, relation))
    if domains and (domain := domain_memory.domain_to_look_up(relation, record.evidence)):
        found += tuple(domain_memory.findings_of(domain, domains.stats(domain, day)))
    return (Report(ANALYZER, required=False, status=Status.FINISHED, milliseconds=0.0, findings=found),)


def remember(judged: Judged, memory: Memory, day: int) -> None:
    """Remember a judged message as guard does: only good ones count."""
    if judged.judgement.verdict in GOOD and not judged.judgement.incomplete:
        memory.add(judged.scanned, day)


class Replayed(Struct, frozen=True):
    """A judged message, and the day of its delivery."""

    judged: Judged
    day: int


def replay(records: Sequence[Scanned], policy: Policy, tenants: int = 1) -> list[Replayed]:
    """Judge the messages of all mailboxes in their order; a tenant is the domain of its recipients.

    The corpora have one mailbox each. With several `tenants` its messages are distributed over so many, which share
    nothing but the memory of domains.
    """
    done: list[Replayed] = []
    domains, memories = DomainMemory(), defaultdict[UUID, Memory](Memory)
    for record, day, tenant in _in_order(records, tenants):
        reports = recall(record, memories[tenant], day, domains)
        replaced = {report.analyzer for report in reports} | {ANALYZER}
        others = tuple(report for report in record.evidence.reports if report.analyzer not in replaced)
        (judged,) = try_all([replace(record, evidence=Evidence((*others, *reports)))], policy)
        remember(judged, memories[tenant], day)
        domains.add(judged, tenant, day)
        done.append(Replayed(judged, day))
    return done


def _in_order(records: Sequence[Scanned], tenants: int) -> list[tuple[Scanned, int, UUID]]:
    """Return the messages of all tenants, day by day."""
    found = []
    for number, mailboxes in enumerate(_by_tenant(records)):
        for record, day in _in_time(mailboxes):
            found.append((record, day, UUID(int=number * tenants + _arbitrary(record)[0] % tenants)))
    return sorted(found, key=lambda each: each[1])


def replay_tables(without: Sequence[Judged], replayed: Sequence[Replayed], tenants: int = 1) -> Iterator[str]:
    """Yield the figures without memory and with it, over all days and when the deployment knows its senders."""
    shared = f", each mailbox distributed over {tenants} tenants" if tenants > 1 else ""
    yield f"\nReplay: {DAYS} days in the order of time, with the memory of a deployment{shared}"
    yield f"{'':40}{'messages':>9}{'ham held':>10}{'suspicious':>12}{'attacks held':>14}"
    late = {each.judged.sample.path for each in replayed if each.day >= RIPE_DAY}
    parts: tuple[tuple[str, Iterable[Judged]], ...] = (
        ("all days, without memory", without),
        ("all days, with memory", (each.judged for each in replayed)),
        (f"from day {RIPE_DAY}, without memory", (one for one in without if one.sample.path in late)),
        (f"from day {RIPE_DAY}, with memory", (each.judged for each in replayed if each.day >= RIPE_DAY)),
    )
    here = sum(each.judged.scanned.evidence.has("domains.known-to-deployment") for each in replayed)
    for name, judged in parts:
        some = counted(judged)
        ham, attacks = ham_of(some), attacks_of(some)
        cells = f"{held(ham).percent:>10}{suspicious(ham).percent:>12}{held(attacks).percent:>14}"
        yield f"{name:40}{len(some):>9}{cells}"
    yield f"messages of a domain that the deployment knows (domains.known-to-deployment): {here}"


def _by_tenant(records: Iterable[Scanned]) -> list[list[Scanned]]:
    tenants: dict[tuple[str, str], list[Scanned]] = defaultdict(list)
    for record in records:
        recipients = _recipients(record)
        tenants[record.sample.corpus, domain_of(recipients[0]) if recipients else record.sample.subset].append(record)
    return list(tenants.values())


def _in_time(records: Sequence[Scanned]) -> Iterator[tuple[Scanned, int]]:
    """Yield the messages in the order of their dates, each with its day."""
    mailboxes: dict[str, list[Scanned]] = defaultdict(list)
    for record in records:
        mailboxes[(_recipients(record) or (record.sample.subset,))[0]].append(record)
    dated = []
    for mailbox in mailboxes.values():
        ordered = sorted(mailbox, key=lambda record: (record.sent, _arbitrary(record)))
        dated += [(rank * DAYS / len(ordered), record) for rank, record in enumerate(ordered)]
    for moment, record in sorted(dated, key=lambda each: (each[0], _arbitrary(each[1]))):
        yield record, int(moment)


def _arbitrary(record: Scanned) -> bytes:
    return hashlib.sha256(record.sample.path.encode()).digest()


def _sender(record: Scanned) -> str:
    return record.summary.from_address.lower() if record.summary else ""


def _relation(record: Scanned) -> Relation:
    return relation_in(record.summary, _recipients(record), record.evidence) if record.summary else Relation()


def _recipients(record: Scanned) -> tuple[str, ...]:
    return tuple(each.lower() for each in record.envelope.recipients) if record.envelope else ()
