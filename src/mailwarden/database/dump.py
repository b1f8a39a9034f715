"""Dumps of the database by pg_dump and pg_restore, within one snapshot and past row-level security."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit
from uuid import UUID

from msgspec import Struct

from mailwarden.database.migrations import STATEMENT_TIMEOUT
from mailwarden.database.pool import EVERYTHING, Connection, Database, scoped
from mailwarden.database.rows import read
from mailwarden.errors import CommandError

REPORT_SECONDS = 10.0
_STDERR = 2_000

_COUNTS = """
SELECT (SELECT count(*) FROM tenants) AS tenants, (SELECT count(*) FROM api_keys) AS keys,
       (SELECT count(*) FROM users) AS users, (SELECT coalesce(sum(entries), 0)::bigint FROM lists) AS entries,
       (SELECT count(*) FROM quarantine WHERE address IS NOT NULL) AS held,
       (SELECT count(*) FROM quarantine WHERE address IS NOT NULL AND vault <> $1) AS elsewhere
"""
_BODIES = "SELECT DISTINCT tenant, address FROM quarantine WHERE vault = $1 AND address IS NOT NULL"
_MIGRATIONS = "SELECT name FROM applied_migrations ORDER BY name"
# Everything in this database that belongs to no extension.
_TABLES = """
SELECT count(*) FROM pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') AND NOT EXISTS (
    SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')
"""
# The names are read before the first of them is dropped; sequences of tables are gone by their turn.
_DROP_ALL = """
DO $$
DECLARE
    statement text;
