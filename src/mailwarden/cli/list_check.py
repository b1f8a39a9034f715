"""`mailwarden lists check`: which entries a value would meet, in which scope, and which of them would win."""

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from msgspec import Struct

from mailwarden.client import ListsClient, ScopeRefused
from mailwarden.lists.catalogue import CATALOGUE, find_list
from mailwarden.lists.kinds.attachments import candidates_for_attachment
from mailwarden.lists.kinds.domains import candidates_for_domain
from mailwarden.lists.kinds.hashes import candidates_for_hashes
from mailwarden.lists.kinds.networks import PrefixLengths, candidates_for_ip, pack_ip
from mailwarden.lists.kinds.people import candidates_for_name
from mailwarden.lists.kinds.senders import (
    candidates_for_address,
    candidates_for_recipient,
    candidates_for_sender_domain,
)
from mailwarden.lists.kinds.subjects import SubjectMatcher
from mailwarden.lists.kinds.text import refang
from mailwarden.lists.kinds.urls import candidates_for_url
from mailwarden.lists.precedence import RIVALS, Match, winner
from mailwarden.wire.lists import PublicListsEntry

MAX_ENTRIES = 1_000_000
_ALL_LENGTHS = PrefixLengths(tuple(range(32, -1, -1)), tuple(range(128, -1, -1)))
_HASHES = (32, 40, 64)

Keys = Mapping[str, Sequence[str]]


def _sender_keys(value: str) -> Keys:
    keys = candidates_for_address(value)
    domain = value.rpartition("@")[2]
    return {"sender-block": keys, "sender-allow": keys, "simulation-senders": candidates_for_domain(domain)}


def _domain_keys(value: str) -> Keys:
    sender, url, exact = candidates_for_sender_domain(value), candidates_for_url(value), candidates_for_domain(value)
    return {
        "sender-block": sender, "sender-allow": sender, "simulation-senders": exact, "url-block": url,
        "url-allow": url, "protected-domains": exact, "lookalike-ignore": exact,
    }  # fmt: skip


def _ip_keys(value: str) -> Keys:
    keys = candidates_for_ip(value, _ALL_LENGTHS)
    return dict.fromkeys(("ip-block", "ip-allow", "simulation-senders", "trusted-relays"), keys)


def _file_keys(value: str) -> Keys:
    return {"attachment-block": candidates_for_attachment(value, value if "/" in value else "")}


# How a value may be read, and under which keys each list would meet it then.
READINGS: Mapping[str, Callable[[str], Keys]] = {
    "sender": _sender_keys,
    "recipient": lambda value: {"recipient-exempt": candidates_for_recipient(value)},
    "domain": _domain_keys,
    "ip": _ip_keys,
    "url": lambda value: dict.fromkeys(("url-block", "url-allow"), candidates_for_url(value)),
    "hash": lambda value: dict.fromkeys(("file-hash-block", "file-hash-allow"), candidates_for_hashes(value)),
    "file": _file_keys,
    "subject": lambda value: {"subject-block": [value]},
    "name": lambda value: {"protected-people": candidates_for_name(value.partition("<")[0])},
}


class Found(Struct, frozen=True):
    """An entry that the value meets."""

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
        for list_name, found in READINGS[reading](value).items():
            keys.setdefault(list_name, {})[reading] = frozenset(found)
    return {each.name: keys[each.name] for each in CATALOGUE if each.name in keys}


def meet(
    list_name: str,
    keys: Mapping[str, frozenset[str]],
    entries: Iterable[PublicListsEntry],
    tenant: UUID | None,
    now: datetime,
) -> Iterable[Found]:
    """Yield the entries of one list that meet the keys."""
    key = find_list(list_name).kind.key
    for each in entries:
        for reading, wanted in keys.items():
            if reading == "subject":
                met = any(SubjectMatcher([each.entry]).find(subject) for subject in wanted)
            else:
                met = key(each.entry) in wanted
            if met:
                expired = each.expires is not None and datetime.fromisoformat(each.expires) <= now
                yield Found(Match(list_name, each.entry, tenant, each.comment), reading, expired)


def winners(found: Iterable[Found]) -> list[Match]:
    """Return the match that acts of each list, or of each pair of lists that say opposite things."""
    groups: dict[str, list[Match]] = {}
    rivals = {name: pair[0] for pair in RIVALS for name in pair}
    for each in found:
        if not each.expired:
            groups.setdefault(rivals.get(each.match.list_name, each.match.list_name), []).append(each.match)
    return [won for matches in groups.values() if (won := winner(matches)) is not None]


def run_check(options: argparse.Namespace, client: ListsClient) -> int:
    value = refang(options.value.strip())
    keys = keys_for(value, (options.reading,) if options.reading else readings_of(value))
    scopes = [options.tenant, None] if options.tenant else [None]
    found: list[Found] = []
    unseen: list[str] = []
    for tenant in scopes:
        for list_name, wanted in keys.items():
            try:
                with client.stream(list_name, tenant) as stream:
                    if stream.count > options.max_entries:
                        unseen.append(f"{list_name} ({_scope(tenant)}): {stream.count:,} entries; raise --max-entries")
                        continue
                    found.extend(meet(list_name, wanted, stream, tenant, datetime.now(UTC)))
            except ScopeRefused as error:
                if error.code != "global_scope_forbidden" or len(scopes) == 1:
                    raise
                unseen.append("the global lists: this key may not see them")
                break
    show = _show_json if options.output == "json" else _show_text
    show(value, found, winners(found), unseen)
    return 0


def _show_text(value: str, found: Sequence[Found], won: Sequence[Match], unseen: Sequence[str]) -> None:
    if not found:
        print(f"No entry meets {value}.")
    for each in found:
        match = each.match
        mark = "expired" if each.expired else "acts" if match in won else "loses"
        comment = f"  {match.comment!r}" if match.comment else ""
        print(f"{mark:<8}{match.list_name:<20}{_scope(match.tenant):<8}{match.entry}  (as {each.reading}){comment}")
    for match in won:
        print(f"=> {match.list_name}, {_scope(match.tenant)}: {find_list(match.list_name).effect}")
    for sentence in unseen:
        print(f"not looked at: {sentence}")


def _show_json(value: str, found: Sequence[Found], won: Sequence[Match], unseen: Sequence[str]) -> None:
    record = {
        "value": value,
        "matches": [
            {
                "listName": each.match.list_name,
                "tenantUid": each.match.tenant,
                "entry": each.match.entry,
                "comment": each.match.comment,
                "reading": each.reading,
                "expired": each.expired,
                "acts": each.match in won and not each.expired,
                "effect": find_list(each.match.list_name).effect,
            }
            for each in found
        ],
        "notLookedAt": unseen,
    }
    print(json.dumps(record, indent=2, ensure_ascii=False, default=str))


def _scope(tenant: UUID | None) -> str:
    return "global" if tenant is None else "tenant"
