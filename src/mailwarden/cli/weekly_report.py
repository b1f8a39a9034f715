"""`mailwarden weekly-report`: prints the weekly report of a tenant."""

import argparse
from datetime import UTC, datetime

from mailwarden.cli.command import Command
from mailwarden.cli.database import add_database_options, find_tenant, history_of, query_database
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, SchemaViolation
from mailwarden.model.scope import Scope
from mailwarden.weekly_report.mail import text_of
from mailwarden.weekly_report.model import Week, WeeklyReport, checked_week
from mailwarden.weekly_report.service import open_weekly_reports


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", required=True, metavar="TENANT", help="name or UUID of the tenant")
    parser.add_argument(
        "--week", default="", metavar="WEEK", help="ISO week such as 2026-W46 (default: the last full week)"
    )
    add_database_options(parser)


def _run(options: argparse.Namespace) -> int:
    try:
        week = checked_week(options.week, datetime.now(UTC))
    except SchemaViolation as error:
        raise CommandError(error.message) from None
    report = query_database(options, lambda database: _build(options, database, options.tenant, week))
    print(text_of(report), end="")
    return 0


async def _build(options: argparse.Namespace, database: Database, tenant: str, week: Week) -> WeeklyReport:
    found = await find_tenant(database, tenant)
    async with history_of(options, database) as history:
        return await open_weekly_reports(database, history).build(Scope.of(found.uid), found, week)


COMMAND = Command(
    example="mailwarden weekly-report --tenant acme --week 2026-W46",
    arguments=_arguments,
    run=_run,
)
