"""Checks which entries match a value, in the lists of a tenant and of the deployment, and which of them win.

Security: the value may come from a hostile message. It is looked up by its keys, and never becomes a pattern.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.lists.catalogue import CATALOGUE, MatchOn, find_list, names_on
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.impersonation import candidates_for_shown_name
from mailwarden.lists.kinds.attachments import candidates_for_attachment
from mailwarden.lists.kinds.domains import candidates_for_domain
from mailwarden.lists.kinds.hashes import candidates_for_hashes
from mailwarden.lists.kinds.kind import refang
from mailwarden.lists.kinds.networks import PrefixLengths, candidates_for_ip, pack_ip
from mailwarden.lists.kinds.senders import (
    candidates_for_address,
    candidates_for_recipient,
    candidates_for_sender_domain,
)
from mailwarden.lists.kinds.subjects import SubjectMatcher
from mailwarden.lists.kinds.urls import candidates_for_url
from mailwarden.lists.matching import Match, winner
from mailwarden.lists.requests import PublicListsEntry
from mailwarden.lists.store import ListScope

MAX_VALUE = 2_000
_ALL_LENGTHS = PrefixLengths(tuple(range(32, -1, -1)), tuple(range(128, -1, -1)))
_HASHES = (32, 40, 64)

Keys = Mapping[MatchOn, Sequence[str]]


def _sender_keys(value: str) -> Keys:
    keys = candidates_for_address(value)
    domain = value.rpartition("@")[2]
    return {MatchOn.SENDER: keys, MatchOn.SENDER_DOMAIN: candidates_for_domain(domain)}


def _domain_keys(value: str) -> Keys:
    exact = candidates_for_domain(value)
    return {
        MatchOn.SENDER: candidates_for_sender_domain(value),
        MatchOn.SENDER_DOMAIN: exact,
        MatchOn.URL: candidates_for_url(value),
        MatchOn.LOOKALIKE: exact,
    }


def _ip_keys(value: str) -> Keys:
    keys = candidates_for_ip(value, _ALL_LENGTHS)
    return {MatchOn.CLIENT_IP: keys, MatchOn.RELAY: keys}


def _file_keys(value: str) -> Keys:
    return {MatchOn.ATTACHMENT: candidates_for_attachment(value, value if "/" in value else "")}


# The types that a value may have, and the keys that lists look up for them.
READINGS: Mapping[str, Callable[[str], Keys]] = {
    "sender": _sender_keys,
    "recipient": lambda value: {MatchOn.RECIPIENT: candidates_for_recipient(value)},
    "domain": _domain_keys,
    "ip": _ip_keys,
    "url": lambda value: {MatchOn.URL: candidates_for_url(value)},
    "hash": lambda value: {MatchOn.FILE: candidates_for_hashes(value)},
    "file": _file_keys,
    "subject": lambda value: {MatchOn.SUBJECT: [value]},
    "name": lambda value: {MatchOn.SENDER_NAME: candidates_for_shown_name(value.partition("<")[0])},
}


class Found(Struct, frozen=True):
    """An entry that matches the value."""

    match: Match
    reading: str
    expired: bool


def readings_of(value: str) -> tuple[str, ...]:
    """Return how a value may be meant, by its form alone."""
    if len(value) in _HASHES and all(sign in "0123456789abcdef" for sign in value.lower()):
        return ("hash",)
    if pack_ip(value) is not None:
        return ("ip",)
    if "/" in value:
        return ("url",) if "." in value.partition("/")[0] or "://" in value else ("file",)
    if " " in value:
        return ("subject", "name")
    if "@" in value:
        return ("sender", "recipient")
    if value.startswith("."):
        return ("file",)
    return ("domain", "file") if "." in value else ("subject", "name")


def keys_for(value: str, readings: Sequence[str]) -> dict[str, dict[str, frozenset[str]]]:
    """Return for each list the keys that the value is looked up by, under each reading."""
    keys: dict[str, dict[str, frozenset[str]]] = {}
    for reading in readings:
        for on, value_keys in READINGS[reading](value).items():
            for list_name in names_on(on):
                of_list = keys.setdefault(list_name, {})
                of_list[reading] = of_list.get(reading, frozenset()).union(value_keys)
    return {definition.name: keys[definition.name] for definition in CATALOGUE if definition.name in keys}


def match_entries(
    list_name: str,
    keys: Mapping[str, frozenset[str]],
    entries: Iterable[PublicListsEntry],
    tenant: UUID | None,
    now: datetime,
) -> Iterable[Found]:
    """Yield the entries of one list that match the keys."""
    kind = find_list(list_name).kind
    for entry in entries:
        for reading, reading_keys in keys.items():
            if kind.matches_text:
                met = any(SubjectMatcher([entry.entry]).find(subject) for subject in reading_keys)
            else:
                met = kind.key(entry.entry) in reading_keys
            if met:
                expired = entry.expires is not None and datetime.fromisoformat(entry.expires) <= now
                yield Found(Match(list_name, entry.entry, tenant, entry.comment), reading, expired)


def winners(found_entries: Iterable[Found]) -> list[Match]:
    """Return the match that acts of each list, or of each pair of opposite lists."""
    groups: dict[str, list[Match]] = {}
    for matched_entry in found_entries:
        if not matched_entry.expired:
            groups.setdefault(find_list(matched_entry.match.list_name).contest, []).append(matched_entry.match)
    return [won for matches in groups.values() if (won := winner(matches)) is not None]


class Checked(Struct, frozen=True):
    """A value as it was read, its matching entries, and those of them that act."""

    value: str
    readings: tuple[str, ...]
    found_entries: tuple[Found, ...]
    acting: tuple[Match, ...]


class Checker:
    """Looks values up in PostgreSQL, which has an entry shortly before the guards do."""

    def __init__(self, entries: EntryStore) -> None:
        self._entries = entries

    async def check(
        self, scope: ListScope, value: str, reading: str | None = None, *, now: datetime | None = None
    ) -> Checked:
        """Return the entries that match a value in the scope; a tenant's scope includes the global lists."""
        value = refang(value.strip()[:MAX_VALUE])
        readings = (reading,) if reading is not None and reading in READINGS else readings_of(value)
        keys = keys_for(value, readings)
        found_entries: list[Found] = []
        for searched_scope in (scope, ListScope()) if scope.tenant else (scope,):
            used = await self._entries.counts(searched_scope)
            for list_name, keys_by_reading in keys.items():
                if used.get(list_name):
                    entries = await matching_entries(
                        self._entries, searched_scope, list_name, frozenset().union(*keys_by_reading.values())
                    )
                    found_entries.extend(
                        match_entries(
                            list_name, keys_by_reading, entries, searched_scope.tenant, now or datetime.now(UTC)
                        )
                    )
        return Checked(value, readings, tuple(found_entries), tuple(winners(found_entries)))


async def matching_entries(
    entries: EntryStore, scope: ListScope, list_name: str, keys: AbstractSet[str]
) -> Sequence[PublicListsEntry]:
    """Return the entries of one list that may match these keys; of a short list, all."""
    definition = find_list(list_name)
    if not definition.kind.found_by_itself:
        return await entries.first(scope, definition, definition.max_size(in_tenant=scope.tenant is not None))
    return await entries.present(scope, definition, sorted(keys))
