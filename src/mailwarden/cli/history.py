"""`mailwarden history`: sends rejected rows again, creates the table in ClickHouse, and starts a migration."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.cli.command import Command, add_action, add_config_option, shown
from mailwarden.cli.database import query_database, with_driver_error
from mailwarden.cli.history_migrate import add_migrate_arguments, run_migrate
from mailwarden.cli.installation import read_installation
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.events.judged import JudgedEvents
from mailwarden.guard.config import GuardConfig
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.opening import open_clickhouse
from mailwarden.history.clickhouse.schema import prepare as create_table
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.history.writer import BATCH, group
from mailwarden.journal.records import decode
from mailwarden.journal.rejected import ClaimedRows, Line, claimed_rows
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.senders.lookup import SenderHistory
from mailwarden.settings.reader import read

ALL = Scope.deployment()
MAX_REASONS = 20
MAX_TEXT = 200


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    resend = add_action(
        actions,
        "resend",
        "write the rows of rejected.jsonl to history; those that fail again stay in the file",
        "runuser -u mailwarden -- mailwarden history resend",
    )
    resend.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="folder of a journal (default: journal.folder of guard.yml)"
    )
    resend.add_argument("--database-url", metavar="URL", help="PostgreSQL address (default: from guard.yml)")
    add_config_option(resend)
    prepare = add_action(
        actions,
        "prepare",
        "create the table of history on every replica of ClickHouse",
        "mailwarden history prepare",
    )
    add_config_option(prepare)
    add_action(
        actions,
        "migrate",
        "copy old rows of history to the store of the configuration, and verify them; it may be killed and repeated",
        "mailwarden history migrate --from postgresql --to clickhouse",
        add_migrate_arguments,
    )


class _Sent(Struct, frozen=True):
    stored: int
    left: tuple[Line, ...]

    def __add__(self, other: "_Sent") -> "_Sent":
        return _Sent(self.stored + other.stored, self.left + other.left)


class _Row(Struct, frozen=True):
    line: Line
    request: FinishedRequest


def _run(options: argparse.Namespace) -> int:
    runs = {"prepare": _prepare, "migrate": run_migrate, "resend": _resend_rejected}
    return runs[options.action](options)


def _prepare(options: argparse.Namespace) -> int:
    settings = read(options.config / ABBY_PATH, AbbyConfig).history
    clickhouse = open_clickhouse(settings, options.config)
    if clickhouse is None:
        raise CommandError(f"history.store in {ABBY_PATH} is postgresql: set it to clickhouse, with clickhouse.urls.")
    try:
        lines = asyncio.run(_create_table(clickhouse, replicated=settings.clickhouse.replicated))
    except StorageUnavailable as error:
        raise CommandError(with_driver_error(error)) from None
    print("\n".join(lines))
    return 0


async def _create_table(clickhouse: Clickhouse, *, replicated: bool) -> list[str]:
    try:
        return await create_table(clickhouse, replicated=replicated)
    finally:
        await clickhouse.close()


def _resend_rejected(options: argparse.Namespace) -> int:
    installation = read_installation(options.config)
    config = installation.guard
    if config is None:
        raise CommandError(f"{options.config} has no guard.yml: run the command on the host of the guard.")
    options.database_url = options.database_url or config.database.url
    with claimed_rows(options.folder or installation.folders()["journal"]) as rows:
        if rows is None:
            print("No rejected rows.")
            return 0
        sent = query_database(options, lambda database: _resend(options.config, database, config, rows))
        rows.finish(sent.left)
    print(f"{sent.stored + len(sent.left)} rows: {sent.stored} stored, {len(sent.left)} rejected again.")
    reasons = Counter(each.aside.reason if each.aside else "the line is unreadable" for each in sent.left)
    for reason, count in reasons.most_common(MAX_REASONS):
        print(f"  {count} × {shown(reason[:MAX_TEXT])}")
    return 1 if sent.left else 0


async def _resend(folder: Path, database: Database, config: GuardConfig, rows: ClaimedRows) -> _Sent:
    clickhouse = open_clickhouse(config.history, folder)
    store = open_history(database, JudgedEvents(config.events.judged, config.events.sample), clickhouse=clickhouse)
    senders = SenderHistory(store.senders)
    sent = _Sent(0, ())
    try:
        while lines := rows.read(BATCH):
            readable, left = _decoded(lines)
            sent += _Sent(0, left) + await _send(store, senders, readable)
    finally:
        await senders.stop()
        if clickhouse is not None:
            await clickhouse.close()
    return sent


def _decoded(lines: Sequence[Line]) -> tuple[list[_Row], tuple[Line, ...]]:
    """Return the rows, and the lines that this version cannot read."""
    rows: list[_Row] = []
    left: list[Line] = []
    for line in lines:
        try:
            if line.aside is None:
                left.append(line)
            else:
                rows.append(_Row(line, decode(bytes(line.aside.record))))
        except Exception as error:
            left.append(line.rejected_for(f"{type(error).__name__}: {error}"))
    return rows, tuple(left)


async def _send(store: HistoryStore, senders: SenderHistory, rows: Sequence[_Row]) -> _Sent:
    """Write the rows as guard does; an outage raises, every other error costs one row."""
    if not rows:
        return _Sent(0, ())
    try:
        grouped = await group(store.campaigns, [row.request for row in rows])
        saved = await store.save(ALL, grouped, await senders.counting())
    except StorageUnavailable:
        raise
    except Exception as error:
        if len(rows) == 1:
            return _Sent(0, (rows[0].line.rejected_for(f"{type(error).__name__}: {error}"),))
        middle = len(rows) // 2
        return await _send(store, senders, rows[:middle]) + await _send(store, senders, rows[middle:])
    for counts in saved.counts:
        senders.stored(counts)
    reasons = {(bad.request.ggrid, bad.request.tenant): bad.reason for bad in saved.rejected}
    left = tuple(
        row.line.rejected_for(reasons[key])
        for row in rows
        if (key := (row.request.ggrid, row.request.tenant)) in reasons
    )
    return _Sent(len(rows) - len(left), left)


COMMAND = Command(example="mailwarden history resend", arguments=_arguments, run=_run)
