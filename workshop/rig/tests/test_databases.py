"""A database that a test gives back is like new, or is not used again."""

import itertools
from collections.abc import Iterator

import asyncpg
import pytest

from tests.databases import ReusedDatabases
from workshop.rig.engines import Engines

_numbers = itertools.count(1)


@pytest.fixture
def databases(engines: Engines, database_template: str) -> Iterator[ReusedDatabases]:
    opened = ReusedDatabases(engines.postgresql, database_template, f"reused_{next(_numbers)}")
    yield opened
    opened.drop()


async def change(engines: Engines, name: str, statement: str) -> None:
    connection = await asyncpg.connect(engines.postgresql.url(name))
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


async def read(engines: Engines, name: str, query: str) -> object:
    connection = await asyncpg.connect(engines.postgresql.url(name))
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("statement", "query"),
    [
        ("INSERT INTO audit (actor, action, subject) VALUES ('a', 'b', 'c')", "SELECT count(*) FROM audit"),
        ("UPDATE tenants SET name = 'renamed'", "SELECT string_agg(name, ' ') FROM tenants"),
        ("DELETE FROM tenants_version", "SELECT count(*) FROM tenants_version"),
        ("SELECT nextval('event_numbers')", "SELECT (last_value, is_called)::text FROM event_numbers"),
        ("CREATE TABLE added AS SELECT 1", "SELECT to_regclass('added')::text"),
    ],
    ids=["new rows", "changed rows of the template", "deleted rows of the template", "a sequence", "a new table"],
)
async def test_what_a_test_wrote_is_gone_and_the_database_is_used_again(engines, databases, statement, query) -> None:
    name = databases.take()
    before = await read(engines, name, query)
    await change(engines, name, statement)
    databases.give_back(name)
    assert databases.take() == name
    assert await read(engines, name, query) == before


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE audit ADD COLUMN added text",
        "DROP TABLE audit CASCADE",
        "CREATE TABLE added (number int); CREATE VIEW seen AS SELECT * FROM added",
        "CREATE FUNCTION added() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    ],
)
async def test_a_database_with_other_tables_is_not_used_again(engines, databases, statement) -> None:
    name = databases.take()
    await change(engines, name, statement)
    databases.give_back(name)
    assert databases.take() != name


async def test_a_forgotten_connection_is_closed_and_holds_no_lock(engines, databases) -> None:
    name = databases.take()
    forgotten = await asyncpg.connect(engines.postgresql.url(name))
    await forgotten.execute("BEGIN; LOCK TABLE tenants")
    databases.give_back(name)
    assert databases.take() == name
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await forgotten.execute("SELECT 1")
    await forgotten.close(timeout=5)
