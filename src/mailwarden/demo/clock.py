"""Moves the clock of the seeding process and of its database, so that two weeks of mail arrive within a minute.

The product keeps times that it reads itself: in Python (`datetime.now`), and in SQL (`now()`, also as the default of
columns). Both are moved here, in one place. In Python the modules of the product get another `datetime` until the end.
In SQL a schema `demo` stands before PostgreSQL's own functions in the search path; afterwards the schema is dropped,
which fails if any default were left.
"""

import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from types import ModuleType, SimpleNamespace

import asyncpg

# The modules that make ids, keep answers or count hits by `time`: it moves for them as well.
TIMED = ("mailwarden.model.ggrid", "mailwarden.senders.lookup", "mailwarden.lists.replica.matcher")
# Two weeks pass within a minute: no scan may give up on the sender history, and no writer needs a pause.
HURRIED: tuple[tuple[str, str, float], ...] = (
    ("mailwarden.senders.lookup", "DEADLINE", 10.0),
    ("mailwarden.history.writer", "PAUSE", 0.02),
    ("mailwarden.lists.replica.follower", "INTERVAL", 0.05),
    ("mailwarden.lists.replica.follower", "HITS_INTERVAL", 0.5),
)
_own: ContextVar[tuple[datetime, float] | None] = ContextVar("own", default=None)  # the moment of a task
_SCHEMA = """
CREATE SCHEMA demo;
CREATE TABLE demo.clock (moment timestamptz NOT NULL);
INSERT INTO demo.clock SELECT pg_catalog.now();
CREATE FUNCTION demo.now() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT moment FROM demo.clock';
CREATE FUNCTION demo.clock_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT moment FROM demo.clock'
"""
_END = """
DROP FUNCTION demo.now(); DROP FUNCTION demo.clock_timestamp(); DROP TABLE demo.clock; DROP SCHEMA demo
"""
_DEFAULTS = """
SELECT quote_ident(relname) AS name, quote_ident(attname) AS field, pg_get_expr(adbin, adrelid) AS made
FROM pg_attrdef JOIN pg_class ON pg_class.oid = adrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum
WHERE nspname = 'public' AND pg_get_expr(adbin, adrelid) ~ '(now|clock_timestamp)\\(\\)'
"""


class Clock:
    """The moment of the story. It stands still until it is moved; a task may have a moment of its own, which runs."""

    def __init__(self, moment: datetime, control: asyncpg.Connection) -> None:
        self.moment = moment
        self._control = control

    async def move(self, moment: datetime) -> None:
        """Move on; never back."""
        self.moment = max(self.moment, moment)
        await self._control.execute("UPDATE demo.clock SET moment = $1", self.moment)

    def now(self) -> datetime:
        own = _own.get()
        return self.moment if own is None else own[0] + timedelta(seconds=time.perf_counter() - own[1])

    @contextmanager
    def at(self, moment: datetime) -> Iterator[None]:
        """Let this task have another moment, from which its time runs."""
        token = _own.set((moment, time.perf_counter()))
        try:
            yield
        finally:
            _own.reset(token)


@asynccontextmanager
async def moved_clock(url: str, name: str, begin: datetime) -> AsyncIterator[Clock]:
    """Let this process and the named database have the time of the story; no other process may be connected yet."""
    control = await asyncpg.connect(url)
    try:
        await control.execute(_SCHEMA)
        await control.execute(f'ALTER DATABASE "{name}" SET search_path = public, demo, pg_catalog')
        # A seeding that breaks off is repeated: no commit needs to wait for the disk.
        await control.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
        defaults = [(str(row["name"]), str(row["field"]), str(row["made"])) for row in await control.fetch(_DEFAULTS)]
        for table, field, _ in defaults:
            await control.execute(f"ALTER TABLE public.{table} ALTER {field} SET DEFAULT demo.now()")
        clock = Clock(begin, control)
        await clock.move(begin)
        with _moved_modules(clock):
            yield clock
        for table, field, made in defaults:
            await control.execute(f"ALTER TABLE public.{table} ALTER {field} SET DEFAULT {made}")
        # Partitions that were made meanwhile have the default of their table at that time.
        left = [row for row in await control.fetch(_DEFAULTS) if str(row["made"]).startswith("demo.")]
        for row in left:
            await control.execute(f"ALTER TABLE public.{row['name']} ALTER {row['field']} SET DEFAULT now()")
        await control.execute(f'ALTER DATABASE "{name}" RESET ALL')
        await control.execute(_END)
    finally:
        await control.close()


@contextmanager
def _moved_modules(clock: Clock) -> Iterator[None]:
    """Replace `datetime` in every module of the product, and a few times and pauses; put all back at the end."""

    class Type(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime)

    class Moved(datetime, metaclass=Type):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]  # a plain one
            return clock.now().astimezone(tz or UTC)

    def seconds() -> float:
        return clock.now().timestamp()

    moved_time = SimpleNamespace(
        **{**vars(time), "time": seconds, "monotonic": seconds, "time_ns": lambda: int(seconds() * 1e9)}
    )
    product = {name: module for name, module in sys.modules.items() if name.startswith("mailwarden.")}
    replacements: list[tuple[ModuleType, str, object]] = [
        (module, "datetime", Moved)
        for name, module in product.items()
        if not name.startswith("mailwarden.demo") and vars(module).get("datetime") is datetime
    ]
    replacements += [(product[name], "time", moved_time) for name in TIMED]
    replacements += [(product[name], key, value) for name, key, value in HURRIED]
    before = [(module, key, vars(module)[key]) for module, key, _ in replacements]
    try:
        for module, key, value in replacements:
            setattr(module, key, value)
        yield
    finally:
        for module, key, value in before:
            setattr(module, key, value)
