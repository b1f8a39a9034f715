"""Databases for tests: each is emptied after a test and used again, or dropped if it cannot be made like new."""

import asyncio
import io
import itertools
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import asyncpg

from workshop.rig.postgresql import HOST, SUPERUSER, Postgresql

DEADLINE_SECONDS = 60.0
FEW = 1_000
# Tables, columns, constraints, functions and settings: a database whose tables a test changed is not used again.
# The columns left out change when a table is emptied, vacuumed or analyzed.
_SCHEMA = """
SELECT sum(hash)::text FROM (
  SELECT hashtextextended(concat_ws('|', oid, relname, relkind, relowner, relacl, reloptions, relnatts, relchecks), 0)
    AS hash FROM pg_class WHERE oid >= 16384
  UNION ALL SELECT hashtextextended(t::text, 1) FROM pg_attribute t WHERE attrelid >= 16384
  UNION ALL SELECT hashtextextended(t::text, 2) FROM pg_attrdef t
  UNION ALL SELECT hashtextextended(t::text, 3) FROM pg_constraint t
  UNION ALL SELECT hashtextextended(t::text, 4) FROM pg_index t WHERE indexrelid >= 16384
  UNION ALL SELECT hashtextextended(t::text, 5) FROM pg_trigger t
  UNION ALL SELECT hashtextextended(t::text, 6) FROM pg_proc t WHERE oid >= 16384
  UNION ALL SELECT hashtextextended(t::text, 7) FROM pg_type t WHERE oid >= 16384
  UNION ALL SELECT hashtextextended(t::text, 8) FROM pg_rewrite t WHERE oid >= 16384
  UNION ALL SELECT hashtextextended(t::text, 9) FROM pg_inherits t
  UNION ALL SELECT hashtextextended(t::text, 10) FROM pg_policy t
  UNION ALL SELECT hashtextextended(t::text, 11) FROM pg_extension t
  UNION ALL SELECT hashtextextended(t::text, 12) FROM pg_namespace t WHERE nspname !~ '^pg_(toast_)?temp_'
  UNION ALL SELECT hashtextextended(setconfig::text, 13) FROM pg_db_role_setting
    WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database())
) AS everything
"""
_SEQUENCES = "SELECT format('%I', sequencename), last_value, start_value FROM pg_sequences ORDER BY 1"
_TABLES = """
SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace ORDER BY 1
"""
_DISCONNECT = """
SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""
_SET_SEQUENCE = "SELECT setval($1::text::regclass, coalesce($2::bigint, $3::bigint), $2 IS NOT NULL)"
# Statistics of the rows of an earlier test would change the plan of a query. Triggers that keep the rows of a table
# and foreign keys are for the product.
_PREPARE = """
DELETE FROM pg_statistic WHERE starelid >= 16384;
SELECT pg_stat_reset();
SET session_replication_role = replica
"""

T = TypeVar("T")


class ReusedDatabases:
    """Databases like a template. Creating one takes a quarter of a second of CPU, emptying one a tenth of that."""

    def __init__(self, postgresql: Postgresql, template: str, prefix: str = "test") -> None:
        self._postgresql = postgresql
        self._prefix = prefix
        self._template = template
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._thread = ThreadPoolExecutor(1)  # has its own event loop, beside that of a test
        self._state, self._rows = self._run(template, _read_template)

    def take(self) -> str:
        """Return the name of a database that is like the template."""
        if self._free:
            return self._free.pop()
        name = f"{self._prefix}_{next(self._numbers)}"
        self._postgresql.create_database(name, template=self._template)
        return name

    def give_back(self, name: str) -> None:
        """Empty a database for the next test; drop it if it then differs from the template."""
        if self._run(name, self._is_restored):
            self._free.append(name)
        else:
            self._postgresql.drop_database(name)

    def drop(self) -> None:
        """Drop the databases that nobody uses."""
        for name in self._free:
            self._postgresql.drop_database(name)
        self._thread.shutdown()

    async def _is_restored(self, connection: asyncpg.Connection) -> bool:
        template = self._state.content
        await connection.execute(_DISCONNECT)
        await connection.execute(_PREPARE)
        changed = await _read_content(connection)
        written = [name for name in template.tables if changed.tables.get(name, "") != template.tables[name]]
        try:
            if added := changed.tables.keys() - template.tables.keys():  # days of history and events, for example
                await connection.execute(f"DROP TABLE {', '.join(sorted(added))}")
            if written:
                await connection.execute(f"TRUNCATE {', '.join(written)} CASCADE")
            for name in self._rows.keys() & set(written):
                await connection.copy_to_table(name, source=io.BytesIO(self._rows[name]))
            for sequence in set(template.sequences) - set(changed.sequences):
                await connection.execute(_SET_SEQUENCE, *sequence)
        except asyncpg.PostgresError:
            return False  # a table that is gone, or that another depends on
        return await _read(connection) == self._state

    def _run(self, name: str, use: Callable[[asyncpg.Connection], Coroutine[object, object, T]]) -> T:
        async def connected() -> T:
            async with asyncio.timeout(DEADLINE_SECONDS):
                place = {"host": HOST, "port": self._postgresql.port}
                connection = await asyncpg.connect(**place, user=SUPERUSER, database=name, ssl=False)
                try:
                    return await use(connection)
                finally:
                    await connection.close()

        return self._thread.submit(lambda: asyncio.run(connected())).result()


@dataclass(frozen=True, slots=True)
class _Content:
    """The sequences, and the tables with a digest of their rows; an empty table has none."""

    sequences: tuple[tuple[str, int | None, int], ...]
    tables: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _State:
    """Everything in a database that a test may change."""

    schema: str
    content: _Content


async def _read(connection: asyncpg.Connection) -> _State:
    return _State(await connection.fetchval(_SCHEMA), await _read_content(connection))


async def _read_content(connection: asyncpg.Connection) -> _Content:
    sequences = tuple((name, last, first) for name, last, first in await connection.fetch(_SEQUENCES))
    names = [row[0] for row in await connection.fetch(_TABLES)]
    # The template has few rows: more of them are a difference, whatever is in them.
    query = " UNION ALL ".join(
        f"SELECT '{name}', (SELECT md5(string_agg(t::text, '|')) FROM (SELECT * FROM {name} LIMIT {FEW}) t)"
        for name in names
    )
    return _Content(sequences, {name: content or "" for name, content in await connection.fetch(query)})


async def _read_template(connection: asyncpg.Connection) -> tuple[_State, Mapping[str, bytes]]:
    """Return the state of the template, and the rows that the migrations wrote, table by table."""
    state = await _read(connection)
    rows = {name: io.BytesIO() for name, content in state.content.tables.items() if content}
    for name, output in rows.items():
        await connection.copy_from_table(name, output=output)
    return state, {name: output.getvalue() for name, output in rows.items()}
