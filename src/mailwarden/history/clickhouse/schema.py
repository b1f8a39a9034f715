"""The table of history in ClickHouse, by the version of the server, and its creation on every replica.

A key is 16 bytes: ClickHouse sorts its own UUID type by the second half first. The sort key begins with the hour, so
that a search of the newest messages and one of a single tenant both read little. Rows of one key are replaced by the
one that was completed first when parts are merged, and readers ignore the others until then.
"""

import re
import time
from collections.abc import Set
from datetime import UTC, date, datetime
from uuid import UUID

from mailwarden.errors import CommandError, ConfigurationError, StorageUnavailable
from mailwarden.history.clickhouse.binary import Reader, read_one, read_rows
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.settings import checked_name

TABLE = "history"
MAX_DELAY = 60  # seconds that a replica may be behind
DAYS_SECONDS = 1.0  # for which the days that exist are remembered
MAX_VERSION = 40  # characters that are shown
LOWEST = (18, 16)  # the oldest version that the store was tested with
MODERN = (23, 8)  # from here on with codecs, LowCardinality and indexes that skip granules
ZOOKEEPER_PATH = "/clickhouse/tables/{{shard}}/{database}/history"
_VERSION = re.compile(r"(\d+)\.(\d+)")

# Name, type, and what modern servers add to it. `version` is the larger the earlier a request was completed.
COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("day", "Date", ""),
    ("hour", "UInt32", " CODEC(Delta, ZSTD(1))"),
    ("at", "UInt32", " CODEC(Delta, ZSTD(1))"),
    ("tenant", "FixedString(16)", " CODEC(ZSTD(1))"),
    ("ggrid", "FixedString(16)", " CODEC(ZSTD(1))"),
    ("version", "UInt64", " CODEC(Delta, ZSTD(1))"),
    ("verdict", "LowCardinality(String)", ""),
    ("decision", "LowCardinality(String)", ""),
    ("duration_class", "UInt8", " CODEC(ZSTD(1))"),
    ("tags", "Array(LowCardinality(String))", ""),
    ("envelope_from", "String", " CODEC(ZSTD(3))"),
    ("from_address", "String", " CODEC(ZSTD(3))"),
    ("recipients", "Array(String)", " CODEC(ZSTD(3))"),
    ("url_hosts", "Array(String)", " CODEC(ZSTD(3))"),
    ("subject", "String", " CODEC(ZSTD(3))"),
    ("campaign", "FixedString(16)", " CODEC(ZSTD(1))"),
    ("shared_campaign", "FixedString(16)", " CODEC(ZSTD(1))"),
    ("remote_address", "String", " CODEC(ZSTD(1))"),
    ("terms", "Array(Int64)", " CODEC(ZSTD(1))"),
    ("words", "String", " CODEC(ZSTD(3))"),
    ("record", "String", " CODEC(ZSTD(3))"),
)
NAMES = ", ".join(name for name, _, _ in COLUMNS)
_INDEXES = (
    "INDEX terms_index terms TYPE bloom_filter(0.01) GRANULARITY 1",
    "INDEX ggrid_index ggrid TYPE bloom_filter(0.01) GRANULARITY 1",
)
GRANULARITY = 512  # rows of a new table; the record of a row is read with those of its granule, about 3 kB each
_SERVERS_GRANULARITY = 8192  # of a table whose definition names none
_GRANULARITY = re.compile(r"\bindex_granularity\s*=\s*(\d{1,9})\b")
_SYNCED = ", fsync_after_insert = 1, fsync_part_directory = 1"  # an answered insert survives a loss of power
_REPLICATED = ("Replicated", "Shared")  # how the names of engines begin that several servers share
_DEFINITION = """
SELECT engine_full FROM system.tables WHERE database = '{database}' AND name = 'history' FORMAT RowBinary
"""
_ENGINE = "SELECT engine FROM system.tables WHERE database = '{database}' AND name = 'history' FORMAT RowBinary"
_REPLICA = """
SELECT toUInt8(is_readonly OR is_session_expired), toUInt64(absolute_delay) FROM system.replicas
WHERE database = '{database}' AND table = 'history' FORMAT RowBinary
"""
_HAS_TABLE = """
SELECT count() FROM system.columns WHERE database = currentDatabase() AND table = 'history' FORMAT RowBinary
"""
# A missing table or permission is an error here, and not a history without days.
_DAYS = """
SELECT toUInt32(partition_day) FROM (
    SELECT toDate(partition) AS partition_day FROM system.parts
    WHERE database = currentDatabase() AND table = 'history' AND active
      AND (SELECT count() FROM history WHERE 0) = 0 GROUP BY partition
) ORDER BY 1 FORMAT RowBinary
"""

