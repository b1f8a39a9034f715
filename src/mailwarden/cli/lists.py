"""`mailwarden lists`: shows and changes lists over the List API, also in bulk from files."""

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TextIO, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct, UnsetType

from mailwarden.cli.command import (
    Command,
    Progress,
    abby_authority,
    abby_url,
    add_action,
    add_address_options,
    add_expires_option,
)
from mailwarden.cli.database import tenant_uid
from mailwarden.errors import CommandError
from mailwarden.lists.catalogue import ListDefinition, find_list
from mailwarden.lists.checking import READINGS, Found, keys_for, match_entries, readings_of, winners
from mailwarden.lists.files import (
    FORMS,
    MAX_COMPARED,
    BadRow,
    Plan,
    Row,
    Survey,
    compare,
    form_of_name,
    normalised,
    open_text,
    read_rows,
    survey,
    write_rows,
)
from mailwarden.lists.kinds.kind import refang
from mailwarden.lists.matching import Match
from mailwarden.lists.requests import ListFileInfo, ListInfo, PublicListsEntry
from mailwarden_client import KEEP, ApiError, Client, EntryStream, NewEntry, ScopeRefused, StreamCut
from mailwarden_client.requests import Keep

KEY_VARIABLE = "MAILWARDEN_API_KEY"
T = TypeVar("T")
_line = msgspec.json.Decoder(PublicListsEntry)


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
        shown = [ListFileInfo(each.list_name, ListInfo(**asdict(each.list_info))) for each in infos]
        print(json.dumps(msgspec.to_builtins(shown), indent=2, ensure_ascii=False))
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
        yield from _decoded(stream)


def _decoded(stream: EntryStream) -> Iterator[PublicListsEntry]:
    """Yield the entries as the records of the List API: a list may have millions, and files have the API's names."""
    for block in stream.blocks():
        try:
            yield from _line.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StreamCut(f"A line cannot be read ({error}).", request_id=stream.request_id) from None


def _kept(value: T | UnsetType) -> T | Keep:
    return KEEP if isinstance(value, UnsetType) else value


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


MAX_ENTRIES = 1_000_000


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
                    found.extend(match_entries(list_name, wanted, _decoded(stream), tenant, datetime.now(UTC)))
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


CALL = 500
SHOWN = 20
STATE_SUFFIX = ".import-state"


class ImportState(Struct, frozen=True):
    """The progress of an import: lines up to `line` of the file with this digest are in the list."""

    digest: str
    target: str
    line: int


def run_import(options: argparse.Namespace, client: Client) -> int:
    if options.prune and options.comment is None:
        raise CommandError("--prune deletes the entries of one feed, known by their comment: say --comment as well.")
    if options.output == "json" and not (options.yes or options.dry_run):
        raise CommandError("-o json cannot ask for confirmation: add --yes or --dry-run.")
    definition = find_list(options.list)
    form = form_of(options.file, options.format)
    with _local(options.file) as path:
        place = f"{options.url or options.config} {options.tenant} {options.list}"
        target = f"{place} {form} {options.comment} {options.expires}"
        state = StateFile(None if options.file == "-" else path.with_name(path.name + STATE_SUFFIX), path, target)
        seen = survey(_rows(path, form, definition, options), 0 if options.no_compare else MAX_COMPARED)
        plan = _plan(options, client, seen, definition)
        if options.output == "text":
            print(render_preview(options.list, seen, plan, state.line))
        _check(options, seen)
        sent = modified = deleted = 0
        if not options.dry_run and _confirmed(options, seen, plan):
            rows = (row for row in _rows(path, form, definition, options) if isinstance(row, Row))
            total = seen.rows if plan.wanted is None else len(plan.wanted)
            wanted = (row for row in rows if plan.sends(row))
            # A comparison with the list needs no saved state: the list shows which entries are missing.
            sent, modified = _send(options, client, wanted, total, state if plan.wanted is None else None)
            deleted = client.delete_entries(options.list, plan.gone, options.tenant) if plan.gone else 0
            state.forget()
    _report(options, seen, plan, {"sent": sent, "modifiedEntries": modified, "deletedEntries": deleted})
    return 0


def form_of(path: str, named: str | None) -> str:
    """Return the given format, or the one of the file's extension."""
    form = named or form_of_name(path)
    if form is None:
        raise CommandError(f"The name {path} has no known extension; add --format {', '.join(FORMS)}.")
    return form


