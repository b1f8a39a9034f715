"""Reports odd senders: the display name, the address behind it, random names, and a foreign Reply-To.

Security: works on hostile headers inside a killable worker; every pattern is linear, facts are cut.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import ClassVar

from msgspec import Struct

from mailwarden.analysis.analyzers.newsletter import is_mailing
from mailwarden.analysis.links.confusables import disguise_of, reads_as
from mailwarden.analysis.shipped_data import read_shipped
from mailwarden.analysis.view import View
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.addresses import Identity, is_host, is_private, read_identity
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import registrable_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import Fact, Finding
from mailwarden.model.place import area

MIN_LABEL = 5  # a shorter label of the recipient's domain is found in names by accident
# The ending is the last label: no label with a dot follows.
_HOST = r"((?:[a-z0-9-]{1,63}\.){1,8}(?![a-z0-9-]{1,63}\.)[a-z]{2,24})"
_ADDRESS = re.compile(rf"[a-z0-9._%+=-]{{1,64}}@{_HOST}")
_DOMAIN = re.compile(rf"(?<![\w@.-])(?:https?://)?{_HOST}(?![\w@-])")
_PADDING = re.compile(r"[\s\u00a0\u2000-\u200a\u3000\u2800\u3164_]{12}")
_PICTURE = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff\u2b50\u26a0]")
_NUMBERED = re.compile(r"[A-Za-z]{2,20}(?:_[A-Za-z]{2,20}){1,3}_\d{4,8}")
_RELAYED = re.compile(r"\bvia\b")  # relays and mailing lists put the writer's address into the name
_NO_LETTERS = re.compile(r"[^a-z0-9]+")
_LATIN_WORD = re.compile(r"[a-z0-9]+")
_SPELLED_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "ø": "oe", "å": "aa", "æ": "ae"})
SHORT_WORD = 3  # letters that occur in other words by accident
STEM = 5  # letters that a word and its other forms have in common
_SERVERS = frozenset({"root", "cron", "daemon", "nobody", "www-data", "mailer-daemon", "postmaster", "apache"})

Oddity = tuple[str, dict[str, Fact]]

LONGEST = 64  # not inspection: no label of a name is longer (RFC 1035 section 2.3.4)
MIN_LETTERS = 5  # `xxxxxxxx` is a placeholder, not a random name
_NO_VOWELS = re.compile(r"[bcdfghjklmnpqrstvwxz]{6}")  # longer than in `schwarz`, `angstschreie` and their like
_NO_VOWELS_AT_ALL = re.compile(r"[bcdfghjklmnpqrstvwxz]{7}")
_HONEST_RUNS = re.compile(
    r"schtsch|tsch|schr|schm|schl|schw|sch|ngst|rchst|ghtsh|ngsth|nsch|mpls|tch|ght|ngs|rst|nds|rth"
)
_DIGIT_BORDERS = re.compile(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")
_CASE_BORDERS = re.compile(r"(?<=[a-z])(?=[A-Z])")
_WORD = re.compile(r"[A-Za-z0-9]{7,64}")


class _Words(Struct, frozen=True):
    """Words about senders, as data."""

    roles: tuple[str, ...]
    lures: tuple[str, ...]
    offers: tuple[str, ...]
    general: frozenset[str]
    endings: frozenset[str]
    hosted: frozenset[str]
    rented: frozenset[str]
    relays: frozenset[str]


class SenderAnalyzer:
    name: ClassVar[str] = "sender"

    def examine(self, view: View) -> Iterator[Finding]:
        sender = read_identity(view.message.header("from"))
        reply = read_identity(view.message.header("reply-to"))
        for what, facts in (
            *_name(sender, view),
            *_relation(sender, view),
            *_address(sender, view),
            *_reply(sender, reply),
        ):
            cut = {key: value[: SHOWN.fact] if isinstance(value, str) else value for key, value in facts.items()}
            yield Finding(f"sender.{what}", area("From"), cut)


def _name(sender: Identity, view: View) -> Iterator[Oddity]:
    """Yield findings about the display name."""
    if sender.torn:
        yield "detached-address", {"name": sender.name}
    shown, words = reads_as(sender.name), load_words()
    if not shown:
        return
    if how := disguise_of(sender.name):
        yield "homoglyph-name", {"name": sender.name, "how": how}
    if _PADDING.search(sender.name):
        yield "padded-name", {"name": shown}
    if _PICTURE.search(sender.name):
        yield "emoji-name", {"name": sender.name}
    address = _ADDRESS.search(shown)
    if address and _foreign(address[1], sender) and not _RELAYED.search(shown):
        yield "address-in-name", {"shown": address[0], "address": sender.address}
    elif not address and (domain := _DOMAIN.search(shown)) and _foreign(domain[1], sender) and is_host(domain[1]):
        yield "domain-in-name", {"shown": domain[1], "address": sender.address}
    if recipient := _recipient_in(shown, sender, view):
        yield "recipient-in-name", {"shown": recipient, "address": sender.address}
    if sender.organisation in free_mail_domains() and (role := _said(shown, words.roles)):
        yield "role-free-mail", {"role": role, "address": sender.address}
    if lure := _said(shown, words.lures):
        yield "promotional-name", {"name": sender.name, "word": lure}
    elif offer := _said(shown, words.offers):
        yield "offer-name", {"name": sender.name, "word": offer}


def _relation(sender: Identity, view: View) -> Iterator[Oddity]:
    """Yield whether the display name and the address have a word in common, as those of most honest senders have.

    A free mailbox says nothing about its owner, and a name in other letters cannot occur in an address. People are
    named before the at sign. A mailing can choose that part for each campaign, so its name must occur in a domain.
    """
    if not is_host(sender.domain) or sender.organisation in free_mail_domains():
        return
    related = shares_word(sender.name, sender.local, sender.domain)
    if related and not shares_word(sender.name, "", sender.domain) and is_mailing(view):
        related = any(shares_word(sender.name, "", domain) for domain in {link.domain for link in view.links})
    facts: dict[str, Fact] = {"name": sender.name, "address": sender.address}
    if related is not None:
        yield "name-related" if related else "name-unrelated", facts
    elif _LATIN_WORD.search(reads_as(sender.name)):
        yield "role-name", facts


def shares_word(name: str, local: str, domain: str) -> bool | None:
    """Return whether a name shares a word or its initials with an address; None if it has only general words."""
    spelled = [reads_as(name)]
    spelled += [] if name.isascii() else [reads_as(name.lower().translate(_SPELLED_OUT))]
    general = load_words().general
    words = {word for text in spelled for word in _LATIN_WORD.findall(text)} - general
    if not words:
        return None
    host = domain.rpartition(".")[0].lower()
    labels = _NO_LETTERS.sub("", host)
    address = (labels, _NO_LETTERS.sub("", local.lower()))
    if any(word[:STEM] in where for word in words if len(word) > SHORT_WORD for where in address):
        return True
    if any(word in labels for word in words if len(word) == SHORT_WORD):
        return True
    shown = _NO_LETTERS.sub("", spelled[0])
    parts = [part for part in _NO_LETTERS.split(host) if part not in _general_text()]
    if any(part in shown for part in parts if len(part) > SHORT_WORD):
        return True
    initials = "".join(word[0] for word in _LATIN_WORD.findall(spelled[0]))
    return any(part == initials or (len(initials) >= SHORT_WORD and part.startswith(initials)) for part in parts)


def _address(sender: Identity, view: View) -> Iterator[Oddity]:
    """Yield findings about the address behind the name."""
    if not sender.address:
        if sender.name and "mailer-daemon" not in sender.name.lower():
            yield "no-address", {"name": sender.name}
        return
    if sender.addresses > 1:
        yield "several-addresses", {"count": sender.addresses}
    if how := disguise_of(sender.address.rpartition("@")[2]):
        yield "homoglyph-domain", {"domain": sender.domain, "how": how}
    if not is_host(sender.domain):
        if sender.local.lower() not in _SERVERS:
            yield "invalid-domain", {"address": sender.address}
        return
    if not load_words().relays.isdisjoint((sender.address.lower(), sender.domain)):
        yield "text-relay-service", {"address": sender.address}
    yield from _kinship(sender, view)
    if not is_private(sender.domain):
        yield from choices_of(sender)


def _kinship(sender: Identity, view: View) -> Iterator[Oddity]:
    """Yield findings about the address in From compared with the envelope."""
    recipients = {recipient.lower() for recipient in view.recipients}
    if sender.address.lower() in recipients:
        yield "claims-recipient", {"address": sender.address}
    elif (
        sender.domain in {domain_of(recipient) for recipient in recipients}
        and sender.organisation not in free_mail_domains()
    ):
        yield "own-domain", {"domain": sender.domain}
    if sender.organisation in free_mail_domains():
        yield "free-mail", {"address": sender.address}
    envelope = registrable_domain(domain_of(view.envelope.sender))
    if envelope and envelope != sender.organisation:
        yield "envelope-mismatch", {"domain": sender.organisation, "envelope": envelope}


def choices_of(sender: Identity) -> Iterator[Oddity]:
    """Yield findings about random names."""
    words = load_words()
    if is_random_label(sender.organisation.partition(".")[0]):
        yield "random-domain", {"domain": sender.domain}
    if is_random_local(sender.local):
        yield "random-local-part", {"address": sender.address}
    if _NUMBERED.fullmatch(sender.local):
        yield "numbered-local-part", {"address": sender.address}
    if sender.domain.rpartition(".")[2] in words.endings or sender.organisation.partition(".")[2] in words.endings:
        yield "risky-tld", {"domain": sender.domain}
    for what, hosts in (("shared-domain", words.hosted), ("service-domain", words.rented)):
        if _is_below(sender.domain, hosts):
            yield what, {"domain": sender.domain}


def _is_below(domain: str, hosts: frozenset[str]) -> bool:
    while domain := domain.partition(".")[2]:
        if domain in hosts:
            return True
    return False


def _reply(sender: Identity, reply: Identity) -> Iterator[Oddity]:
    """Yield a finding if Reply-To differs from From."""
    if not reply.address or not sender.address or reply.address.lower() == sender.address.lower():
        return
    facts: dict[str, Fact] = {"address": sender.address, "reply": reply.address}
    if not is_host(reply.domain):
        yield "reply-to-invalid", facts
    elif reply.organisation in free_mail_domains():
        yield "reply-to-other-free-mail" if sender.organisation in free_mail_domains() else "reply-to-free-mail", facts
    elif reply.organisation != sender.organisation:
        yield "reply-to-other-domain", facts


def _foreign(shown: str, sender: Identity) -> bool:
    """Return whether a name shows a foreign domain."""
    organisation = registrable_domain(shown)
    return bool(organisation) and organisation != sender.organisation


def _recipient_in(shown: str, sender: Identity, view: View) -> str:
    """Return the recipient's address or organisation if the name contains it and the address is foreign."""
    for recipient in view.recipients:
        organisation = registrable_domain(domain_of(recipient))
        if not organisation or organisation in free_mail_domains() or organisation == sender.organisation:
            if recipient.lower() in shown and recipient.lower() != sender.address.lower():
                return recipient
            continue
        label = organisation.partition(".")[0]
        if recipient.lower() in shown or organisation in shown:
            return organisation
        if len(label) >= MIN_LABEL and re.search(rf"(?<![a-z0-9]){re.escape(label)}(?![a-z0-9])", shown):
            return organisation
    return ""


