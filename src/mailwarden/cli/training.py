"""`mailwarden training`: creates, lists and withdraws reports of messages, and resets the training of a tenant."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import msgspec

from mailwarden.access.tenant_store import TenantStore
from mailwarden.cli.command import Command, add_action, by_action, operator, print_json, shown, table
from mailwarden.cli.database import add_query_options, find_tenant
from mailwarden.cli.progress import Progress
from mailwarden.cli.report_services import ReportServices, with_services
from mailwarden.errors import CommandError, EmptyEmail, ReportNotFound, TrainingFull
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant
from mailwarden.user_reports.api import report_of, training_of
from mailwarden.user_reports.reports import (
    Kind,
    MessageCollector,
    ReportedMessage,
    TrainingState,
    TrainingStatus,
    UserReport,
)
from mailwarden.user_reports.requests import ReportKind
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import MAX_PAGE, ReportStore

ALL = Scope.deployment()
_STAYS = {TrainingState.NOT_STORED: "too large for training"}


BLOCK = 262_144
ENDINGS = (".eml", ".mbox")  # of message files in a folder
_MAILBOX = b"From "  # the start of a mailbox, never of a message
_EMPTY_END = re.compile(rb"(?<=\n)\r?\n\Z")


@dataclass(frozen=True, slots=True)
class MessageFile:
    """One message: its name for people, and the function that reads it."""

    name: str
    read: Callable[[], ReportedMessage]


def find_messages(places: Sequence[Path]) -> Sequence[MessageFile]:
    """Return every message in these files and folders, ordered by name; none of them is kept in memory."""
    found: list[MessageFile] = []
    for place in places:
        files = sorted(_files_in(place)) if place.is_dir() else [place]
        if not files:
            raise CommandError(f"{place} holds no file that ends in {' or '.join(ENDINGS)}.")
        for file in files:
            found.extend(_messages_of(file))
    return found


def _files_in(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())


def _messages_of(file: Path) -> Iterator[MessageFile]:
    try:
        with file.open("rb") as stream:
            is_mailbox = stream.read(len(_MAILBOX)) == _MAILBOX
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
    if not is_mailbox:
        yield MessageFile(str(file), partial(_read, file))
        return
    for number, (start, end) in enumerate(pairwise(_separator_positions(file)), 1):
        yield MessageFile(f"{file}:{number}", partial(_read_mbox_message, file, start, end))


def _separator_positions(file: Path) -> Sequence[int]:
    """Return the positions of the lines that separate messages (From, after an empty line), and the end of the file."""
    found: list[int] = []
    position, after_empty, at_start = 0, True, True
    with file.open("rb") as stream:
        while piece := stream.readline(BLOCK):
            if after_empty and piece.startswith(_MAILBOX):
                found.append(position)
            after_empty = at_start and piece in (b"\n", b"\r\n")
            at_start = piece.endswith(b"\n")
            position += len(piece)
    return [*found, position]


def _read_mbox_message(file: Path, start: int, end: int) -> ReportedMessage:
    """Read one message of a mailbox, without its separator line and the empty line before the next one."""
    with file.open("rb") as stream:
        stream.seek(start)
        stream.readline()
        letter = stream.read(end - stream.tell())
    return ReportedMessage.of(_EMPTY_END.sub(b"", letter))


def _read(file: Path) -> ReportedMessage:
    intake = MessageCollector()
    try:
        with file.open("rb") as stream:
            while block := stream.read(BLOCK):
                intake.add(block)
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}.") from None
    return intake.finish()


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = add_action(
        actions,
        "add",
        "report messages and train with them",
        "mailwarden training add phish/ --tenant acme --kind phishing",
    )
    add.add_argument(
        "files", nargs="+", type=Path, metavar="FILE",
        help="a raw message, an mbox file, or a folder of .eml and .mbox files",
    )  # fmt: skip
    add.add_argument("--kind", required=True, choices=[kind.value for kind in ReportKind], help="kind of the messages")
    ls = add_action(actions, "list", "show a tenant's reports, newest first", "mailwarden training list --tenant acme")
    ls.add_argument(
        "--limit",
        type=int,
        default=50,
        metavar="NUMBER",
        help=f"maximum number of rows (default: 50, at most {MAX_PAGE})",
    )
    undo = add_action(actions, "undo", "undo reports and train again without them", "mailwarden training undo UID")
    undo.add_argument(
        "uids", nargs="+", type=UUID, metavar="UID", help="a report, as `mailwarden training list` shows it"
    )
    reset = add_action(
        actions, "reset", "delete all reports and statistics of a tenant", "mailwarden training reset --tenant acme"
    )
    rebuild = add_action(
        actions,
        "rebuild",
        "train again with all reports of a tenant, for example after a loss of Redis",
        "mailwarden training rebuild --tenant acme",
    )
    status = add_action(
        actions,
        "status",
        "show the number of trained messages, and whether it is sufficient",
        "mailwarden training status",
    )
    for action in (add, ls, reset, rebuild, status):
        action.add_argument(
            "--tenant", required=action is not status, metavar="TENANT", help="name or UUID of the tenant"
        )
    add_query_options(add, ls, undo, reset, rebuild, status)


def _add(options: argparse.Namespace) -> int:
    messages = find_messages(options.files)

    async def add(services: ReportServices) -> list[tuple[str, UserReport | None]]:
        tenant = await find_tenant(services.database, options.tenant)
        with Progress(f"reporting to {tenant.name}", len(messages)) as progress:
            return await _report_all(services.reports, tenant, Kind(options.kind), messages, progress)

    reported = with_services(options, add)
    kept = [(name, report) for name, report in reported if report is not None]
    if options.output == "json":
        print_json([{"file": name, **_record(report)} for name, report in kept])
    else:
        for name, report in kept:
            print(f"{report.uid}  {_STAYS.get(report.state, report.state)}  {name}")
    empty = len(reported) - len(kept)
    left_out = f"; {empty} are empty and were left out" if empty else ""
    print(f"{len(kept)} of {len(reported)} messages are reported as {options.kind}{left_out}.", file=sys.stderr)
    return 1 if empty else 0


async def _report_all(
    service: ReportService, tenant: Tenant, kind: Kind, messages: Sequence[MessageFile], progress: Progress
) -> list[tuple[str, UserReport | None]]:
    """Report one message after the other; an empty one does not stop the others."""
    done: list[tuple[str, UserReport | None]] = []
    for message in messages:
        report: UserReport | None = None
        try:
            report = await service.report_contents(ALL, tenant.uid, kind, operator(), contents=message.read())
        except EmptyEmail:
            print(f"mailwarden: {message.name} is empty.", file=sys.stderr)
        except TrainingFull as error:
            raise CommandError(f"{error.message} {len(done)} of {len(messages)} messages were taken.") from None
        done.append((message.name, report))
        progress.advance(1)
    return done


def _list(options: argparse.Namespace) -> int:
    async def find(services: ReportServices) -> Sequence[UserReport]:
        tenant = await find_tenant(services.database, options.tenant)
        return await services.reports.reports(ALL, tenant.uid, limit=max(1, options.limit))

    reports = with_services(options, find)
    if options.output == "json":
        print_json([_record(report) for report in reports])
        return 0
    rows = [("UID", "KIND", "STATE", "REPORTED", "BY", "SUBJECT")]
    for report in reports:
        moment = report.reported_at.strftime("%Y-%m-%d %H:%M")
        rows.append((str(report.uid), report.kind, report.state, moment, report.reported_by, shown(report.subject)))
    print(table(rows))
    return 0


def _undo(options: argparse.Namespace) -> int:
    async def undo(services: ReportServices) -> None:
        for uid in options.uids:
            try:
                await services.reports.withdraw(ALL, uid, operator())
            except ReportNotFound:
                raise CommandError(f"There is no report {uid}; `mailwarden training list` shows them.") from None

    with_services(options, undo)
    if options.output == "json":
        print_json({"withdrawn": options.uids})
    else:
        print(f"Withdrawn: {len(options.uids)}. A guard rebuilds the statistics; the old ones stay in use until then.")
    return 0


def _reset(options: argparse.Namespace) -> int:
    async def reset(services: ReportServices) -> tuple[Tenant, int]:
        tenant = await find_tenant(services.database, options.tenant)
        return tenant, await services.reports.reset(ALL, tenant.uid, operator())

    tenant, gone = with_services(options, reset)
    if options.output == "json":
        print_json({"deleted": gone})
    else:
        print(f"Deleted {gone} reports of {tenant.name}. The statistics trained from them are deleted within seconds.")
    return 0


def _rebuild(options: argparse.Namespace) -> int:
    async def rebuild(services: ReportServices) -> Tenant:
        tenant = await find_tenant(services.database, options.tenant)
        await services.reports.rebuild(ALL, tenant.uid, operator())
        return tenant

    tenant = with_services(options, rebuild)
    if options.output == "json":
        print_json({"tenantUid": tenant.uid, "rebuilding": True})
    else:
        print(f"All reports of {tenant.name} are trained again; `mailwarden training status` shows the progress.")
    return 0


def _status(options: argparse.Namespace) -> int:
    async def ask(services: ReportServices) -> list[tuple[str, TrainingStatus]]:
        if options.tenant is not None:
            tenant = await find_tenant(services.database, options.tenant)
            return [(tenant.name, await services.reports.status(ALL, tenant.uid))]
        names = {tenant.uid: tenant.name for tenant in await TenantStore(services.database).list(ALL)}
        statuses = await ReportStore(services.database).statuses(ALL)
        return sorted(((names.get(status.tenant, ""), status) for status in statuses), key=lambda pair: pair[0])

    found = with_services(options, ask)
    if options.output == "json":
        print_json([{"name": name, **_builtins(training_of(status))} for name, status in found])
        return 0
    rows = [("TENANT", "THREATS", "GOOD", "WAITING", "ACTIVE")]
    for name, each in found:
        active = "yes" if each.active else "not yet"
        words = f"{active}, being rebuilt" if each.rebuilding else active
        rows.append((name, str(each.threats), str(each.good), str(each.waiting), words))
    print(table(rows) if found else "No tenant has training reports yet.")
    return 0


def _record(report: UserReport) -> dict[str, object]:
    return _builtins(report_of(report))


def _builtins(record: msgspec.Struct) -> dict[str, object]:
    return msgspec.convert(msgspec.to_builtins(record), dict[str, object])


COMMAND = Command(
    example="mailwarden training add phish/ --tenant acme --kind phishing",
    arguments=_arguments,
    run=by_action(add=_add, list=_list, undo=_undo, reset=_reset, rebuild=_rebuild, status=_status),
)
