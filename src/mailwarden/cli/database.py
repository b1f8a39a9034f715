"""`mailwarden database`: brings the database to the schema of this version."""

import argparse
import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar
from uuid import UUID

from mailwarden.abby.config import PATH, AbbyConfig
from mailwarden.access.tenant_store import TenantStore
from mailwarden.cli.command import Command, add_action, add_config_option
from mailwarden.database.migrations import migrate
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError, StorageUnavailable
from mailwarden.history.clickhouse.opening import open_clickhouse
from mailwarden.history.opening import open_history
from mailwarden.history.settings import HistoryStoreSettings
from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Tenant
from mailwarden.settings.reader import read

T = TypeVar("T")


def add_database_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the database: its URL, or the configuration folder."""
    add_config_option(parser)
    parser.add_argument("--database-url", metavar="URL", help="PostgreSQL address (default: from abby.yml)")


def add_query_options(*actions: argparse.ArgumentParser) -> None:
    """Add the output format and the options of the database to actions that print what the database has."""
    for action in actions:
        action.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
        add_database_options(action)


def database_url(options: argparse.Namespace) -> str:
    """Return the URL of the database from the option, or from abby's configuration."""
    if getattr(options, "database_url", None):  # commands that call abby have no such option
        return str(options.database_url)
    folder: Path = options.config
    return read(folder / PATH, AbbyConfig).database.url


def with_driver_error(error: StorageUnavailable) -> str:
    """Return the sentence with the driver's error, for the user at the terminal."""
    return f"{error.message} ({error.__cause__})" if error.__cause__ and str(error.__cause__) else error.message


def unreachable(error: StorageUnavailable) -> CommandError:
    return CommandError(f"{with_driver_error(error)} Check the address with `mailwarden doctor`.")


def query_database(options: argparse.Namespace, question: Callable[[Database], Awaitable[T]]) -> T:
    """Run a query on the selected database; raise CommandError with the driver's error if it is unavailable."""

    async def ask() -> T:
        # A command cannot know whether the address is a pooler; it needs no prepared statements.
        database = Database(database_url(options), pool_size=1, pooled=True)
        try:
            return await question(database)
        finally:
            await database.close()

    try:
        return asyncio.run(ask())
    except StorageUnavailable as error:
        raise unreachable(error) from None


@asynccontextmanager
async def history_of(options: argparse.Namespace, database: Database) -> AsyncIterator[HistoryStore]:
    """Open the history store of abby's configuration; without a configuration it is PostgreSQL."""
    clickhouse = open_clickhouse(_history_settings(options.config / PATH), options.config)
    try:
        yield open_history(database, clickhouse=clickhouse)
    finally:
        if clickhouse is not None:
            await clickhouse.close()


def _history_settings(path: Path) -> HistoryStoreSettings:
    return read(path, AbbyConfig).history if path.exists() else HistoryStoreSettings()


async def find_tenant(database: Database, named: str) -> Tenant:
    """Return the tenant of this name or UUID; the error says how to list the tenants."""
    for tenant in await TenantStore(database).list(Scope.deployment()):
        if named.casefold() in (tenant.name.casefold(), str(tenant.uid)):
            return tenant
    raise CommandError(f"There is no tenant `{named}`; `mailwarden tenants list` shows them.")


def tenant_uid(options: argparse.Namespace, named: str) -> UUID:
    """Return the UUID of a tenant; a name is looked up in the configured database."""
    try:
        return UUID(named)
    except ValueError:
        return query_database(options, lambda database: find_tenant(database, named)).uid


def _arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    action = add_action(actions, "migrate", "apply missing migrations", "mailwarden database migrate")
    add_database_options(action)


def _run(options: argparse.Namespace) -> int:
    try:
        applied = asyncio.run(migrate(database_url(options)))
    except StorageUnavailable as error:
        raise unreachable(error) from None
    for name in applied:
        print(f"applied {name}")
    if not applied:
        print("The database is up to date.")
    return 0


COMMAND = Command(
    example="mailwarden database migrate",
    arguments=_arguments,
    run=_run,
)
