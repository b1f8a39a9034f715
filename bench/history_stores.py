"""`make bench-history-stores`: bytes per message and search p95 of PostgreSQL and ClickHouse with the same rows."""

import argparse
import statistics
import time
from collections.abc import Sequence

import asyncpg
import uvloop

from bench import history as made
from bench import history_size, search
from bench.made_database import made_database
from mailwarden.database.pool import Database
from mailwarden.history import open_history
from mailwarden.history.clickhouse.binary import read_rows
from mailwarden.history.clickhouse.client import Clickhouse, Target
from mailwarden.history.clickhouse.rows import encode_row
from mailwarden.history.clickhouse.schema import NAMES, prepare
from mailwarden.history.records import decode
from mailwarden.history.store import HistoryStore
from mailwarden.model.scope import Scope
from rig.clickhouse import EmbeddedClickhouse
from rig.folders import remove_folder, temporary_folder

BATCH = 2_000
_SIZE = """
SELECT sum(rows), sum(bytes_on_disk) FROM system.parts
WHERE database = currentDatabase() AND table = 'history' AND active FORMAT RowBinary
"""


async def copy_rows(url: str, clickhouse: Clickhouse) -> None:
    """Copy the made rows to ClickHouse, encoded as guard encodes them, and merge the parts."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            batch: list[bytes] = []
            async for row in connection.cursor("SELECT record FROM history ORDER BY day, ggrid", prefetch=BATCH):
                encoded = encode_row(decode(row["record"]))
                if encoded is not None:
                    batch.append(encoded.data)
                if len(batch) == BATCH:
                    await _insert(clickhouse, batch)
                    batch = []
            await _insert(clickhouse, batch)
    finally:
        await connection.close()
    await clickhouse.execute("OPTIMIZE TABLE history FINAL", 600)


async def _insert(clickhouse: Clickhouse, rows: Sequence[bytes]) -> None:
    if rows:
        await clickhouse.insert(f"INSERT INTO history ({NAMES}) FORMAT RowBinary", b"".join(rows))


async def measure_searches(name: str, store: HistoryStore, runs: int) -> None:
    """Print the p95 over every operator in three scopes."""
    scopes = {
        "deployment": Scope.deployment(),
        "tenant of 60 %": Scope.of(search.LARGE),
        "tenant of 1 %": Scope.of(search.SMALL),
    }
    for place, scope in scopes.items():
        times = [
            each for draw in search.operators().values() for each in (await search.measure(store, scope, draw, runs))[0]
        ]
        print(f"{name:10} {place:15} p50 {statistics.median(times):.0f} ms  p95 {search.p95(times):.0f} ms", flush=True)


async def run(url: str, address: str, runs: int) -> None:
    clickhouse, database = Clickhouse(Target((address,), "bench")), Database(url)
    try:
        await prepare(clickhouse, replicated=False)
        began = time.perf_counter()
        await copy_rows(url, clickhouse)
        print(f"copied to ClickHouse in {time.perf_counter() - began:.0f} s", flush=True)
        await measure_searches("PostgreSQL", open_history(database), runs)
        await measure_searches("ClickHouse", open_history(database, clickhouse=clickhouse), runs)
        ((kept, size),) = read_rows(await clickhouse.read(_SIZE), lambda reader: (reader.uint64(), reader.uint64()))
        count, _, _, both = await history_size.measure(url)
        print(
            f"history {count:,} messages: PostgreSQL {both / count:.0f} bytes each, ClickHouse {size / kept:.0f} bytes"
        )
    finally:
        await clickhouse.close()
        await database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m bench.history_stores --rows 20000")
    parser.add_argument("--rows", type=int, default=200_000, help="messages in history (%(default)s)")
    parser.add_argument("--runs", type=int, default=4, help="searches of each kind (%(default)s)")
    arguments = parser.parse_args()
    folder = temporary_folder()
    server = EmbeddedClickhouse(folder / "clickhouse")
    try:
        server.start()
        with made_database(arguments.rows) as url:
            print(f"{made.DAYS} days of history")
            uvloop.run(run(url, server.address, arguments.runs))
    finally:
        server.stop()
        remove_folder(folder)


if __name__ == "__main__":
    main()
