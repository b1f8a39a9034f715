"""`make bench-history-size`: the bytes of one message in history, with indexes, for the capacity model."""

import argparse
import asyncio

import asyncpg

from bench.made_database import made_database

SIZES = """
SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)), sum(pg_total_relation_size(inhrelid))
FROM pg_inherits WHERE inhparent = 'history'::regclass
"""


async def measure(url: str) -> tuple[int, int, int, int]:
    """Return the number of rows and the bytes of tables, of indexes and of both."""
    connection = await asyncpg.connect(url)
    try:
        rows = await connection.fetchval("SELECT count(*) FROM history")
        table, indexes, both = await connection.fetchrow(SIZES)
    finally:
        await connection.close()
    return int(rows), int(table), int(indexes), int(both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m bench.history_size --rows 200000")
    parser.add_argument("--rows", type=int, default=200_000, help="messages in history (default: %(default)s)")
    arguments = parser.parse_args()
    with made_database(arguments.rows) as url:
        rows, table, indexes, both = asyncio.run(measure(url))
    print(f"rows {table / rows:.0f} bytes a message, indexes {indexes / rows:.0f}")
    print(f"history size {both / rows:.0f} bytes a message, {rows:,} messages")


if __name__ == "__main__":
    main()
