"""Relations of a tenant: the domains, names and reply addresses of its correspondents, and what differs from them.

Conversations and bank accounts are relations too: senders/threads.py, senders/bank_details.py.

A relation is a text that only this module makes; senders/lookup.py stores it under a keyed digest with the days on
which it was seen in good mail. A lookup therefore answers "was this seen", and never lists what was seen: names and
domains are looked up in the forms that a similar one shares.

Security: works on names and domains that senders choose; the relations of one message are bounded.
"""

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from unicodedata import category

from msgspec import Struct

from mailwarden.message.addresses import organisation_of
from mailwarden.message.lookalikes import label_of, one_edit, skeleton
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import Fact, Finding
from mailwarden.model.outcome import Verdict
from mailwarden.model.place import area
from mailwarden.model.record import MessageSummary
from mailwarden.senders.model import ContactStats

# Seen on so many days, and for so long: a domain that was registered for an attack seldom waits.
KNOWN_DAYS, KNOWN_AGE = 3, 14
RIPE_DAYS = 7  # of recorded relations; a younger memory does not know the usual correspondents
MIN_ALIKE = 4  # letters of a label; shorter ones look alike by accident
MIN_EDITED = 6  # one letter is too much of a shorter label
MAX_EDITED = 24  # letters; more are compared by their skeleton only
MAX_NAME = 100
BUCKETS = 8  # groups that distinguish the domains of one name
FACT = 200  # characters
MAX_OWN = 3  # domains of recipients that are looked up
GOOD = frozenset({Verdict.CLEAN, Verdict.BULK})  # mail that proves a relation

MEMORY = "memory"  # any message of the tenant
IMITATION = "relationship.impersonation"
_WORD = re.compile(r"[^\W\d_]{2,}")
_NOTHING = ContactStats()
_WHOM = {
    "relationship.own-lookalike": "the recipient's own domain",
    "relationship.lookalike-domain": "the domain of a correspondent",
    "relationship.similar-domain": "the domain of a correspondent",
    "relationship.other-tld": "the domain of a correspondent",
    "relationship.colleague-name": "a colleague",
    "relationship.correspondent-name": "a correspondent",
}


class Relation(Struct, frozen=True):
    """The sender of a message, folded for comparison; empty fields take no part."""

    address: str = ""
    domain: str = ""  # the registered domain; empty for a free mailbox
    provider: str = ""  # the registered domain, also of a free mailbox
    name: str = ""
    reply: str = ""  # the address for answers, if it is not at the sender's domain
    own: tuple[str, ...] = ()  # the registered domains of the recipients
    answers: bool = False  # it presents itself as an answer
    references: tuple[str, ...] = ()  # the messages that it answers
    accounts: tuple[str, ...] = ()  # the bank accounts that it names

    @property
    def colleague(self) -> bool:
        return bool(self.domain) and self.domain in self.own


def relation_of(
    summary: MessageSummary,
    recipients: Sequence[str],
    *,
    free_mailbox: bool,
    answers: bool = False,
    accounts: Sequence[str] = (),
) -> Relation:
    """Return the relation of a message."""
    provider, reply = organisation_of(domain_of(summary.from_address)), summary.reply_to.lower()[:FACT]
    return Relation(
        address=summary.from_address.lower(),
        domain="" if free_mailbox else provider,
        provider=provider,
        name=_folded(summary.from_name),
        reply=reply if organisation_of(domain_of(reply)) not in ("", provider) else "",
        own=tuple(sorted({organisation_of(domain_of(recipient)) for recipient in recipients} - {""})),
        answers=answers,
        references=summary.references if answers else (),
        accounts=tuple(accounts),
    )


def relations_to_store(relation: Relation) -> Iterator[str]:
    """Yield the relations that a good message proves."""
    yield from _relations(relation)
    if relation.name and relation.provider:
        yield _bucket(relation.name, _bucket_of(relation.provider))
        if relation.colleague:
            yield _colleague(relation.name)


def relations_to_look_up(relation: Relation) -> Iterator[str]:
    """Yield the relations that `findings_of` compares a message with."""
    yield from _relations(relation)
    if relation.name and relation.provider:
        yield _colleague(relation.name)
        yield from (_bucket(relation.name, number) for number in range(BUCKETS))


def _relations(relation: Relation) -> Iterator[str]:
    """Yield the relations that are stored and looked up alike."""
    yield MEMORY
    if relation.domain:
        yield domain_relation(relation.domain)
        yield from _forms(label_of(relation.domain))
    if relation.name and relation.provider:
        yield _named(relation.name, relation.provider)
    if relation.reply:
        yield _answered(relation.address, relation.reply)


