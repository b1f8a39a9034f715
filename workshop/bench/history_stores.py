"""Bytes per message and search p95 of PostgreSQL and ClickHouse with the same rows."""

import argparse
import asyncio
import multiprocessing
import os
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import asyncpg
import uvloop

from mailwarden.database.pool import Database
from mailwarden.history import search_pages
from mailwarden.history.clickhouse.binary import read_rows
from mailwarden.history.clickhouse.client import Clickhouse, Kind, Target
from mailwarden.history.clickhouse.schema import existing_days, prepare
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope
from workshop.bench import copied_history, search
from workshop.bench.cpu import Processes, cpu_seconds
from workshop.bench.made_database import made_database
from workshop.rig.clickhouse import EmbeddedClickhouse
from workshop.rig.folders import make_folder, remove_folder, temporary_folder

PROCESSES = 2
NAME = "bench"
OPTIMIZE_SECONDS = 600
_SIZE = """
SELECT sum(rows), sum(bytes_on_disk) FROM system.parts
WHERE database = currentDatabase() AND table = 'history' AND active FORMAT RowBinary
"""
_POSTGRESQL_SIZE = """
SELECT (SELECT count(*) FROM history), sum(pg_total_relation_size(inhrelid))
FROM pg_inherits WHERE inhparent = 'history'::regclass
"""
_TENANTS = "SELECT tenant, count(*) FROM history GROUP BY tenant ORDER BY 2 DESC"


@dataclass(frozen=True, slots=True)
class Server:
    """Where ClickHouse is."""

    address: str
    pid: int

    def connect(self) -> Clickhouse:
        return Clickhouse(Target((self.address,), NAME))


@dataclass(slots=True)
class Calls:
    """Counts the calls to ClickHouse."""

    number: int = 0
    seconds: float = 0.0

    def took(self, kind: Kind, seconds: float) -> None:
        self.number += 1
        self.seconds += seconds

    def failed(self) -> None:
        raise RuntimeError("ClickHouse is down: see its log")

    def stale_read(self) -> None:
        raise RuntimeError("ClickHouse may lack the newest rows: see its log")


@dataclass(slots=True)
class Figures:
    """The searches of one store in one scope."""

    times: list[float] = field(default_factory=list)
    complete: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        slowest = f"p50 {statistics.median(self.times):.0f} ms  p95 {search.p95(self.times):.0f} ms"
        return f"{slowest}  {len(self.times)} searches, {100 * statistics.mean(self.complete):.0f} % complete"


async def copy_rows(url: str, server: Server, folder: Path) -> None:
    """Copy the made rows to ClickHouse, the newest day first, in several processes; skip the days that it has."""
    clickhouse = server.connect()
    try:
        await prepare(clickhouse, replicated=False)
        connection = await asyncpg.connect(url)
        days = {row["day"] for row in await connection.fetch("SELECT DISTINCT day FROM history")}
        await connection.close()
        missing = sorted(days - await existing_days(clickhouse, OPTIMIZE_SECONDS), reverse=True)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
            given = [url] * len(missing), [server] * len(missing), missing, [folder] * len(missing)
            for day, seconds in zip(missing, pool.map(copy_day, *given), strict=True):
                print(f"copied {day} in {seconds:.0f} s", flush=True)
    finally:
        await clickhouse.close()


def copy_day(url: str, server: Server, day: date, folder: Path) -> float:
    """Copy the rows of a day and merge its parts; return the seconds."""
    began = time.perf_counter()
    asyncio.run(_copy_day(url, server, day, folder))
    return time.perf_counter() - began


async def _copy_day(url: str, server: Server, day: date, folder: Path) -> None:
    connection, clickhouse = await asyncpg.connect(url), server.connect()
    try:
        await copied_history.copy_day(connection, clickhouse, day, folder)
        await clickhouse.execute(f"OPTIMIZE TABLE history PARTITION '{day:%Y-%m-%d}' FINAL", OPTIMIZE_SECONDS)
    finally:
        await connection.close()
        await clickhouse.close()


