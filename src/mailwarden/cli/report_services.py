"""The services of reports and cases for a command, with the database, history and key of abby."""

import argparse
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.cli.database import history_of, query_database
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.settings.reader import read
from mailwarden.user_reports.cases.service import CaseService
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.reports import ContentsSeal
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore

T = TypeVar("T")


class ReportServices(Struct, frozen=True):
    database: Database
    reports: ReportService
    cases: CaseService


def with_services(options: argparse.Namespace, operation: Callable[[ReportServices], Awaitable[T]]) -> T:
    config = read(options.config / PATH, AbbyConfig)
    seal = ContentsSeal(read_ring(options.config / config.contents.key, "contents.key"))

    async def ask(database: Database) -> T:
        async with history_of(options, database) as history:
            reports = ReportService(ReportStore(database), history, seal)
            cases = CaseService(CaseStore(database), history, reports, seal)
            return await operation(ReportServices(database, reports, cases))

    return query_database(options, ask)
