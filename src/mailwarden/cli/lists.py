"""`mailwarden lists`: shows and changes lists over the List API, also in bulk from files."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO
from uuid import UUID

import msgspec

from mailwarden.cli.command import (
    Command,
    abby_authority,
    abby_url,
    add_action,
    add_address_options,
    add_expires_option,
)
from mailwarden.cli.database import tenant_uid
from mailwarden.cli.lists_import import decoded, run_import
from mailwarden.errors import CommandError
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.checking import READINGS, Found, keys_for, match_entries, readings_of, winners
from mailwarden.lists.files import (
    FORMS,
    write_rows,
)
from mailwarden.lists.kinds.kind import refang
from mailwarden.lists.matching import Match
from mailwarden.lists.requests import ListFileInfo, ListInfo, PublicListsEntry
from mailwarden_client import KEEP, ApiError, Client, NewEntry, ScopeRefused

KEY_VARIABLE = "MAILWARDEN_API_KEY"

MAX_ENTRIES = 1_000_000


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    ls = add_action(actions, "list", "show the lists", "mailwarden lists list --tenant acme")
    entries = add_action(actions, "entries", "show the entries of a list", "mailwarden lists entries sender-block")
    add = add_action(
        actions, "add", "add or update entries", "mailwarden lists add sender-block billing@scam.example --expires 30d"
    )
    delete = add_action(
        actions, "delete", "delete entries", "mailwarden lists delete sender-block billing@scam.example"
    )
    bring = add_action(
        actions,
        "import",
        "add the entries of a file after a preview; continues after an interruption",
        "mailwarden lists import url-block feed.csv --comment 'feed 7' --prune",
    )
    export = add_action(
        actions,
        "export",
        "export all entries of a list",
        "mailwarden lists export sender-block -o csv --to senders.csv",
    )
    check = add_action(
        actions,
        "check",
        "show the entries that match a value, and the one that wins",
        "mailwarden lists check https://login.scam.example/ --tenant acme",
    )
    for action in (entries, add, delete, bring, export):
        action.add_argument("list", metavar="NAME", help="name of the list, as `mailwarden lists list` shows it")
    for action in (add, delete):
        action.add_argument("entries", nargs="+", metavar="ENTRY", help="the entry, in any accepted spelling")
    for action in (add, bring):
        action.add_argument("--comment", help="comment of the entries (default: keep the existing one)")
        add_expires_option(action)
    _add_import_options(bring)
    export.add_argument("-o", "--output", choices=FORMS, default="ndjson", help="file format (default: ndjson)")
    export.add_argument(
        "--to", type=Path, metavar="FILE", help="output file, written when complete (default: standard output)"
    )
    check.add_argument("value", metavar="VALUE", help="an address, domain, IP address, URL, hash, file name or subject")
    check.add_argument(
        "--as", dest="reading", choices=READINGS, help="how to interpret the value (default: by its form)"
    )
    check.add_argument(
        "--max-entries", type=int, default=MAX_ENTRIES, metavar="N",
        help=f"skip lists with more entries (default: {MAX_ENTRIES:,})",
    )  # fmt: skip
    for action in (ls, entries, add, delete, bring, check):
        action.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format")
    for action in (ls, entries, add, delete, bring, export, check):
        action.add_argument("--tenant", metavar="TENANT", help="name or UUID of the tenant (default: the global lists)")
        action.add_argument("--key-file", type=Path, help=f"file with the API key (default: ${KEY_VARIABLE})")
        add_address_options(action)


def _add_import_options(bring: argparse.ArgumentParser) -> None:
    bring.add_argument("file", metavar="FILE", help="CSV, TXT or NDJSON, or - for standard input")
    bring.add_argument("--format", choices=FORMS, help="file format (default: by its name)")
    bring.add_argument(
        "--no-compare", action="store_true", help="send all entries without comparing: for very large lists"
    )
    bring.add_argument("--dry-run", action="store_true", help="show the preview only")
    bring.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    bring.add_argument("--skip-invalid", action="store_true", help="skip invalid lines (default: stop)")
    bring.add_argument(
        "--prune", action="store_true", help="delete entries with the same --comment that are no longer in the file"
    )


def _run(options: argparse.Namespace) -> int:
    if options.tenant is not None:
        options.tenant = tenant_uid(options, options.tenant)
    try:
        with _client(options) as client:
            return ACTIONS[options.action](options, client)
    except ApiError as error:
        raise CommandError("\n".join([str(error), *map(_detail, error.details)])) from error


def _ls(options: argparse.Namespace, client: Client) -> int:
    infos = client.lists(options.tenant)
    if options.output == "json":
        shown = [ListFileInfo(info.list_name, ListInfo(**asdict(info.list_info))) for info in infos]
        print(json.dumps(msgspec.to_builtins(shown), indent=2, ensure_ascii=False))
        return 0
    rows = [("LIST", "CATEGORY", "MAX SIZE", "WHAT AN ENTRY DOES")]
    rows += [
        (info.list_name, info.list_info.category, f"{info.list_info.max_size:,}", info.list_info.description)
        for info in infos
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, category, size, text in rows:
        print(f"{name:<{widths[0]}}  {category:<{widths[1]}}  {size:>{widths[2]}}  {text}")
    return 0


def _entries(options: argparse.Namespace, client: Client) -> int:
    if options.output == "json":
        write_rows(_stored(client, options), "ndjson", sys.stdout)
        return 0
    for each in _stored(client, options):
        until = f"  until {each.expires}" if each.expires else ""
        print(f"{each.entry}{until}{f'  # {each.comment}' if each.comment else ''}")
    return 0


def _stored(client: Client, options: argparse.Namespace) -> Iterator[PublicListsEntry]:
    with client.stream_entries(options.list, options.tenant) as stream:
        yield from decoded(stream)


def _add(options: argparse.Namespace, client: Client) -> int:
    comment = KEEP if options.comment is None else options.comment
    expires = KEEP if options.expires is None else options.expires
    entries = (NewEntry(entry, comment, expires) for entry in options.entries)
    return _print_count(options, client.add_entries(options.list, entries, options.tenant), "added or updated")


def _delete(options: argparse.Namespace, client: Client) -> int:
    return _print_count(options, client.delete_entries(options.list, options.entries, options.tenant), "deleted")


def _export(options: argparse.Namespace, client: Client) -> int:
    with _output(options.to) as out:
        write_rows(_stored(client, options), options.output, out)
    return 0


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Yield the output stream; a file gets its name only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", newline="", dir=path.parent, delete=False) as draft:
        try:
            yield draft  # type: ignore[misc]  # the wrapper is a TextIO in all that is used of it
            draft.flush()
            os.fsync(draft.fileno())
            Path(draft.name).replace(path)
        except BaseException:
            Path(draft.name).unlink()
            raise


def _print_count(options: argparse.Namespace, count: int, done: str) -> int:
    if options.output == "json":
        print(json.dumps({"modifiedEntries": count}))
    else:
        scope = "global" if options.tenant is None else f"tenant {options.tenant}"
        print(f"{count:,} {'entry' if count == 1 else 'entries'} {done} in {options.list} ({scope}).")
    return 0


def _detail(detail: Mapping[str, object]) -> str:
    if "entry" in detail:
        return f"  {detail['entry']!r}: {detail.get('reason', '')}"
    return f"  {detail.get('pointer', '')}: {detail.get('problem', '')}"


def _client(options: argparse.Namespace) -> Client:
    ca = abby_authority(options)
    try:
        return Client(abby_url(options), _key(options), ca=ca)
    except ValueError as error:  # an invalid address or key
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(f"Cannot read the certificate authority {ca}: {error.strerror}.") from None


def _key(options: argparse.Namespace) -> str:
    if options.key_file is None:
        if key := os.environ.get(KEY_VARIABLE, "").strip():
            return key
        raise CommandError(f"Give an API key: --key-file FILE or ${KEY_VARIABLE}. `mailwarden keys create` makes one.")
    try:
        return str(options.key_file.read_text()).strip()
    except OSError as error:
        raise CommandError(f"Cannot read the API key from {options.key_file}: {error.strerror}.") from None


def run_check(options: argparse.Namespace, client: Client) -> int:
    value = refang(options.value.strip())
    keys = keys_for(value, (options.reading,) if options.reading else readings_of(value))
    scopes = [options.tenant, None] if options.tenant else [None]
    found: list[Found] = []
    unseen: list[str] = []
    for tenant in scopes:
        for list_name, wanted in keys.items():
            try:
                with client.stream_entries(list_name, tenant) as stream:
                    if stream.count > options.max_entries:
                        unseen.append(f"{list_name} ({_scope(tenant)}): {stream.count:,} entries; raise --max-entries")
                        continue
                    found.extend(match_entries(list_name, wanted, decoded(stream), tenant, datetime.now(UTC)))
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
        print(f"No entry matches {value}.")
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


ACTIONS: Mapping[str, Callable[[argparse.Namespace, Client], int]] = {
    "list": _ls,
    "entries": _entries,
    "add": _add,
    "delete": _delete,
    "import": run_import,
    "export": _export,
    "check": run_check,
}


COMMAND = Command(
    example="mailwarden lists add sender-block billing@scam.example --comment 'ticket 4711'",
    arguments=_arguments,
    run=_run,
)
