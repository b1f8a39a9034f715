"""The real servers, started once a test run, and a database of its own for each test that asks for one.

Properties are tried with the same examples every time, so that what passed here passes there;
`make check-long ONLY=fuzz` draws others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.properties import load_profile
from workshop.rig.engines import Engines, start_engines
from workshop.rig.folders import remove_folder, temporary_folder

if TYPE_CHECKING:
    from mailwarden.database.pool import Database
    from tests.acceptance.deployment import DeploymentTemplate
    from tests.databases import ReusedDatabases
    from workshop.rig.clickhouse import EmbeddedClickhouse

TEMPLATE = "mailwarden_template"
FIGURES = pytest.StashKey[list[str]]()

load_profile()


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    with start_engines() as running:
        # A commit is written before it is answered, and survives a killed server. That it survives a power failure is
        # the promise of fsync, which no test checks and every one would wait for. tests/faults keeps it on.
        running.postgresql.set_fsync(on=False)
        yield running


@pytest.fixture(scope="session")
def database_template(engines: Engines) -> str:
    """Return the name of a database with this version's tables, which is copied for each test."""
    from mailwarden.database.migrations import migrate

    url = engines.postgresql.create_database(TEMPLATE)
    # A thread of its own has no event loop yet, whatever kind of test asks first.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(migrate(url))).result()
    return TEMPLATE


@pytest.fixture(scope="session")
def deployment_template(engines: Engines, database_template: str) -> "DeploymentTemplate":
    """Return the database that products are given a copy of, with tenants and keys in it."""
    from tests.acceptance.deployment import create_deployment_template

    return create_deployment_template(engines, database_template)


@pytest.fixture(scope="session")
def reused_databases(engines: Engines, database_template: str) -> "Iterator[ReusedDatabases]":
    from tests.databases import ReusedDatabases

    databases = ReusedDatabases(engines.postgresql, database_template)
    yield databases
    databases.drop()


@pytest.fixture(scope="session")
def clickhouse_server() -> "Iterator[EmbeddedClickhouse]":
    from workshop.rig.clickhouse import EmbeddedClickhouse

    folder = temporary_folder()
    server = EmbeddedClickhouse(folder / "clickhouse")
    try:
        server.start()
        yield server
    finally:
        server.stop()
        remove_folder(folder)


@pytest.fixture
def database_url(engines: Engines, reused_databases: "ReusedDatabases") -> Iterator[str]:
    """Return the address of an empty database with this version's tables."""
    name = reused_databases.take()
    yield engines.postgresql.url(name)
    reused_databases.give_back(name)


@pytest.fixture
async def database(database_url: str) -> "AsyncIterator[Database]":
    """Return a connection pool of this test's database."""
    from mailwarden.database.pool import Database

    opened = Database(database_url)
    yield opened
    await opened.close()


@pytest.fixture
def note(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Return what keeps a measured figure for the end of the run."""
    return pytestconfig.stash.setdefault(FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for figure in config.stash.get(FIGURES, []):
        terminalreporter.write_line(figure)
    for report in terminalreporter.stats.get("rerun", []):  # pytest prints the error of a test's last run alone
        terminalreporter.section(f"first run of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