BEGIN
    FOREACH statement IN ARRAY ARRAY(
        SELECT format('DROP %s IF EXISTS %s CASCADE',
                      CASE relkind WHEN 'v' THEN 'VIEW' WHEN 'm' THEN 'MATERIALIZED VIEW' WHEN 'S' THEN 'SEQUENCE'
                                   ELSE 'TABLE' END, pg_class.oid::regclass)
        FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'S') AND NOT EXISTS (
            SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')
        ORDER BY relkind = 'S'
    ) || ARRAY(
        SELECT format('DROP ROUTINE IF EXISTS %s CASCADE', pg_proc.oid::regprocedure) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace AND NOT EXISTS (
            SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e')
    )
    LOOP
        EXECUTE statement;
    END LOOP;
END
$$
"""
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'mailwarden' AND pid <> pg_backend_pid()
"""
# Transaction numbers of another cluster may be in this one's future: replicas would read those changes again and again.
_RENUMBER = "UPDATE list_changes SET transaction = pg_current_xact_id()"
# Readers of events may have numbers that were taken after the backup. New events must be behind them.
_SKIP_EVENT_NUMBERS = "SELECT setval('event_numbers', last_value + (1::bigint << 32)) FROM event_numbers"


class Snapshot(Struct, frozen=True):
    """One state of the database that a dump and queries share."""

    name: str
    migrations: tuple[str, ...]
    counts: Mapping[str, int]
    bodies: Sequence[tuple[UUID, bytes]]  # the held messages of one vault


@asynccontextmanager
async def open_snapshot(url: str, vault: UUID) -> AsyncIterator[Snapshot]:
    """Hold one state of the database while the block runs."""
    database = Database(url, 1, STATEMENT_TIMEOUT)
    try:
        async with database.connection() as connection, scoped(connection, EVERYTHING, snapshot=True):
            yield await _read(connection, vault)
    finally:
        await database.close()


async def _read(connection: Connection, vault: UUID) -> Snapshot:
    counts = await connection.fetchrow(_COUNTS, vault)
    assert counts is not None
    bodies = await connection.fetch(_BODIES, vault)
    return Snapshot(
        name=str(await connection.fetchval("SELECT pg_export_snapshot()")),
        migrations=tuple(str(row["name"]) for row in await connection.fetch(_MIGRATIONS)),
        counts={
            name: cast("int", counts[name]) for name in ("tenants", "keys", "users", "entries", "held", "elsewhere")
        },
        bodies=[(read(row, "tenant", UUID), read(row, "address", bytes)) for row in bodies],
    )


async def dump(url: str, snapshot: Snapshot, file: Path, report: Callable[[int], None]) -> None:
    """Write the database as the snapshot sees it; `report` gets the size of the file from time to time.

    The lists have row-level security, also for their owner. `mailwarden.scope` lets every row pass, so that a dump by
    the owner is complete.
    """
    words = ["--format=custom", "--no-owner", "--no-privileges", "--enable-row-security", "--no-unlogged-table-data"]
    words.append("--exclude-table-data=public.deployment")  # a restored database draws a new id
    await _run(
        "pg_dump",
        url,
        [*words, f"--snapshot={snapshot.name}", f"--file={file}"],
        lambda: report(file.stat().st_size if file.exists() else 0),
    )


async def restore(url: str, pieces: Iterable[bytes]) -> None:
    """Load a dump into an empty database, completely or not at all."""
    words = ["--no-owner", "--no-privileges", "--exit-on-error", "--single-transaction"]
    await _run("pg_restore", url, words, feed=pieces)
    await _execute(url, f"{_RENUMBER}; {_SKIP_EVENT_NUMBERS}")


async def count_tables(url: str) -> int:
    return await _count(url, _TABLES)


async def count_processes(url: str) -> int:
    """Return the connections of abby and guard to this database."""
    return await _count(url, _OTHERS)


async def drop_all(url: str) -> None:
    """Remove every table and function of this database, in one transaction."""
    await _execute(url, _DROP_ALL)


async def _count(url: str, query: str) -> int:
    database = Database(url, 1)
    try:
        async with database.connection() as connection:
            return cast("int", await connection.fetchval(query))
    finally:
        await database.close()


async def _execute(url: str, statement: str) -> None:
    database = Database(url, 1, STATEMENT_TIMEOUT)
    try:
        async with database.connection() as connection, scoped(connection, EVERYTHING):
            await connection.execute(statement)
    finally:
        await database.close()


async def _run(
    program: str,
    url: str,
    words: Sequence[str],
    report: Callable[[], None] = lambda: None,
    feed: Iterable[bytes] = (),
) -> None:
    """Run a program of PostgreSQL with `feed` as its input; raise CommandError with its own error text."""
    address, password = without_password(url)
    environment = {**os.environ, "PGOPTIONS": f"-c mailwarden.scope={EVERYTHING}", "PGAPPNAME": program}
    if password:
        environment["PGPASSWORD"] = password
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--dbname={address}",
            "--no-password",
            *words,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
        )
    except FileNotFoundError:
        raise CommandError(
            f"{program} is missing. Install the Debian package postgresql-client, of the server's version or newer."
        ) from None
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    try:
        await _feed(process, feed)
        while not (await asyncio.wait([errors], timeout=REPORT_SECONDS))[0]:
            report()
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if code:
        problem = errors.result().decode("utf-8", "replace").strip()[-_STDERR:]
        raise CommandError(f"{program} ended with code {code}: {problem}")


async def _feed(process: asyncio.subprocess.Process, pieces: Iterable[bytes]) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):  # the program ended early; its error text says why
        for piece in pieces:
            process.stdin.write(piece)
            await process.stdin.drain()
    process.stdin.close()


def without_password(url: str) -> tuple[str, str]:
    """Return the address without its password, and the password: every user of the host sees a program's arguments."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    password = next((value for name, value in given if name == "password"), unquote(parts.password or ""))
    user, _, host = parts.netloc.rpartition("@")
    name = quote(unquote(user.partition(":")[0]), safe="")
    query = urlencode([(key, value) for key, value in given if key != "password"])
    address = f"{parts.scheme}://{name}@{host}" if user else f"{parts.scheme}://{host}"
    return f"{address}{parts.path}{'?' if query else ''}{query}", password
