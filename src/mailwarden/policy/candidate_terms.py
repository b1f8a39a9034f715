"""The search terms of history that find the messages which a list entry may concern."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import ip_network

from msgspec import Struct

from mailwarden.lists.catalogue import Effect, ListDefinition, MatchOn, find_list
from mailwarden.lists.kinds.networks import is_network
from mailwarden.lists.kinds.people import person_of
from mailwarden.message.urls import host_of
from mailwarden.search.terms import address_term, domain_term, hash_term, network_term, word_terms, words_of

MAX_ENTRIES = 500  # of one change; more entries have terms that match half of history
_SHORTEST_PREFIX = {4: 16, 6: 32}  # the shortest prefix with a term in history
_MOST_NETWORKS = 256
_BY_ADDRESS = frozenset({MatchOn.CLIENT_IP, MatchOn.RELAY})


class CandidateTerms(Struct, frozen=True):
    """The terms of the messages to search for (none: all messages), the entries tried, and notes for the user."""

    terms: tuple[str, ...]
    entries: tuple[str, ...]
    notes: tuple[str, ...] = ()


def candidate_terms(list_name: str, entries: Sequence[str], *, adds: bool) -> CandidateTerms:
    """Return the terms of the messages that these entries, in stored form, may match."""
    definition = find_list(list_name)
    notes = [definition.history_note, "" if adds else definition.history_note_deleted]
    notes = [*filter(None, notes)]
    chosen = tuple(entries[:MAX_ENTRIES])
    if len(chosen) < len(entries):
        notes.append(f"Only the first {MAX_ENTRIES} of {len(entries):,} entries were tried.")
    if MatchOn.FILE in definition.match_on and any(len(entry) != 64 for entry in chosen):
        notes.append("History stores SHA-256 only: matches of SHA-1 and MD5 are unknown.")
        chosen = tuple(entry for entry in chosen if len(entry) == 64)
    terms: dict[str, None] = {}
    for entry in chosen:
        entry_terms = _terms(definition, entry, adds=adds)
        if not entry_terms:
            notes.append("Nothing leads from these entries to their messages, so the newest of all were looked at.")
            return CandidateTerms((), chosen, tuple(dict.fromkeys(notes)))
        terms.update(dict.fromkeys(entry_terms))
    if MatchOn.SUBJECT in definition.match_on and any(_edge_only(entry) for entry in chosen):
        notes.append("Only subjects that hold these words whole were looked at.")
    return CandidateTerms(tuple(terms), chosen, tuple(dict.fromkeys(notes)))


def _terms(definition: ListDefinition, entry: str, *, adds: bool) -> tuple[str, ...]:
    """Return terms of which every matching message has at least one; none if no such term exists."""
    if definition.effect is Effect.NO_LOOKALIKE:
        return ("tag:sender.lookalike-domain",) if adds else (f"tag:{definition.tag}",)
    if definition.effect is Effect.PROTECTED_DOMAIN:
        return () if adds else ("tag:sender.lookalike-domain",)
    values: Iterable[MatchOn] = definition.match_on
    if not _BY_ADDRESS.isdisjoint(values):
        values = [value for value in values if (value in _BY_ADDRESS) is is_network(entry)]
    term_groups = [_TERMS[value](entry) if value in _TERMS else () for value in values]
    return tuple(term for terms in term_groups for term in terms) if all(term_groups) else ()


def _host_or_address(field: str, entry: str) -> tuple[str, ...]:
    return (address_term(field, entry) if "@" in entry else domain_term(field, entry.removeprefix("*.")),)


def _name(entry: str) -> tuple[str, ...]:
    words = word_terms("name", person_of(entry).name)
    return (max(words, key=len),) if words else ()


def _networks(entry: str) -> tuple[str, ...]:
    network = ip_network(entry)
    least = _SHORTEST_PREFIX[network.version]
    if network.prefixlen >= least:
        return (network_term(network),)
    if 1 << (least - network.prefixlen) > _MOST_NETWORKS:
        return ()
    return tuple(map(network_term, network.subnets(new_prefix=least)))


def _subject(entry: str) -> tuple[str, ...]:
    """Return the longest word of a text, an inner one if possible: one at the edge may be part of a longer word."""
    if entry.startswith("/"):
        return ()
    words = words_of(entry)
    chosen = words[1:-1] or words
    return (f"subject:{max(chosen, key=len)}",) if chosen else ()


def _edge_only(entry: str) -> bool:
    return not entry.startswith("/") and len(words_of(entry)) < 3


_TERMS: Mapping[MatchOn, Callable[[str], tuple[str, ...]]] = {
    MatchOn.CLIENT_IP: _networks,
    MatchOn.RELAY: _networks,
    MatchOn.SENDER: lambda entry: _host_or_address("from", entry),
    MatchOn.SENDER_DOMAIN: lambda entry: _host_or_address("from", entry),
    MatchOn.SENDER_NAME: _name,
    MatchOn.RECIPIENT: lambda entry: _host_or_address("to", entry),
    MatchOn.URL: lambda entry: (domain_term("url", host_of(f"http://{entry.removeprefix('*.')}")),),
    MatchOn.FILE: lambda entry: (hash_term(entry),),
    MatchOn.SUBJECT: _subject,
}
