"""Values of a message, the keys that find them in lists, and the entries that win.

Security: works on values of hostile messages, within the limits of their collection.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Protocol
from uuid import UUID

from msgspec import Struct

from mailwarden.lists.catalogue import CATALOGUE, Category, MatchOn, find_list, lists_on, names_on
from mailwarden.lists.kinds.attachments import candidates_for_attachment
from mailwarden.lists.kinds.domains import candidates_for_domain
from mailwarden.lists.kinds.hashes import candidates_for_hashes
from mailwarden.lists.kinds.kind import MAX_ENTRY
from mailwarden.lists.kinds.networks import PrefixLengths, candidates_for_ip
from mailwarden.lists.kinds.senders import candidates_for_address, candidates_for_recipient
from mailwarden.lists.kinds.urls import candidates_for_url
from mailwarden.model.envelope import Envelope, domain_of
from mailwarden.model.evidence import AMBIGUOUS_SENDER, Evidence
from mailwarden.model.listing import ListHit
from mailwarden.model.observables import InnerFile, Observable, Observables, ObservedFile
from mailwarden.model.place import WHOLE_MESSAGE, Place, area
from mailwarden.model.record import MessageSummary

ALIGNED = "authentication.aligned"
SPF_PASS = "authentication.spf-pass"  # noqa: S105 - the name of a finding

_VALUE = 3 * MAX_ENTRY  # no entry matches what is longer
_OBSERVABLES = {definition.name: definition.observables for definition in CATALOGUE}

_FOR_ANY_SENDER = tuple(
    definition.name for definition in lists_on(MatchOn.SENDER) if not definition.needs_authentication
)
_FOR_PROVED = tuple(definition.name for definition in lists_on(MatchOn.SENDER) if definition.needs_authentication)


class Match(Struct, frozen=True):
    """An entry that matched; without a tenant it is a global one."""

    list_name: str
    entry: str
    tenant: UUID | None = None
    comment: str = ""


def rank(match: Match) -> tuple[bool, int, bool]:
    """Return what matches are compared by: the higher wins. Only matches of one list, or of opposite lists, compare."""
    definition = find_list(match.list_name)
    return (
        match.tenant is not None,
        definition.kind.specificity(match.entry),
        definition.category is Category.BLOCK,
    )


def winner(matches: Iterable[Match]) -> Match | None:
    """Return the match that wins among those of one list or of opposite lists; of equals, the first in order."""
    return max(sorted(matches, key=lambda match: match.entry), key=rank, default=None)


class Identity(Struct, frozen=True):
    senders: tuple[str, ...] = ()  # the addresses in From
    proved_sender: str = ""  # the one in From, where SPF or DKIM speaks for its organisation
    proved_domains: frozenset[str] = frozenset()  # that of From, and that of the envelope where SPF passed for it


def identity_of(evidence: Evidence, envelope: Envelope, summary: MessageSummary, observables: Observables) -> Identity:
    """Read from the evidence who is proved; a message with several senders, or an ambiguous one, proves none."""
    findings = {finding.name for _, finding in evidence.findings}
    senders = observables.senders or ((summary.from_address,) if summary.from_address else ())
    if AMBIGUOUS_SENDER in findings:
        return Identity(senders)
    proved = senders[0] if ALIGNED in findings and senders == (summary.from_address,) else ""
    domains = {domain_of(proved)} if proved else set()
    if SPF_PASS in findings and envelope.sender:
        domains.add(domain_of(envelope.sender))
    return Identity(senders, proved, frozenset(domains))


class ListMatcher(Protocol):
    """Where entries are looked up: guard's replica. Every question raises StorageUnavailable where it has no state."""

    def match(self, tenant: UUID, keys_by_list: Mapping[str, Iterable[str]]) -> tuple[Match, ...]: ...

    def prefix_lengths(self, tenant: UUID, list_name: str) -> PrefixLengths: ...

    def in_use(self, tenant: UUID) -> frozenset[str]: ...

    def entries_of(self, tenant: UUID, list_name: str, limit: int) -> Sequence[str]: ...

    def note_hits(self, matches: Iterable[Match]) -> None: ...

    async def prepare(self, tenant: UUID) -> None: ...


class Seen(Struct, frozen=True):
    """All values of one message that lists can match."""

    envelope: Envelope
    summary: MessageSummary
    observables: Observables
    identity: Identity
    urls: tuple[str, ...] = ()  # links that findings are about, which may be more than were observed


class Value(Struct, frozen=True):
    """One thing a message shows, and the keys under which each list may hold it."""

    shown: str
    keys: Mapping[str, Sequence[str]]
    place: Place = WHOLE_MESSAGE
    contest: str = ""  # values of one contest are one thing in several guises: one entry wins for all of them
    proved: bool = True  # False: the sender is not authenticated, and the entry is recorded but does not act


@lru_cache(maxsize=1_024)
def needs_of(in_use: frozenset[str]) -> tuple[Observable, ...]:
    """Return what a worker has to look for, given the lists that have entries."""
    return tuple(sorted({observable for name in in_use for observable in _OBSERVABLES.get(name, ())}))


