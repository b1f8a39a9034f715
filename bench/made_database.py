"""A PostgreSQL server with a history of many messages, for one measurement."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import history as made
from mailwarden.database.migrations import migrate
from rig.folders import remove_folder, temporary_folder
from rig.postgresql import Postgresql


@contextmanager
def made_database(rows: int) -> Iterator[str]:
    """Yield its address."""
    folder = Path(temporary_folder())
    postgresql = Postgresql(folder / "postgresql")
    try:
        postgresql.start()
        url = postgresql.create_database("bench")
        _build(postgresql, url, rows)
        yield url
    finally:
        postgresql.stop()
        remove_folder(folder)


def _build(postgresql: Postgresql, url: str, rows: int) -> None:
    """Generate the rows without durable commits: the data need not survive a crash."""
    began = time.perf_counter()
    for setting in ("fsync = off", "max_wal_size = '4GB'"):
        postgresql.execute(f"ALTER SYSTEM SET {setting}")
    postgresql.execute("SELECT pg_reload_conf()")
    asyncio.run(migrate(url))
    asyncio.run(made.build_history(url, rows))
    postgresql.execute("ALTER SYSTEM RESET ALL")
    postgresql.execute("SELECT pg_reload_conf()")
    size = postgresql.execute("SELECT pg_size_pretty(pg_database_size('bench'))")
    print(f"{rows:,} messages of {made.DAYS} days, {size}, made in {time.perf_counter() - began:.0f} s", flush=True)
