"""`mailwarden history`: sends rejected rows again, creates the table in ClickHouse, copies rows to another store."""

import argparse
import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import date
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.cli.command import Command, add_action, add_config_option, by_action, shown
from mailwarden.cli.database import query_database, with_driver_error
from mailwarden.cli.installation import read_installation
from mailwarden.cli.progress import Progress
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.events.scanned import ScannedEvents
from mailwarden.guard.config import GuardConfig
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.clickhouse.opening import open_clickhouse
from mailwarden.history.clickhouse.schema import check_replicas, check_table
from mailwarden.history.clickhouse.schema import prepare as create_table
from mailwarden.history.clickhouse.table import ClickhouseTable
from mailwarden.history.migration import Copied, DayCheck, HistoryTable, check_day, copy_day, through_outages
from mailwarden.history.opening import open_history
from mailwarden.history.postgresql.table import PostgresqlTable
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
STORES = ("postgresql", "clickhouse")
COMMAND_SECONDS = 300.0  # counting a day in PostgreSQL takes long
MAX_LINES = 20
_DELETE = {
    "postgresql": "psql -c 'TRUNCATE history'",
    "clickhouse": "clickhouse-client -q 'TRUNCATE TABLE mailwarden.history'",
}


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
        _add_migrate_arguments,
    )


class _Sent(Struct, frozen=True):
    stored: int
    left: tuple[Line, ...]

    def __add__(self, other: "_Sent") -> "_Sent":
        return _Sent(self.stored + other.stored, self.left + other.left)


class _Row(Struct, frozen=True):
    line: Line
    request: FinishedRequest


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
    store = open_history(database, ScannedEvents(config.events.scanned, config.events.sample), clickhouse=clickhouse)
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


class Migrated(Struct, frozen=True):
    """The rows that were copied, and the numbers of each day and tenant afterwards."""

    copied: Copied
    checks: tuple[DayCheck, ...]

    @property
    def missing(self) -> int:
        return sum(check.missing for check in self.checks)


def _add_migrate_arguments(migrate: argparse.ArgumentParser) -> None:
    migrate.add_argument("--from", required=True, choices=STORES, dest="source", help="store that has the old rows")
    migrate.add_argument("--to", required=True, choices=STORES, dest="target", help="store of the configuration")
    add_config_option(migrate)


def _run_migrate(options: argparse.Namespace) -> int:
    config = _checked_config(options)
    try:
        migrated = asyncio.run(_migrate(options, config))
    except StorageUnavailable as error:
        raise CommandError(f"{with_driver_error(error)} Run the command again: it continues.") from None
    return _report(options.source, options.target, migrated)


def _checked_config(options: argparse.Namespace) -> AbbyConfig:
    config = read(options.config / ABBY_PATH, AbbyConfig)
    if options.source == options.target:
        raise CommandError("--from and --to name the same store.")
    if config.history.store != options.target:
        raise CommandError(
            f"history.store in {ABBY_PATH} is {config.history.store}: new rows would stay behind. Set it to "
            f"{options.target} in abby.yml and in every guard.yml, restart them, and run the command then."
        )
    if not config.history.clickhouse.urls:
        raise CommandError(f"history.clickhouse.urls in {ABBY_PATH} is empty: set the addresses of ClickHouse.")
    return config


async def _migrate(options: argparse.Namespace, config: AbbyConfig) -> Migrated:
    clickhouse = open_clickhouse(replace(config.history, store="clickhouse"), options.config)
    if clickhouse is None:
        raise CommandError("ClickHouse is not configured.")
    url = config.database.direct_url or config.database.url
    database = Database(url, pool_size=1, command_timeout=COMMAND_SECONDS, pooled=True)
    try:
        await check_table(clickhouse)
        postgresql, columns = PostgresqlTable(database), ClickhouseTable(clickhouse)
        tables: dict[str, HistoryTable] = {"postgresql": postgresql, "clickhouse": columns}
        source, target = tables[options.source], tables[options.target]
        if source is columns:
            await check_replicas(clickhouse)
        days = await source.days()
        migrated = await _copy_and_check(source, target, days)
        if source is columns:
            await check_replicas(clickhouse)
        if days:
            await postgresql.count_again(days[-1])
        return migrated
    finally:
        await clickhouse.close()
        await database.close()


async def _copy_and_check(source: HistoryTable, target: HistoryTable, days: Sequence[date]) -> Migrated:
    counts = {day: await source.count(day) for day in days}
    copied, checks = Copied(), list[DayCheck]()
    with Progress("copied", sum(counts.values())) as progress:
        for day in days:  # the newest is wanted first
            copied += await through_outages(partial(copy_day, source, target, day, progress.advance))
    with Progress("verified", sum(counts.values())) as progress:
        for day in days:
            checks += await through_outages(partial(check_day, source, target, day, progress.advance))
    return Migrated(copied, tuple(checks))


def _report(source: str, target: str, migrated: Migrated) -> int:
    copied, checks = migrated.copied, migrated.checks
    print(f"{copied.rows} rows in {source}: {copied.written} copied now, {copied.failed} failed.")
    if copied.failed:
        print(f"  first failed row: {shown(copied.reason)}")
    for day in sorted({check.day for check in checks}):
        of_day = [check for check in checks if check.day == day]
        rows, missing = sum(check.rows for check in of_day), sum(check.missing for check in of_day)
        print(f"{day}: {rows} rows of {len(of_day)} tenants, {missing} missing in {target}")
    for check in [check for check in checks if check.missing][:MAX_LINES]:
        print(f"  {check.day} tenant {check.tenant}: {check.missing} of {check.rows} missing")
    if migrated.missing:
        print(f"{migrated.missing} rows are missing in {target}. Delete nothing; run the command again.")
        return 1
    print(f"Every row of {source} is in {target}. The rows in {source} stay until you delete them. Next:")
    print("  1. Check that abby and every guard were restarted with this configuration: `mailwarden doctor`.")
    print(f"  2. Run this command once more: it must print `0 copied now`. Then delete the rows: {_DELETE[source]}")
    return 0


COMMAND = Command(
    example="mailwarden history resend",
    arguments=_arguments,
    run=by_action(prepare=_prepare, migrate=_run_migrate, resend=_resend_rejected),
)