def values_of(message: Seen, address: str, in_use: frozenset[str], lengths: Mapping[str, PrefixLengths]) -> list[Value]:
    """Return what the message shows to lists in use; `address` is where it comes from, trusted relays left out."""
    values = [*_senders(message), *_origins(message, address, lengths)]
    values += (_url(url) for url in dict.fromkeys((*message.observables.urls, *message.urls)))
    values += (value for file in message.observables.files for value in _file(file))
    if not in_use.isdisjoint(names_on(MatchOn.RECIPIENT)):
        for recipient in dict.fromkeys(message.envelope.recipients):
            values.append(Value(recipient, _keys(MatchOn.RECIPIENT, candidates_for_recipient(recipient))))
    subjects = tuple(filter(None, dict.fromkeys((message.summary.subject, *message.observables.subjects))))
    if subjects:
        values.append(Value(" / ".join(subjects), _keys(MatchOn.SUBJECT, subjects), area("subject")))
    return [value for value in values if not in_use.isdisjoint(value.keys)]


def keys_of(values: Iterable[Value], in_use: frozenset[str]) -> dict[str, list[str]]:
    """Return all that has to be looked up, each key of a list once."""
    keys: dict[str, dict[str, None]] = defaultdict(dict)
    for value in values:
        for name, candidates in value.keys.items():
            if name in in_use:
                keys[name].update(dict.fromkeys(candidates))
    return {name: list(list_keys) for name, list_keys in keys.items() if list_keys}


def hits_of(values: Iterable[Value], matches: Sequence[Match]) -> Iterator[tuple[Value, ListHit]]:
    """Yield the entry that wins for each value, or for each contest of values, among opposite lists."""
    names = {match.list_name for match in matches}
    by_key: dict[tuple[str, str], list[Match]] = defaultdict(list)
    by_text: dict[str, list[Match]] = defaultdict(list)
    for match in matches:
        kind = find_list(match.list_name).kind
        if kind.matches_text:
            by_text[match.list_name].append(match)
        else:
            by_key[match.list_name, kind.key(match.entry)].append(match)
    contests: dict[tuple[object, str], list[tuple[Value, Match]]] = defaultdict(list)
    for number, value in enumerate(values if names else ()):
        for name in names.intersection(value.keys):
            met = by_text.get(name) or (m for key in value.keys[name] for m in by_key.get((name, key), ()))
            contest = (value.contest or number, find_list(name).contest)
            contests[contest].extend((value, match) for match in met)
    for pairs in contests.values():
        won = winner(match for _, match in pairs)
        if won is not None:
            value = next(value for value, match in pairs if match == won)
            yield value, hit_of(won, value.shown, value.place)


def hit_of(match: Match, shown: str, place: Place = WHOLE_MESSAGE) -> ListHit:
    return ListHit(match.list_name, match.entry, match.tenant, match.comment, shown[:_VALUE], place)


def _keys(on: MatchOn, keys: Sequence[str]) -> Mapping[str, Sequence[str]]:
    return dict.fromkeys(names_on(on), keys)


def _senders(message: Seen) -> Iterator[Value]:
    """Both senders may be blocked; only the one that people see, and that is proved, may be allowed."""
    for address in dict.fromkeys((message.envelope.sender, *message.identity.senders)):
        keys = candidates_for_address(address)
        if not keys:
            continue
        proved = address == message.identity.proved_sender
        acting = names_on(MatchOn.SENDER) if proved else _FOR_ANY_SENDER
        yield Value(address, dict.fromkeys(acting, keys), contest="sender")
        if not proved and address in message.identity.senders:
            yield Value(address, dict.fromkeys(_FOR_PROVED, keys), contest="unproved sender", proved=False)


def _origins(message: Seen, address: str, lengths: Mapping[str, PrefixLengths]) -> Iterator[Value]:
    if address:
        names = [name for name in names_on(MatchOn.CLIENT_IP) if name in lengths]
        yield Value(address, {name: candidates_for_ip(address, lengths[name]) for name in names})
    domains = (domain_of(sender) for sender in (message.envelope.sender, *message.identity.senders))
    for domain in dict.fromkeys(filter(None, domains)):
        keys = candidates_for_domain(domain)
        for definition in lists_on(MatchOn.SENDER_DOMAIN):
            proved = not definition.needs_authentication or domain in message.identity.proved_domains
            yield Value(domain, {definition.name: keys}, proved=proved)


def _url(url: str) -> Value:
    return Value(url, _keys(MatchOn.URL, candidates_for_url(url)), area("link"))


def _file(file: ObservedFile) -> Iterator[Value]:
    names = tuple(inner.name for inner in file.inside if inner.name)
    if not file.is_body:
        keys = candidates_for_attachment(file.name, file.media_type, names)
        yield Value(file.name or file.media_type, _keys(MatchOn.ATTACHMENT, keys), file.place)
    if file.sha256:
        yield Value(file.sha256, _hash_keys(file), file.place)
    for inner in file.inside:
        if inner.sha256:
            # Only an entry for the whole file allows it; an entry for an inner file applies to the inner file.
            yield Value(inner.sha256, _hash_keys(inner), file.place.within(inner.name))


def _hash_keys(file: ObservedFile | InnerFile) -> dict[str, list[str]]:
    every, strongest = candidates_for_hashes(file.sha256, file.sha1, file.md5), candidates_for_hashes(file.sha256)
    return {
        definition.name: every if Observable.DIGESTS in definition.observables else strongest
        for definition in lists_on(MatchOn.FILE)
    }