def _said(shown: str, words: tuple[str, ...]) -> str:
    """Return the first of the words in a name, or ""."""
    padded = f" {' '.join(_NO_LETTERS.split(shown))} "
    return next((word for word in words if f" {word} " in padded), "")


@cache
def _general_text() -> str:
    """Return the general words in one text, to search for a part of any of them."""
    return "\n".join(load_words().general)


@cache
def load_words() -> _Words:
    return read_shipped("analyzers/sender_words.yml", _Words)


def is_random_label(label: str) -> bool:
    """Return whether a label of a domain looks random."""
    label = label[:LONGEST].lower()
    if label.startswith("xn--"):
        return False
    for word in label.split("-"):
        if len(word) >= 7 and _NO_VOWELS.search(_HONEST_RUNS.sub("a", word)):
            return True
        if len(word) >= 6 and len(_DIGIT_BORDERS.findall(word)) >= 3:
            return True
    return False


def is_random_local(local: str) -> bool:
    """Return whether the part before the at sign looks random."""
    if len(local) > LONGEST or not _WORD.fullmatch(local) or len(set(local.lower())) < MIN_LETTERS:
        return False  # a program made this name: mailing services write codes with separators
    if len(_CASE_BORDERS.findall(local)) >= 2 and _has_no_rhythm(local):
        return True
    lower = local.lower()
    return bool(_NO_VOWELS_AT_ALL.search(_HONEST_RUNS.sub("a", lower))) or len(_DIGIT_BORDERS.findall(lower)) >= 4


def _has_no_rhythm(word: str) -> bool:
    """Return whether the parts between capitals are mostly no syllables: `MvSSrjf`, not `JohnMcDonald`."""
    parts = [part for part in re.split(r"(?=[A-Z])", word) if part]
    return sum(1 for part in parts if len(part) < 3 or not re.search(r"[aeiouy]", part.lower())) * 2 > len(parts)
