"""Answers to conversations that a tenant never had.

Guard remembers the Message-IDs of good mail under keyed digests. A message that presents itself as an answer, of a
sender that is new to the tenant, is compared with them. Mail that people of the tenant send is not always scanned: then
only answers that refer to the sender's own messages, or to none, can be judged.

Security: works on references that senders choose; the references of one message are bounded by its summary.
"""

from collections.abc import Iterator, Mapping

from mailwarden.message.addresses import organisation_of
from mailwarden.model.evidence import Finding
from mailwarden.model.place import area
from mailwarden.model.record import MessageSummary
from mailwarden.senders.model import ContactStats
from mailwarden.senders.relations import FACT, KNOWN_AGE, MAX_OWN, RIPE_DAYS, Relation

REPLY = "thread.reply"
MEMORY = "threads"  # any message since Message-IDs are remembered
_NOTHING = ContactStats()


def message_to_store(summary: MessageSummary) -> str:
    """Return the text under which a message is remembered; "" if it has no Message-ID."""
    return message(summary.message_id) if summary.message_id.strip("<> \t") else ""


def messages_to_look_up(relation: Relation) -> Iterator[str]:
    if relation.answers:
        yield from map(message, relation.references)


def relations_to_store(relation: Relation) -> Iterator[str]:
    yield MEMORY
    if relation.domain and set(relation.own) - {relation.domain}:
        yield _outward(relation.domain)


def relations_to_look_up(relation: Relation) -> Iterator[str]:
    if relation.answers:
        yield MEMORY
        yield from map(_outward, relation.own[:MAX_OWN])


def findings_of(relation: Relation, seen: Mapping[str, ContactStats], *, new_sender: bool) -> Iterator[Finding]:
    """Yield whether a new sender answers a conversation that the tenant never had."""
    if not relation.answers or not new_sender or relation.colleague or not _is_ripe(seen.get(MEMORY, _NOTHING)):
        return
    if any(message(each) in seen for each in relation.references):
        return
    sent = any(_is_ripe(seen.get(_outward(each), _NOTHING)) for each in relation.own[:MAX_OWN])
    if sent or all(_is_written_by(each, relation.domain) for each in relation.references):
        reference = relation.references[-1] if relation.references else ""
        facts = {"address": relation.address[:FACT], "reference": reference[:FACT]}
        yield Finding("relationship.unknown-thread", area("Subject"), {**facts})


def message(reference: str) -> str:
    """Return the text of one message, from its Message-ID."""
    return f"thread\0{reference.strip().strip('<>').strip()}"


def _is_ripe(memory: ContactStats) -> bool:
    return memory.days >= RIPE_DAYS and memory.age >= KNOWN_AGE


def _is_written_by(reference: str, domain: str) -> bool:
    """Return whether the Message-ID has the sender's domain; free mailboxes have the domain of their provider."""
    return bool(domain) and organisation_of(reference.rpartition("@")[2].strip("> ").lower()) == domain


def _outward(domain: str) -> str:
    """Return the text for mail of a domain to other domains: the tenant's own has it if outbound mail is scanned."""
    return f"outward\0{domain}"
