"""`mailwarden history migrate`: copies old rows of history to the store that the configuration names now."""

import argparse
import asyncio
from collections.abc import Sequence
from datetime import date
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.abby.config import PATH as ABBY_PATH
from mailwarden.abby.config import AbbyConfig
from mailwarden.cli.command import add_config_option, shown
from mailwarden.cli.database import with_driver_error
from mailwarden.cli.progress import Progress
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.history.clickhouse.opening import open_clickhouse
from mailwarden.history.clickhouse.schema import check_replicas, check_table
from mailwarden.history.clickhouse.table import ClickhouseTable
from mailwarden.history.migration import Copied, DayCheck, HistoryTable, check_day, copy_day, through_outages
from mailwarden.history.postgresql.table import PostgresqlTable
from mailwarden.settings.reader import read

STORES = ("postgresql", "clickhouse")
COMMAND_SECONDS = 300.0  # counting a day in PostgreSQL takes long
MAX_LINES = 20

_DELETE = {
    "postgresql": "psql -c 'TRUNCATE history'",
    "clickhouse": "clickhouse-client -q 'TRUNCATE TABLE mailwarden.history'",
}


class Migrated(Struct, frozen=True):
    """The rows that were copied, and the numbers of each day and tenant afterwards."""

    copied: Copied
    checks: tuple[DayCheck, ...]

    @property
    def missing(self) -> int:
        return sum(check.missing for check in self.checks)


def add_migrate_arguments(migrate: argparse.ArgumentParser) -> None:
    migrate.add_argument("--from", required=True, choices=STORES, dest="source", help="store that has the old rows")
    migrate.add_argument("--to", required=True, choices=STORES, dest="target", help="store of the configuration")
    add_config_option(migrate)


def run_migrate(options: argparse.Namespace) -> int:
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