class StateFile:
    """Stores the progress of an import beside the file; another content or another list starts again."""

    def __init__(self, path: Path | None, content: Path, target: str) -> None:
        self._path = path
        self._digest = _digest(content)
        self._target = target
        self.line = self._read()

    def remember(self, line: int) -> None:
        if self._path is not None:
            state = ImportState(self._digest, self._target, line)
            draft = self._draft(self._path)
            draft.write_bytes(msgspec.json.encode(state))
            draft.replace(self._path)

    def forget(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._draft(self._path).unlink(missing_ok=True)

    @staticmethod
    def _draft(path: Path) -> Path:
        return path.with_name(f"{path.name}.new")

    def _read(self) -> int:
        try:
            raw = b"" if self._path is None else self._path.read_bytes()
            state = msgspec.json.decode(raw, type=ImportState)
        except (OSError, msgspec.DecodeError):
            return 0
        return state.line if (state.digest, state.target) == (self._digest, self._target) else 0


def render_preview(list_name: str, seen: Survey, plan: Plan, resumed: int) -> str:
    """Return the planned changes as text."""
    lines = [f"{list_name}: {_number(seen.rows, 'entry', 'entries')} in the file"]
    if plan.wanted is None:
        lines.append("  not compared with the list: all are sent")
        if resumed:
            lines.append(f"  continued after line {resumed:,}")
    else:
        lines.append(f"  new        {plan.new:>10,}")
        lines.append(f"  changed    {plan.changed:>10,}")
        lines.append(f"  unchanged  {plan.unchanged:>10,}")
        lines += [f"  repeated   {seen.repeated:>10,}  (the last one counts)"] if seen.repeated else []
        lines += [f"  to delete  {len(plan.gone):>10,}  (same comment, no longer in the file)"] if plan.gone else []
    lines.append(f"  invalid    {seen.invalid:>10,}")
    lines += [f"    line {bad.line}: {bad.text!r}: {bad.reason}" for bad in seen.mistakes[:SHOWN]]
    if seen.invalid > SHOWN:
        lines.append(f"    and {seen.invalid - SHOWN:,} more")
    return "\n".join(lines)


def _rows(path: Path, form: str, definition: ListDefinition, options: argparse.Namespace) -> Iterator[Row | BadRow]:
    with open_text(path) as file:
        yield from normalised(definition, read_rows(file, form), options.comment, options.expires)


def _plan(options: argparse.Namespace, client: Client, seen: Survey, definition: ListDefinition) -> Plan:
    if seen.last is None:
        if options.prune:
            raise CommandError(f"--prune has to compare, which goes up to {MAX_COMPARED:,} entries.")
        return Plan()
    if options.prune and not seen.last:
        raise CommandError("The file holds no valid entry; with --prune that would empty the feed.")
    with client.stream_entries(options.list, options.tenant) as stream:
        plan = compare(seen.last, _decoded(stream), options.comment if options.prune else None)
        room = definition.max_size(in_tenant=options.tenant is not None) - stream.count
    if plan.new > room:
        raise CommandError(f"{plan.new:,} entries are new, and {options.list} has room for {room:,}.")
    return plan


def _check(options: argparse.Namespace, seen: Survey) -> None:
    if seen.invalid and not (options.skip_invalid or options.dry_run):
        first = seen.mistakes[0]
        raise CommandError(
            f"{_number(seen.invalid, 'line is', 'lines are')} invalid, the first is line {first.line}: {first.reason} "
            "Nothing was sent. Fix the file, or add --skip-invalid."
        )


def _confirmed(options: argparse.Namespace, seen: Survey, plan: Plan) -> bool:
    if options.yes or (plan.wanted is not None and not plan.wanted and not plan.gone):
        return True
    if not sys.stdin.isatty():
        raise CommandError("Nothing was sent: say --yes to go on without being asked.")
    number = seen.rows if plan.wanted is None else len(plan.wanted)
    gone = f" and delete {len(plan.gone):,}" if plan.gone else ""
    print(f"Send {number:,}{gone}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _send(
    options: argparse.Namespace, client: Client, rows: Iterable[Row], total: int, state: StateFile | None
) -> tuple[int, int]:
    """Send the rows in calls of 500 and save the progress after each; return the number of rows and the count."""
    sent = modified = 0
    left = iter(rows)
    with Progress(options.list, total) as progress:
        while batch := list(islice(left, CALL)):
            fresh = [row for row in batch if state is None or row.line > state.line]
            try:
                entries = (NewEntry(row.entry, _kept(row.comment), _kept(row.expires)) for row in fresh)
                modified += client.add_entries(options.list, entries, options.tenant)
            except ApiError as error:
                raise CommandError(_placed(error, fresh, options.file)) from error
            sent += len(fresh)
            if fresh and state is not None:
                state.remember(fresh[-1].line)
            progress.advance(len(batch))
    return sent, modified


def _placed(error: ApiError, rows: list[Row], file: str) -> str:
    """Return the error with the affected lines and the remedy."""
    places = [_place(error, rows, detail) for detail in error.details[:SHOWN]]
    again = "" if file == "-" else " Say the same again to go on from there."
    return "\n".join([f"{error}{again}", *(place for place in places if place)])


def _place(error: ApiError, rows: list[Row], detail: object) -> str:
    index = detail.get("index") if isinstance(detail, dict) else None
    if not isinstance(index, int) or error.acknowledged + index >= len(rows):
        return ""
    row = rows[error.acknowledged + index]
    return f"  line {row.line}: {row.entry!r}: {detail.get('reason', '')}" if isinstance(detail, dict) else ""


def _report(options: argparse.Namespace, seen: Survey, plan: Plan, done: dict[str, int]) -> None:
    if options.output == "json":
        compared = plan.wanted is not None
        record = {
            "list": options.list,
            "tenantUid": options.tenant,
            "entries": seen.rows,
            "new": plan.new if compared else None,
            "changed": plan.changed if compared else None,
            "unchanged": plan.unchanged if compared else None,
            "repeated": seen.repeated if compared else None,
            "invalid": seen.invalid,
            "mistakes": [msgspec.to_builtins(bad) for bad in seen.mistakes],
            **done,
        }
        print(json.dumps(record, indent=2, ensure_ascii=False, default=str))
    elif done["sent"] or done["deletedEntries"]:
        deleted = f", {done['deletedEntries']:,} deleted" if plan.gone else ""
        print(f"{done['modifiedEntries']:,} added or updated{deleted}.")
    else:
        print("Nothing was sent.")


@contextmanager
def _local(name: str) -> Iterator[Path]:
    """Yield the path of the file; standard input is copied to a file, because it is read twice."""
    if name != "-":
        path = Path(name)
        if not path.is_file():
            raise CommandError(f"There is no file {name}.")
        yield path
        return
    with tempfile.NamedTemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        yield Path(copy.name)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"


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