async def measure_searches(
    stores: Mapping[str, HistoryStore], processes: Processes, calls: Calls, runs: int, *, each: bool
) -> None:
    """Print the p95 of every kind of search in three scopes; the stores take turns, so that both see the same load."""
    scopes = {
        "deployment": Scope.deployment(),
        "tenant of 60 %": Scope.of(search.LARGE),
        "tenant of 1 %": Scope.of(search.SMALL),
    }
    for place, scope in scopes.items():
        figures = {name: Figures() for name in stores}
        calls.number, calls.seconds = 0, 0.0
        before = cpu_seconds(processes)
        for kind, draw in search.operators().items():
            for name, store in stores.items():
                times, rows, complete, _ = await search.measure(store, scope, draw, runs)
                figures[name].times.extend(times)
                figures[name].complete.append(complete)
                if each:
                    print(
                        f"{name:10} {place:15} {kind:36} p50 {statistics.median(times):6.1f} ms"
                        f"  p95 {search.p95(times):6.1f} ms  {runs} searches  {rows:5.1f} rows"
                        f"  {100 * complete:3.0f} % complete",
                        flush=True,
                    )
        used = {name: seconds - before[name] for name, seconds in cpu_seconds(processes).items()}
        number = len(next(iter(figures.values())).times)
        for name, found in figures.items():
            print(f"{name:10} {place:15} {found}, {1000 * used[name] / number:.0f} ms of CPU each", flush=True)
        each_call = 1000 * calls.seconds / calls.number
        print(f"{calls.number / number:.1f} calls to ClickHouse a search, {each_call:.1f} ms each", flush=True)


async def run(url: str, server: Server, runs: int, copied: Path, *, each: bool) -> None:
    if not copied.exists():
        began = time.perf_counter()
        await copy_rows(url, server, copied.parent)
        copied.touch()
        print(f"copied to ClickHouse in {time.perf_counter() - began:.0f} s", flush=True)
    clickhouse, database, calls = server.connect(), Database(url), Calls()
    clickhouse.meters = calls
    try:
        await _print_tenants(url)
        stores = {"PostgreSQL": open_history(database), "ClickHouse": open_history(database, clickhouse=clickhouse)}
        processes = Processes({"PostgreSQL": await _postmaster(url), "ClickHouse": server.pid}, {})
        await measure_searches(stores, processes, calls, runs, each=each)
        ((kept, size),) = read_rows(await clickhouse.read(_SIZE), lambda reader: (reader.uint64(), reader.uint64()))
        count, both = await _postgresql_size(url)
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
        print(
            f"history {count:,} messages: PostgreSQL {both / count:.0f} bytes each, ClickHouse {size / kept:.0f} bytes"
            f" each ({kept:,} messages)"
        )
    finally:
        await clickhouse.close()
        await database.close()


async def _postgresql_size(url: str) -> tuple[int, int]:
    """Return the number of rows in history and their bytes with indexes."""
    connection = await asyncpg.connect(url)
    try:
        count, both = await connection.fetchrow(_POSTGRESQL_SIZE)
        return int(count), int(both)
    finally:
        await connection.close()


async def _postmaster(url: str) -> int:
    """Return the process that the server's other processes descend from."""
    connection = await asyncpg.connect(url)
    try:
        own = await connection.fetchval("SELECT pg_backend_pid()")
        return int(Path(f"/proc/{own}/stat").read_text("utf-8").rpartition(")")[2].split()[1])
    finally:
        await connection.close()


async def _print_tenants(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        counts = [row["count"] for row in await connection.fetch(_TENANTS)]
    finally:
        await connection.close()
    print(f"messages of the {len(counts)} tenants: {', '.join(f'{count:,}' for count in counts)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.history_stores --rows 20000"
    )
    parser.add_argument("--rows", type=int, default=200_000, help="messages in history (%(default)s)")
    parser.add_argument("--runs", type=int, default=4, help="searches of each kind (%(default)s)")
    parser.add_argument("--seconds", type=float, default=search_pages.SEARCH_SECONDS, help="of a search (%(default)s)")
    parser.add_argument("--kept", type=Path, help="keep the rows of both stores in this folder, and use those there")
    parser.add_argument("--each", action="store_true", help="print each kind of search")
    given = parser.parse_args()
    search_pages.SEARCH_SECONDS = given.seconds
    folder = make_folder(given.kept.absolute()) if given.kept else temporary_folder()
    process = EmbeddedClickhouse(folder / "clickhouse")
    try:
        process.start()
        with made_database(given.rows, given.kept) as url:
            uvloop.run(run(url, Server(process.address, process.pid), given.runs, folder / "copied", each=given.each))
    finally:
        process.stop()
        if not given.kept:
            remove_folder(folder)


if __name__ == "__main__":
    main()
