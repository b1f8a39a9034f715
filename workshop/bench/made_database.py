"""A PostgreSQL server with a history of many messages, for one measurement or for several."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mailwarden.database.migrations import migrate
from workshop.bench import history as made
from workshop.rig.folders import make_folder, remove_folder, temporary_folder
from workshop.rig.postgresql import Postgresql

DATABASE = "bench"
_DONE = "made"  # the file that says how many rows a kept folder has


@contextmanager
def made_database(rows: int, kept: Path | None = None) -> Iterator[str]:
    """Yield its address; the rows stay in the folder `kept` for the next measurement, if one is given."""
    folder = make_folder(kept.absolute()) if kept is not None else temporary_folder()
    postgresql, done = Postgresql(folder / "postgresql"), folder / _DONE
    try:
        postgresql.start()
        if done.exists() and done.read_text("utf-8") == str(rows):
            url = postgresql.url(DATABASE)
        else:
            postgresql.drop_database(DATABASE)
            url = postgresql.create_database(DATABASE)
            _build(postgresql, url, rows)
            done.write_text(str(rows), "utf-8")
        yield url
    finally:
        postgresql.stop()
        if kept is None:
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