def findings_of(
    relation: Relation, seen: Mapping[str, ContactStats], *, new_sender: bool, known_sender: bool
) -> Iterator[Finding]:
    """Yield what the relations say about the sender; `new_sender` means that the tenant never heard of the address."""
    memory = seen.get(MEMORY, _NOTHING)
    domain = seen.get(domain_relation(relation.domain), _NOTHING)
    ripe = memory.days >= RIPE_DAYS and memory.age >= KNOWN_AGE
    if relation.domain and is_known(domain):
        yield _finding("known-domain", domain=relation.domain, count=domain.days)
    else:
        strange = relation.domain and not relation.colleague
        if strange and new_sender and ripe and not domain.messages:
            yield _finding("first-seen-domain", domain=relation.domain)
        yield from _imitations(relation, seen)
    if relation.reply and known_sender and ripe and not seen.get(_answered(relation.address, relation.reply)):
        yield _finding("new-reply-to", address=relation.address, reply=relation.reply)


def is_known(seen: ContactStats) -> bool:
    return seen.days >= KNOWN_DAYS and seen.age >= KNOWN_AGE


def _imitations(relation: Relation, seen: Mapping[str, ContactStats]) -> Iterator[Finding]:
    """Yield whom the sender resembles, and once more in general for rules that combine it with other suspicion."""
    strange = bool(relation.domain) and not relation.colleague
    found = [*(_lookalikes(relation, seen) if strange else ()), *_borrowed_name(relation, seen)]
    yield from found
    if found:
        yield _finding("impersonation", whom=_WHOM[found[0].name], address=relation.address)


def _lookalikes(relation: Relation, seen: Mapping[str, ContactStats]) -> Iterator[Finding]:
    """Yield the nearest kind of likeness to a known domain that is not this one."""
    label = label_of(relation.domain)
    for own in relation.own:
        if _is_alike(label, label_of(own)):
            yield _finding("own-lookalike", domain=relation.domain, own=own)
            return
    alike, same, *near = (seen.get(form, _NOTHING) for form in _forms(label))
    if len(label) >= MIN_ALIKE and _is_another(alike, same):
        yield _finding("lookalike-domain", domain=relation.domain)
    elif any(_is_another(each, same) for each in near):
        yield _finding("similar-domain", domain=relation.domain)
    elif is_known(same):  # the domain itself is not known
        yield _finding("other-tld", domain=relation.domain)


def _borrowed_name(relation: Relation, seen: Mapping[str, ContactStats]) -> Iterator[Finding]:
    """Yield whose name the sender uses, unless it is known to use it, or the name is common to several domains."""
    if (
        not relation.name
        or relation.colleague
        or is_known(seen.get(_named(relation.name, relation.provider), _NOTHING))
    ):
        return
    if is_known(seen.get(_colleague(relation.name), _NOTHING)):
        yield _finding("colleague-name", address=relation.address)
        return
    buckets = [seen.get(_bucket(relation.name, number), _NOTHING) for number in range(BUCKETS)]
    if sum(map(is_known, buckets)) == 1:
        yield _finding("correspondent-name", address=relation.address)


def _is_another(form: ContactStats, same: ContactStats) -> bool:
    """Return whether a known domain has this form, besides those with the sender's own label."""
    return is_known(form) and form.messages - same.messages >= KNOWN_DAYS


def _is_alike(label: str, own: str) -> bool:
    if label == own:
        return False
    alike = len(label) >= MIN_ALIKE and skeleton(label) == skeleton(own)
    return alike or (len(own) >= MIN_EDITED and one_edit(label, own))


def _forms(label: str) -> Iterator[str]:
    """Yield the skeleton of a label, the label, and what is left of it without one letter.

    Two labels that are one edit apart share one of the last.
    """
    yield f"skeleton\0{skeleton(label)}"
    yield f"label\0{label}"
    if MIN_EDITED <= len(label) <= MAX_EDITED:
        shorter = (label[:at] + label[at + 1 :] for at in range(len(label)))
        yield from (f"near\0{each}" for each in dict.fromkeys(chain((label,), shorter)))


def _folded(name: str) -> str:
    """Return what all spellings of a person's name share; "" for a name of one word or of many."""
    shown = "".join(each for each in name[:MAX_NAME].lower() if category(each) != "Cf")
    words = sorted(map(skeleton, _WORD.findall(shown)))
    return " ".join(words) if 2 <= len(words) <= 4 and "@" not in shown else ""


def domain_relation(domain: str) -> str:
    """Return the relation of a tenant to a registered domain."""
    return f"domain\0{domain}"


def _named(name: str, domain: str) -> str:
    return f"name\0{name}\0{domain}"


def _colleague(name: str) -> str:
    return f"colleague\0{name}"


def _bucket(name: str, number: int) -> str:
    return f"bucket\0{name}\0{number}"


def _bucket_of(domain: str) -> int:
    return zlib.crc32(domain.encode("utf-8", "replace")) % BUCKETS


def _answered(address: str, reply: str) -> str:
    return f"reply\0{address}\0{reply}"


def _finding(what: str, **facts: Fact) -> Finding:
    cut = {key: value[:FACT] if isinstance(value, str) else value for key, value in facts.items()}
    return Finding(f"relationship.{what}", area("Reply-To" if what == "new-reply-to" else "From"), cut)
