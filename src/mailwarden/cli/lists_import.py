"""`mailwarden lists import`: adds or replaces entries from a file, and continues after an interruption."""

import argparse
import hashlib
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct, UnsetType

from mailwarden.cli.progress import Progress
from mailwarden.errors import CommandError
from mailwarden.lists.catalogue import ListDefinition, find_list
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
)
from mailwarden.lists.requests import PublicListsEntry
from mailwarden_client import KEEP, ApiError, Client, EntryStream, NewEntry, StreamCut
from mailwarden_client.requests import Keep

T = TypeVar("T")
_line = msgspec.json.Decoder(PublicListsEntry)

CALL = 500
SHOWN = 20
STATE_SUFFIX = ".import-state"


def decoded(stream: EntryStream) -> Iterator[PublicListsEntry]:
    """Yield the entries as the records of the List API: a list may have millions, and files have the API's names."""
    for block in stream.blocks():
        try:
            yield from _line.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StreamCut(f"A line cannot be read ({error}).", request_id=stream.request_id) from None


def kept(value: T | UnsetType) -> T | Keep:
    return KEEP if isinstance(value, UnsetType) else value


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
            total = seen.rows if plan.lines_to_send is None else len(plan.lines_to_send)
            wanted = (row for row in rows if plan.sends(row))
            # A comparison with the list needs no saved state: the list shows which entries are missing.
            sent, modified = _send(options, client, wanted, total, state if plan.lines_to_send is None else None)
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
    if plan.lines_to_send is None:
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
        plan = compare(seen.last, decoded(stream), options.comment if options.prune else None)
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
    if options.yes or (plan.lines_to_send is not None and not plan.lines_to_send and not plan.gone):
        return True
    if not sys.stdin.isatty():
        raise CommandError("Nothing was sent: say --yes to go on without being asked.")
    number = seen.rows if plan.lines_to_send is None else len(plan.lines_to_send)
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
                entries = (NewEntry(row.entry, kept(row.comment), kept(row.expires)) for row in fresh)
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
        compared = plan.lines_to_send is not None
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
