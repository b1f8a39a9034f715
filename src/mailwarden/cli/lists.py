"""`mailwarden lists`: shows and changes lists over the List API, in bulk from files as well."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TextIO
from uuid import UUID

import msgspec
from msgspec import UNSET

from mailwarden.cli.address import abby_authority, abby_url, add_address_options
from mailwarden.cli.command import Command
from mailwarden.cli.list_check import MAX_ENTRIES, run_check
from mailwarden.cli.list_import import run_import
from mailwarden.client import ApiError, ListsClient, NewEntry
from mailwarden.errors import CommandError
from mailwarden.lists.checking import READINGS
from mailwarden.lists.files import FORMS, read_moment, write_rows

KEY_VARIABLE = "MAILWARDEN_API_KEY"


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    ls = actions.add_parser("ls", help="show the lists")
    entries = actions.add_parser("entries", help="show the entries of a list")
    add = actions.add_parser("add", help="add or update entries")
    delete = actions.add_parser("delete", help="delete entries")
    bring = actions.add_parser(
        "import", help="add the entries of a file after a preview; continues after an interruption"
    )
    export = actions.add_parser("export", help="export all entries of a list")
    check = actions.add_parser("check", help="show the entries that match a value, and the one that wins")
    for action in (entries, add, delete, bring, export):
        action.add_argument("list", metavar="NAME", help="name of the list, as `mailwarden lists ls` shows it")
    for action in (add, delete):
        action.add_argument("entries", nargs="+", metavar="ENTRY", help="the entry, in any accepted spelling")
    for action in (add, bring):
        action.add_argument("--comment", help="comment of the entries (default: keep the existing one)")
        action.add_argument("--expires", type=_moment, metavar="WHEN", help="expiry, for example 2027-01-31")
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
    for action in actions.choices.values():
        action.add_argument("--tenant", type=UUID, metavar="UUID", help="the tenant's lists (default: the global ones)")
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
    try:
        with _client(options) as client:
            return ACTIONS[options.action](options, client)
    except ApiError as error:
        raise CommandError("\n".join([str(error), *map(_detail, error.details)])) from error


def _ls(options: argparse.Namespace, client: ListsClient) -> int:
    infos = client.lists(options.tenant)
    if options.output == "json":
        print(json.dumps(msgspec.to_builtins(infos), indent=2, ensure_ascii=False))
        return 0
    rows = [("LIST", "CATEGORY", "MAX SIZE", "WHAT AN ENTRY DOES")]
    rows += [
        (each.list_name, each.list_info.category, f"{each.list_info.max_size:,}", each.list_info.description)
        for each in infos
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, category, size, text in rows:
        print(f"{name:<{widths[0]}}  {category:<{widths[1]}}  {size:>{widths[2]}}  {text}")
    return 0


def _entries(options: argparse.Namespace, client: ListsClient) -> int:
    if options.output == "json":
        write_rows(client.entries(options.list, options.tenant), "ndjson", sys.stdout)
        return 0
    for each in client.entries(options.list, options.tenant):
        until = f"  until {each.expires}" if each.expires else ""
        print(f"{each.entry}{until}{f'  # {each.comment}' if each.comment else ''}")
    return 0


def _add(options: argparse.Namespace, client: ListsClient) -> int:
    comment = UNSET if options.comment is None else options.comment
    expires = UNSET if options.expires is None else options.expires
    entries = (NewEntry(entry, comment, expires) for entry in options.entries)
    return _tell(options, client.add(options.list, entries, options.tenant), "added or updated")


def _delete(options: argparse.Namespace, client: ListsClient) -> int:
    return _tell(options, client.delete(options.list, options.entries, options.tenant), "deleted")


def _export(options: argparse.Namespace, client: ListsClient) -> int:
    with _output(options.to) as out:
        write_rows(client.entries(options.list, options.tenant), options.output, out)
    return 0


ACTIONS: Mapping[str, Callable[[argparse.Namespace, ListsClient], int]] = {
    "ls": _ls,
    "entries": _entries,
    "add": _add,
    "delete": _delete,
    "import": run_import,
    "export": _export,
    "check": run_check,
}


@contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Give where to write; a file appears under its name only when it is whole."""
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


def _tell(options: argparse.Namespace, count: int, done: str) -> int:
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


def _client(options: argparse.Namespace) -> ListsClient:
    ca = abby_authority(options)
    try:
        return ListsClient(abby_url(options), _key(options), ca=ca)
    except ValueError as error:  # an address or a key that cannot be one
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


def _moment(text: str) -> datetime:
    try:
        return read_moment(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


COMMAND = Command(
    example="mailwarden lists add sender-block billing@scam.example --comment 'ticket 4711'",
    arguments=_arguments,
    run=_run,
)
