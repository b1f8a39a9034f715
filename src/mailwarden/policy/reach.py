"""How far history can tell what an entry would have done: where to look for messages, and what stays in the dark.

History keeps addresses, the subject, hosts, some links, and the SHA-256 of every part. What an entry meets besides
that is not guessed: it is said.
"""

from collections.abc import Sequence
from ipaddress import ip_network

from msgspec import Struct

from mailwarden.history.terms import address_term, domain_term, hash_term, network_term, word_terms, words_of
from mailwarden.lists.kinds.networks import is_network
from mailwarden.lists.kinds.people import person_of
from mailwarden.message.urls import host_of

MAX_ENTRIES = 500  # of one change; the terms of more would find half of history
_LEAST = {4: 16, 6: 32}  # the shortest prefix that history keeps a term for
_MOST_NETWORKS = 256

_NAMED = ("sender-block", "sender-allow", "simulation-senders")
_ALWAYS = {
    "sender-block": "Of a message with several addresses in From only the first is kept.",
    "ip-block": "Messages that a trusted relay handed on are looked for by the relay's address.",
    "ip-allow": "Messages that a trusted relay handed on are looked for by the relay's address.",
    "url-block": "History keeps the hosts of a message and some fifty of its links: other pages are not counted.",
    "url-allow": "History keeps some fifty links of a message: findings about others stay as they were.",
    "file-hash-block": "Files inside archives are not kept in history and not counted.",
    "attachment-block": "Files inside archives are not kept in history and not counted.",
    "file-hash-allow": "If an engine convicted the message, only the engine knows whether the file was the reason.",
    "protected-people": "Names that are spelled with other accents are not counted.",
    "trusted-relays": "The way of a message is followed as far as history keeps it, which is twenty hops.",
}
_DELETED = {
    "url-allow": "Findings that this entry suppressed were not stored: such messages stay unchanged.",
    "protected-domains": "Other protected domains that a sender looks like as well are not considered.",
}


class Reach(Struct, frozen=True):
    """Where to look: messages that have one of the terms, or any where there are none; and what to say of it."""

    terms: tuple[str, ...]
    entries: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_blind(self) -> bool:
        """Tell whether no term leads to the messages: then all of them are looked at, as many as time allows."""
        return not self.terms


def reach_of(list_name: str, entries: Sequence[str], *, adds: bool) -> Reach:
    """Return where to look for the messages that these entries, in stored form, may have met."""
    notes = [_ALWAYS[list_name]] if list_name in _ALWAYS else []
    if not adds and list_name in _DELETED:
        notes.append(_DELETED[list_name])
    chosen = tuple(entries[:MAX_ENTRIES])
    if len(chosen) < len(entries):
        notes.append(f"Only the first {MAX_ENTRIES} of {len(entries):,} entries were tried.")
    if list_name == "file-hash-block" and any(len(entry) != 64 for entry in chosen):
        notes.append("History stores SHA-256 only: matches of SHA-1 and MD5 are unknown.")
        chosen = tuple(entry for entry in chosen if len(entry) == 64)
    terms: dict[str, None] = {}
    for entry in chosen:
        found = _terms(list_name, entry, adds=adds)
        if not found:
            notes.append("Nothing leads from these entries to their messages, so the newest of all were looked at.")
            return Reach((), chosen, tuple(dict.fromkeys(notes)))
        terms.update(dict.fromkeys(found))
    if list_name == "subject-block" and any(_edge_only(entry) for entry in chosen):
        notes.append("Only subjects that hold these words whole were looked at.")
    return Reach(tuple(terms), chosen, tuple(dict.fromkeys(notes)))


def _terms(list_name: str, entry: str, *, adds: bool) -> tuple[str, ...]:
    """Return terms of which every message that the entry met has one, or none where no term can tell."""
    if list_name in ("ip-block", "ip-allow", "trusted-relays") or (list_name in _NAMED and is_network(entry)):
        return _networks(entry)
    if list_name in _NAMED:
        return (address_term("from", entry) if "@" in entry else domain_term("from", entry.removeprefix("*.")),)
    if list_name == "recipient-exempt":
        return (address_term("to", entry) if "@" in entry else domain_term("to", entry),)
    if list_name in ("url-block", "url-allow"):
        return (domain_term("url", host_of(f"http://{entry.removeprefix('*.')}")),)
    if list_name in ("file-hash-block", "file-hash-allow"):
        return (hash_term(entry),)
    if list_name == "lookalike-ignore":
        return ("tag:sender.lookalike-domain",) if adds else ("tag:list.lookalike-ignore",)
    if list_name == "protected-domains" and not adds:
        return ("tag:sender.lookalike-domain",)
    if list_name == "protected-people":
        words = word_terms("name", person_of(entry).name)
        return (max(words, key=len),) if words else ()
    if list_name == "subject-block":
        return _subject(entry)
    return ()


def _networks(entry: str) -> tuple[str, ...]:
    network = ip_network(entry)
    least = _LEAST[network.version]
    if network.prefixlen >= least:
        return (network_term(network),)
    if 1 << (least - network.prefixlen) > _MOST_NETWORKS:
        return ()
    return tuple(map(network_term, network.subnets(new_prefix=least)))


def _subject(entry: str) -> tuple[str, ...]:
    """Return the longest word of a text; one at its edge may be a part of a word, so an inner one is better."""
    if entry.startswith("/"):
        return ()
    words = words_of(entry)
    chosen = words[1:-1] or words
    return (f"subject:{max(chosen, key=len)}",) if chosen else ()


def _edge_only(entry: str) -> bool:
    return not entry.startswith("/") and len(words_of(entry)) < 3
