"""`mailwarden lists check`: which entries a value would meet, in which scope, and which of them would win."""

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from mailwarden.client import ListsClient, ScopeRefused
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.checking import Found, keys_for, meet, readings_of, winners
from mailwarden.lists.kinds.text import refang
from mailwarden.lists.precedence import Match

MAX_ENTRIES = 1_000_000


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
