"""Migrations against a real PostgreSQL."""

import asyncio
import shutil
from pathlib import Path

import asyncpg
import pytest

from mailwarden.database import migrations
from mailwarden.database.migrations import FOLDER, known_migrations, migrate, pending
from mailwarden.errors import CommandError, StorageUnavailable

ALL_NAMES = [migration.name for migration in known_migrations()]


async def run(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


async def empty(url: str) -> None:
    await run(url, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public")


async def test_an_empty_database_gets_every_migration_once(database_url: str) -> None:
    await empty(database_url)
    assert await pending(database_url) == ALL_NAMES
    assert await migrate(database_url) == ALL_NAMES
    assert await migrate(database_url) == []
    assert await pending(database_url) == []


async def test_two_at_once_do_the_work_once(database_url: str) -> None:
    await empty(database_url)
    done = await asyncio.gather(*(migrate(database_url) for _ in range(4)))
    assert sorted(name for names in done for name in names) == ALL_NAMES


async def test_a_migration_that_changed_since_is_refused(database_url: str) -> None:
    await run(database_url, "UPDATE applied_migrations SET checksum = 'other' WHERE name = '0001_baseline'")
    for call in (migrate, pending):
        with pytest.raises(CommandError, match="0001_baseline has changed"):
            await call(database_url)


async def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    await run(database_url, "INSERT INTO applied_migrations (name, checksum) VALUES ('9999_future', 'x')")
    with pytest.raises(CommandError, match=r"9999_future.*newer Mailwarden"):
        await migrate(database_url)


async def test_a_migration_that_fails_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    await empty(database_url)
    (tmp_path / "0001_good.sql").write_text("CREATE TABLE good (id int);")
    (tmp_path / "0002_bad.sql").write_text("CREATE TABLE half (id int); SELECT nonsense();")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await migrate(database_url, tmp_path)
    assert await pending(database_url, tmp_path) == ["0002_bad"]
    with pytest.raises(asyncpg.UndefinedTableError):
        await run(database_url, "SELECT * FROM half")


async def test_a_database_that_is_down_is_storage_unavailable() -> None:
    with pytest.raises(StorageUnavailable):
        await migrate("postgresql://nobody@127.0.0.1:1/none")


async def test_there_is_one_default_tenant_and_never_two(database_url: str) -> None:
    with pytest.raises(asyncpg.UniqueViolationError):
        await run(database_url, "INSERT INTO tenants (name, is_default) VALUES ('second', true)")


@pytest.fixture
def with_next(tmp_path: Path) -> Path:
    """Return a folder with the migrations of this version and one more, which changes `tenants`."""
    shutil.copytree(FOLDER, tmp_path / "migrations")
    (tmp_path / "migrations" / f"{len(ALL_NAMES) + 1:04d}_next.sql").write_text("ALTER TABLE tenants ADD added text;")
    return tmp_path / "migrations"


async def test_queries_run_while_a_migration_waits_for_a_lock(
    database_url: str, with_next: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_SECONDS", 0.2)
    backup = await asyncpg.connect(database_url)
    reader = await asyncpg.connect(database_url, command_timeout=30.0)
    try:
        async with backup.transaction():
            await backup.execute("LOCK TABLE tenants IN ACCESS SHARE MODE")
            migrating = asyncio.create_task(migrate(database_url, with_next))
            for _ in range(20):  # four seconds, in which the migration tries twice
                await reader.fetchval("SELECT count(*) FROM tenants")
                await asyncio.sleep(0.2)
            assert not migrating.done()
        assert len(await migrating) == 1
    finally:
        await backup.close()
        await reader.close()


async def test_a_migration_gives_up_behind_a_lock_and_changes_nothing(
    database_url: str, with_next: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(migrations, "LOCK_PATIENCE", 0.0)
    backup = await asyncpg.connect(database_url)
    try:
        async with backup.transaction():
            await backup.execute("LOCK TABLE tenants IN ACCESS SHARE MODE")
            with pytest.raises(CommandError, match="holds the lock of a table"):
                await migrate(database_url, with_next)
    finally:
        await backup.close()
    assert len(await pending(database_url, with_next)) == 1
