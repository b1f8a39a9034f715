"""The PostgreSQL connections of one process: opened when first needed, opened again after an outage.

Making a `Database` touches no network, so a process starts while PostgreSQL is away. Whatever goes wrong with
a connection reaches the caller as StorageUnavailable, within the time it gave."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import asyncpg

from mailwarden.errors import StorageUnavailable
from mailwarden.telemetry.logs import get_logger

RETRY_AFTER = 2

# Whatever makes the same statement succeed later, on another connection or another server.
_AWAY = (
    OSError,  # refused, cut, unreachable, TLS; a timeout is one as well
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutting down, starting up, statement cancelled
    asyncpg.InsufficientResourcesError,  # too many connections, disk full, out of memory
    asyncpg.PostgresSystemError,  # the server's own input and output
    asyncpg.InvalidAuthorizationSpecificationError,  # wrong password: the operator's to mend, never the caller's
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby that has not been promoted yet
)
# The server is well, and the statement lost against another one.
_BUSY = (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError)


def is_away(error: BaseException, *, broken: bool = True) -> bool:
    """Tell whether the error speaks of the connection or the server, and not of the statement.

    The driver has one class for a closed connection and for a wrong call: `broken` says which it was.
    """
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return broken
    return isinstance(error, _AWAY)


def lacks_tables(error: BaseException) -> bool:
    """Tell whether the database is not yet, or no longer, of this version."""
    return isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError)


def storage_unavailable(error: BaseException, *, broken: bool = True) -> StorageUnavailable | None:
    """Return what callers see for a database that cannot answer now, or None where the error is a bug."""
    if lacks_tables(error):
        sentence = "The database lacks a table of this version: run `mailwarden database migrate`."
        return StorageUnavailable(sentence, retry_after=RETRY_AFTER)
    if isinstance(error, _BUSY):
        return StorageUnavailable("The database is busy.", retry_after=RETRY_AFTER)
    if not is_away(error, broken=broken):
        return None
    if isinstance(error, TimeoutError):
        return StorageUnavailable("The database does not answer in time.", retry_after=RETRY_AFTER)
    return StorageUnavailable("The database is down.", retry_after=RETRY_AFTER)


COMMAND_TIMEOUT = 10.0
CONNECT_TIMEOUT = 3.0
PROBE_TIMEOUT = 2.0
TELL_EVERY = 10.0  # seconds; a pool that is full may come and go many times a second
_RELEASE_TIMEOUT = 1.0

log = get_logger("database")


class Row(Protocol):
    """One row of an answer, read by column name."""

    def __getitem__(self, column: str) -> object: ...


class Connection(Protocol):
    """What our stores use of a connection."""

    async def execute(self, query: str, *args: object) -> str: ...

    async def fetch(self, query: str, *args: object) -> Sequence[Row]: ...

    async def fetchrow(self, query: str, *args: object) -> Row | None: ...

    async def fetchval(self, query: str, *args: object) -> object: ...

    async def copy_from_query(
        self,
        query: str,
        *,
        output: Callable[[bytes], Awaitable[None]],
        format: str,  # noqa: A002 -- the driver's word
        delimiter: str,
        quote: str,
    ) -> str: ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[None]: ...


class Database:
    """A bounded set of connections to one PostgreSQL database."""

    def __init__(
        self, url: str, pool_size: int = 4, command_timeout: float = COMMAND_TIMEOUT, *, logs: bool = False
    ) -> None:
        self.up = False  # as last seen
        self._logs = logs  # of a process; a command tells its person instead
        self._told: str | None = None
        self._tell_from = 0.0
        self._url = url
        self._pool_size = pool_size
        self._command_timeout = command_timeout
        self._pool: asyncpg.Pool | None = None
        self._closed = False

    @asynccontextmanager
    async def connection(self, wait: float = CONNECT_TIMEOUT) -> AsyncIterator[Connection]:
        """Lend a connection for the statements inside the block; `wait` is the longest wait for it, in seconds.

        Only SQL belongs in the block: an OSError raised there is taken for the database's.
        """
        held = None
        pool = await self._opened()
        try:
            held = await pool.acquire(timeout=wait)
            yield held
        except Exception as error:
            broken = _is_broken(held)
            if is_away(error, broken=broken):
                self._give_up(held)
            unavailable = storage_unavailable(error, broken=broken)
            if unavailable is None:
                raise
            if is_away(error, broken=broken) or lacks_tables(error):
                self._tell(unavailable, error)
            raise unavailable from error
        else:
            self._tell_back()
            self.up = True
        finally:
            if held is not None:
                with suppress(Exception):  # a connection that cannot be released is closed by the pool
                    await pool.release(held, timeout=_RELEASE_TIMEOUT)

    async def probe(self) -> bool:
        """Ask the server the cheapest question there is, and remember whether it answered."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT), self.connection(PROBE_TIMEOUT) as connection:
                await connection.fetchval("SELECT 1")
        except (StorageUnavailable, TimeoutError):
            self.up = False
        return self.up

    async def close(self, deadline: float = 5.0) -> None:
        """Wait for the statements in hand at most `deadline` seconds, then cut the connections."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(deadline):
                await pool.close()
        except Exception:  # the server may be away just now; what matters is that nothing stays open
            pool.terminate()

    async def _opened(self) -> asyncpg.Pool:
        if self._closed:
            raise StorageUnavailable("The database connections are closed.", retry_after=1)
        if self._pool is None:
            # With no connection to hold ready this returns without touching the network.
            self._pool = asyncpg.create_pool(
                self._url,
                min_size=0,
                max_size=self._pool_size,
                timeout=CONNECT_TIMEOUT,
                command_timeout=self._command_timeout,
                server_settings={
                    "application_name": "mailwarden",
                    "statement_timeout": str(int(self._command_timeout * 1000)),
                    "jit": "off",
                },
                reset=_keep_session,
            )
        await self._pool
        return self._pool

    def _tell(self, unavailable: StorageUnavailable, error: Exception) -> None:
        """Log once why the database does not answer: what callers are told keeps that from them."""
        now = time.monotonic()
        if self._logs and self._told != unavailable.message and now >= self._tell_from:
            self._told, self._tell_from = unavailable.message, now + TELL_EVERY
            log.warning("database_unavailable", sentence=unavailable.message, reason=f"{type(error).__name__}: {error}")

    def _tell_back(self) -> None:
        # A missing table is no outage that ends with the next statement, which may ask for another table.
        if self._told is not None and not self.up:
            self._told = None
            log.info("database_available")

    def _give_up(self, held: asyncpg.Connection | None) -> None:
        self.up = False
        if held is not None:
            # It may hang on a server that stands still: closing it now makes the next caller dial anew.
            with suppress(asyncpg.InterfaceError):
                held.terminate()


def _is_broken(held: asyncpg.Connection | None) -> bool:
    """Tell whether no statement can be sent; a connection that was cut has left the pool behind our back."""
    try:
        return held is None or bool(held.is_closed())
    except asyncpg.InterfaceError:
        return True


async def _keep_session(_: object) -> None:
    """Save the round trip of a reset: our statements leave nothing behind in a session."""