_EPOCH = date(1970, 1, 1).toordinal()
NO_CAMPAIGN = UUID(int=0)


def parse_version(text: str) -> tuple[int, int]:
    found = _VERSION.match(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def table_statement(database: str, version: tuple[int, int], *, replicated: bool, granularity: int = 0) -> str:
    """Return the statement that creates the table for a server of this version."""
    modern = version >= MODERN
    columns = [f"{name} {kind}{more}" if modern else f"{name} {_plain(kind)}" for name, kind, more in COLUMNS]
    columns += _INDEXES if modern else ()
    path = ZOOKEEPER_PATH.format(database=checked_name(database))
    engine = f"ReplicatedReplacingMergeTree('{path}', '{{replica}}', version)"
    return (
        f"CREATE TABLE IF NOT EXISTS {checked_name(database)}.{TABLE} ({', '.join(columns)}) "
        f"ENGINE = {engine if replicated else 'ReplacingMergeTree(version)'} "
        f"PARTITION BY day ORDER BY (hour, tenant, ggrid) SETTINGS index_granularity = {granularity or GRANULARITY}"
        f"{_SYNCED if modern else ''}"
    )


def _plain(kind: str) -> str:
    return kind.replace("LowCardinality(String)", "String")


async def prepare(clickhouse: Clickhouse, *, replicated: bool) -> list[str]:
    """Create the database and the table on every replica where they are missing; return a line for each replica.

    Raise CommandError before the first change if a server is too old.
    """
    database, versions = checked_name(clickhouse.target.database), dict[str, str]()
    for url in clickhouse.target.urls:
        answer = await clickhouse.execute_on(url, "SELECT version()", database="system")
        versions[url] = answer.decode("utf-8", "replace").strip()[:MAX_VERSION]
        _check_version(url, versions[url], clickhouse.target.quorum)
    granularity = await _existing_granularity(clickhouse)
    for url, version in versions.items():
        await clickhouse.execute_on(url, f"CREATE DATABASE IF NOT EXISTS {database}", database="system")
        statement = table_statement(database, parse_version(version), replicated=replicated, granularity=granularity)
        await clickhouse.execute_on(url, statement, database="system")
        if mistake := await engine_mistake(clickhouse, url, replicated=replicated):
            raise ConfigurationError(mistake)
    return [f"{url}: ClickHouse {version}, table {database}.{TABLE} exists" for url, version in versions.items()]


async def _existing_granularity(clickhouse: Clickhouse) -> int:
    """Return the rows of a granule of the table that a replica has, or 0 if none has it.

    Keeper refuses a replica whose table has another number.
    """
    statement = _DEFINITION.format(database=checked_name(clickhouse.target.database))
    for url in clickhouse.target.urls:
        for definition in read_rows(await clickhouse.execute_on(url, statement, database="system"), Reader.text):
            found = _GRANULARITY.search(definition)
            return int(found[1]) if found else _SERVERS_GRANULARITY
    return 0


def _check_version(url: str, text: str, quorum: int) -> None:
    version = parse_version(text)
    if version < LOWEST:
        raise CommandError(
            f"{url} runs ClickHouse {text!r}, and history needs {_dotted(LOWEST)} or newer. Upgrade the server."
        )
    if quorum and version < MODERN:
        raise CommandError(
            f"{url} runs ClickHouse {text!r}, and history.clickhouse.quorum needs {_dotted(MODERN)} or newer: older "
            "servers delete no rows of the newest insert. Upgrade the server, or set quorum to 0."
        )


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


async def engine_mistake(clickhouse: Clickhouse, url: str, *, replicated: bool) -> str:
    """Return why the table of this server is not the configured one, or an empty text.

    `CREATE TABLE IF NOT EXISTS` keeps a table that is not replicated: every server would have a part of history.
    """
    if not replicated:
        return ""
    database = checked_name(clickhouse.target.database)
    answer = await clickhouse.execute_on(url, _ENGINE.format(database=database), database="system")
    found = read_rows(answer, Reader.text)
    if not found or found[0].startswith(_REPLICATED):
        return ""
    return (
        f"{url}: the table {database}.{TABLE} is not replicated (its engine is {found[0]}). Rename it, run "
        "`mailwarden history prepare`, and insert its rows into the new table."
    )


async def replica_state(clickhouse: Clickhouse, url: str, most: int = MAX_DELAY) -> str:
    """Return why this replica may lack the newest rows, or an empty text; `most` is how many seconds it may lag."""
    statement = _REPLICA.format(database=checked_name(clickhouse.target.database))
    answer = await clickhouse.execute_on(url, statement, database="system")
    for readonly, delay in read_rows(answer, lambda reader: (reader.uint8(), reader.uint64())):
        if readonly:
            return f"{url} is read-only: it has lost Keeper"
        if delay > most:
            return f"{url} is {delay} s behind"
    return ""


async def check_replicas(clickhouse: Clickhouse) -> None:
    """Raise unless every replica answers and has all rows: one that is down may have rows that the others lack."""
    for url in clickhouse.target.urls:
        try:
            reason = await replica_state(clickhouse, url, 0)
        except (StorageUnavailable, TimeoutError):
            reason = f"{url} does not answer"
        if reason:
            raise CommandError(
                f"{reason}: rows may be missing in the copy. Delete nothing in ClickHouse. Start every server of "
                "history.clickhouse.urls, wait until each has the rows of the others (`absolute_delay` in "
                "system.replicas is 0), and run the command again: it continues."
            )


async def check_table(clickhouse: Clickhouse) -> None:
    """Raise StorageUnavailable unless the table has the columns of this version."""
    columns = read_one(await clickhouse.read(_HAS_TABLE), Reader.uint64)
    if columns < len(COLUMNS):
        raise StorageUnavailable(
            "The history store lacks a table of this version: run `mailwarden history prepare`.", retry_after=2
        )


async def existing_days(clickhouse: Clickhouse, seconds: float) -> set[date]:
    rows = read_rows(await clickhouse.read(_DAYS, seconds), Reader.uint32)
    return {date.fromordinal(days + _EPOCH) for days in rows}


class KnownDays:
    """The days that history has, asked at most once a second, and today, whose first row may come at any time."""

    def __init__(self, clickhouse: Clickhouse) -> None:
        self._clickhouse = clickhouse
        self._days: frozenset[date] = frozenset()
        self._fresh_until = 0.0
        self._changes = 0

    async def read(self, seconds: float) -> set[date]:
        if time.monotonic() >= self._fresh_until:
            changes = self._changes
            self._days = frozenset(await existing_days(self._clickhouse, seconds))
            if changes == self._changes:
                self._fresh_until = time.monotonic() + DAYS_SECONDS
        return {*self._days, datetime.now(UTC).date()}

    def note(self, days: Set[date]) -> None:
        """Ask again before the next search if this process has written rows of other days."""
        if not days <= self._days:
            self.forget()

    def forget(self) -> None:
        self._changes += 1
        self._fresh_until = 0.0
