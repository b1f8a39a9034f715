"""Brings a database to the schema of this version: numbered migrations, each applied once, in one transaction.

The first is the baseline, a folder with a file for each feature. A later one is a single file.
"""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
from msgspec import Struct

from mailwarden.database.pool import CONNECT_TIMEOUT, Connection, storage_unavailable
from mailwarden.errors import CommandError

FOLDER = Path(__file__).parent / "migrations"
ORDER = "order.txt"  # in a folder: the names of its files in the order in which they are applied
STATEMENT_TIMEOUT = 600.0
# A statement that waits for a table's lock also makes later queries of running processes wait.
LOCK_SECONDS = 2.0
LOCK_PAUSE = 3.0  # seconds between two attempts, for the queries that waited
LOCK_PATIENCE = 300.0
_COMMENT = re.compile(r"(?:^|\s)--(?: .*)?$", re.MULTILINE)
_FILE_NAME = re.compile(r"^[0-9]{4}_[a-z0-9_]+$")
_LOCK = 0x6D61696C77617264  # any number, the same in every version

_TABLE = """
CREATE TABLE IF NOT EXISTS applied_migrations (
    name text PRIMARY KEY,
    checksum text NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
)
"""


class Migration(Struct, frozen=True):
    """One SQL file, or the files of a folder; a published one never changes, and its checksum proves that."""

    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """The checksum of the statements: comments document the tables, and may be corrected."""
        return hashlib.sha256("\n".join(_COMMENT.sub("", self.sql).split()).encode()).hexdigest()


def known_migrations(folder: Path = FOLDER) -> Sequence[Migration]:
    """Return the migrations of this version in their order."""
    found = [
        Migration(path.stem, _text(path)) for path in sorted(folder.iterdir()) if path.is_dir() or path.suffix == ".sql"
    ]
    for number, migration in enumerate(found, 1):
        if not _FILE_NAME.match(migration.name) or int(migration.name[:4]) != number:
            raise CommandError(f"Migration {migration.name} is out of order: expected number {number:04d}.")
    return found


def _text(path: Path) -> str:
    files = [path]
    if path.is_dir():
        files = [path / name for name in (path / ORDER).read_text("utf-8").split()]
    return "\n".join(file.read_text("utf-8") for file in files)


async def migrate(url: str, folder: Path = FOLDER) -> list[str]:
    """Apply the missing migrations and return their names; concurrent calls apply each only once."""
    known = known_migrations(folder)
    async with _connected(url) as connection:
        async with _locked(connection):
            await connection.execute(_TABLE)
            missing = _missing(known, await _checksums(connection))
        return [migration.name for migration in missing if await _apply(connection, migration)]


@asynccontextmanager
async def _locked(connection: Connection) -> AsyncIterator[None]:
    """Begin a transaction that other processes with migrations wait for.

    A lock of the session would not hold behind a connection pooler.
    """
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
        yield


async def _apply(connection: Connection, migration: Migration) -> bool:
    """Apply one migration; try again while another session, such as a backup, holds the lock of a table.

    Return False if another process has applied it meanwhile.
    """
    end = time.monotonic() + LOCK_PATIENCE
    while True:
        try:
            async with _locked(connection):
                if migration.name in await _checksums(connection):
                    return False
                await connection.execute(f"SET LOCAL lock_timeout = {LOCK_SECONDS * 1000:.0f}")
                # The driver rejects a text without a statement, such as a reserved number.
                await connection.execute(f"{migration.sql}\n; SELECT 1")
                await connection.execute(
                    "INSERT INTO applied_migrations (name, checksum) VALUES ($1, $2)",
                    migration.name,
                    migration.checksum,
                )
                return True
        except asyncpg.LockNotAvailableError:
            if time.monotonic() > end:
                raise CommandError(
                    f"Migration {migration.name} was not applied: another session, such as a backup, holds the lock "
                    "of a table. Run `mailwarden database migrate` again when that session has ended."
                ) from None
        await asyncio.sleep(LOCK_PAUSE)


async def pending(url: str, folder: Path = FOLDER) -> list[str]:
    """Return the names of the migrations that `migrate` would apply, without a change."""
    known = known_migrations(folder)
    async with _connected(url) as connection:
        exists = await connection.fetchval("SELECT to_regclass('applied_migrations') IS NOT NULL")
        checksums = await _checksums(connection) if exists else {}
        return [migration.name for migration in _missing(known, checksums)]


async def server_time(url: str) -> float:
    """Return the time of the database server, in seconds since 1970."""
    async with _connected(url) as connection:
        return float(str(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())")))


async def _checksums(connection: Connection) -> dict[str, str]:
    rows = await connection.fetch("SELECT name, checksum FROM applied_migrations ORDER BY name")
    return {str(row["name"]): str(row["checksum"]) for row in rows}


def _missing(known: Sequence[Migration], applied: dict[str, str]) -> Sequence[Migration]:
    names = {migration.name for migration in known}
    for name in applied:
        if name not in names:
            raise CommandError(
                f"The database has migration {name}, which this version does not know: "
                "it was made by a newer Mailwarden. Install that version, or restore an older backup."
            )
    for migration in known:
        if applied.get(migration.name, migration.checksum) != migration.checksum:
            raise CommandError(
                f"Migration {migration.name} has changed since it was applied to this database. "
                "A published migration never changes: install the files of a release."
            )
    return [migration for migration in known if migration.name not in applied]


@asynccontextmanager
async def _connected(url: str) -> AsyncIterator[Connection]:
    connection = None
    try:
        # Without prepared statements the URL may be that of a connection pooler.
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT, command_timeout=STATEMENT_TIMEOUT, statement_cache_size=0
        )
        yield connection
    except Exception as error:
        unavailable = storage_unavailable(error)
        if unavailable is None:
            raise
        raise unavailable from error
    finally:
        if connection is not None:
            await connection.close(timeout=CONNECT_TIMEOUT)
