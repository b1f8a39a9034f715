"""The PostgreSQL connections of one process, and transactions that name their scope for row-level security.

Connections are opened when first needed, and again after an outage. Creating a `Database` does not use the network, so
a process starts while PostgreSQL is down. Every failure of a connection becomes StorageUnavailable for the caller,
within the caller's timeout.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Protocol

import asyncpg

from mailwarden.errors import StorageUnavailable
from mailwarden.telemetry.logs import get_logger

RETRY_AFTER = 2

# Errors after which the same statement may succeed later, on another connection or server.
_OUTAGES = (
    OSError,  # refused, cut, unreachable, TLS; a timeout is an OSError as well
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutting down, starting up, statement cancelled
    asyncpg.InsufficientResourcesError,  # too many connections, disk full, out of memory
    asyncpg.PostgresSystemError,  # I/O errors of the server
    asyncpg.InvalidAuthorizationSpecificationError,  # wrong password: the operator fixes it, not the caller
    asyncpg.InvalidCatalogNameError,
    asyncpg.ReadOnlySQLTransactionError,  # a standby that has not been promoted yet
    asyncpg.ProtocolViolationError,  # how PgBouncer reports that it has no server
)
# Errors of a server or pooler that goes away: its other connections are about to fail as well.
_LOST = (
    ConnectionError,
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.CannotConnectNowError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.ProtocolViolationError,  # PgBouncer: no server connection, or its server closed the connection
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
)
# The server works; the statement conflicted with another one.
_BUSY = (asyncpg.TransactionRollbackError, asyncpg.LockNotAvailableError)

APPLICATION = "mailwarden"
STATEMENTS = 100  # prepared statements that a connection keeps
COMMAND_TIMEOUT = 10.0
CONNECT_TIMEOUT = 3.0
IDLE_SECONDS = 60.0  # of a transaction that waits for its process
PROBE_TIMEOUT = 2.0
RETRY_SECONDS = 1.0  # of an outage in which callers wait for a connection; later ones fail at once
RETRY_PAUSE = 0.05
LOG_EVERY = 10.0  # seconds; a full pool may fail and recover many times per second
_RELEASE_TIMEOUT = 1.0

log = get_logger("database")

# It writes to the WAL and changes no row. A transaction number alone would not make the commit wait.
_WRITE_NOTHING = "SELECT pg_logical_emit_message(true, 'mailwarden', '')"

# Control characters that no copied value holds stand for the marks of CSV, so that no value is quoted or split.
COPY_DELIMITER = "\x01"
_COPY_QUOTE = "\x02"

EVERYTHING = "all"
GLOBAL = "global"

_BEGIN = "BEGIN"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


def is_outage(error: BaseException, *, broken: bool = True) -> bool:
    """Return whether the error is about the connection or the server, not about the statement.

    The driver has one class for a closed connection and for a wrong call: `broken` distinguishes them.
    """
    if isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return broken
    return isinstance(error, _OUTAGES)


def is_lost(error: BaseException | None) -> bool:
    """Return whether an outage is the loss of the connection; the server rolls an open transaction back."""
    return isinstance(error, _LOST)


def lacks_tables(error: BaseException) -> bool:
    """Return whether the schema of the database is of another version."""
    return isinstance(error, asyncpg.UndefinedTableError | asyncpg.UndefinedColumnError)


def storage_unavailable(error: BaseException, *, broken: bool = True) -> StorageUnavailable | None:
    """Return the error for callers while the database is unavailable, or None if the error is a bug."""
    if lacks_tables(error):
        sentence = "The database lacks a table of this version: run `mailwarden database migrate`."
        return StorageUnavailable(sentence, retry_after=RETRY_AFTER)
    if isinstance(error, _BUSY):
        return StorageUnavailable("The database is busy.", retry_after=RETRY_AFTER)
    if not is_outage(error, broken=broken):
        return None
    if isinstance(error, TimeoutError):
        return StorageUnavailable("The database does not answer in time.", retry_after=RETRY_AFTER)
    return StorageUnavailable("The database is down.", retry_after=RETRY_AFTER)


class Row(Protocol):
    """One row of a result, read by column name."""

    def __getitem__(self, column: str) -> object: ...


class Connection(Protocol):
    """The methods of a connection that our stores use."""

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

    def terminate(self) -> None: ...

    def transaction(
        self, *, isolation: str | None = None, readonly: bool = False
    ) -> AbstractAsyncContextManager[None]: ...


class Meters(Protocol):
    """Takes the seconds that callers waited for a connection and used it, and counts outages."""

    def waited(self, amount: float) -> None: ...

    def used(self, amount: float) -> None: ...

    def failed(self) -> None: ...


class _NoMeters:
    def waited(self, amount: float) -> None: ...

    def used(self, amount: float) -> None: ...

    def failed(self) -> None: ...


class Database:
    """A bounded pool of connections to one PostgreSQL database."""

    def __init__(
        self,
        url: str,
        pool_size: int = 4,
        command_timeout: float = COMMAND_TIMEOUT,
        *,
        logs: bool = False,
        pooled: bool = False,
    ) -> None:
        """`pooled`: the URL is a pooler in transaction mode. Nothing then outlives a transaction on a connection."""
        self.up = False  # at the last attempt
        self.meters: Meters = _NoMeters()
        self._logs = logs  # for processes; a command prints the error instead
        self._logged: str | None = None
        self._log_from = 0.0
        self._url = url
        self._pooled = pooled
        self.pool_size = pool_size
        self._command_timeout = command_timeout
        self._pool: asyncpg.Pool | None = None
        self._closed = False
        self._down_since: float | None = None

    @property
    def in_use(self) -> int:
        """Return how many connections callers have."""
        return 0 if self._pool is None else self._pool.get_size() - self._pool.get_idle_size()

    @asynccontextmanager
    async def connection(self, wait: float = CONNECT_TIMEOUT) -> AsyncIterator[Connection]:
        """Lend a connection for the statements inside the block; `wait` is the longest wait for it, in seconds.

        Only SQL belongs in the block: an OSError raised there counts as a failure of the database.
        """
        held = None
        cancelled = False
        pool = await self._opened()
        began = lent = time.perf_counter()
        try:
            held = await self._acquire(pool, wait)
            lent = time.perf_counter()
            yield held
        except Exception as error:
            broken = _is_broken(held)
            if is_outage(error, broken=broken):
                self._drop(held)
                self.meters.failed()
                if is_lost(error):
                    await pool.expire_connections()
            unavailable = storage_unavailable(error, broken=broken)
            if unavailable is None:
                raise
            if is_outage(error, broken=broken) or lacks_tables(error):
                self._log_outage(unavailable, error)
            raise unavailable from error
        except asyncio.CancelledError:
            cancelled = True
            raise
        else:
            self._log_recovery()
            self.up, self._down_since = True, None
        finally:
            if held is not None:
                self.meters.waited(lent - began)
                self.meters.used(time.perf_counter() - lent)
                with suppress(Exception):  # the pool closes a connection that cannot be released
                    if cancelled:
                        await asyncio.shield(_release_cancelled(pool, held))
                    else:
                        await pool.release(held, timeout=_RELEASE_TIMEOUT)

    async def probe(self) -> bool:
        """Run a trivial query, and remember whether it succeeded."""
        try:
            async with asyncio.timeout(PROBE_TIMEOUT), self.connection(PROBE_TIMEOUT) as connection:
                await connection.fetchval("SELECT 1")
        except (StorageUnavailable, TimeoutError):
            self.up = False
        return self.up

    async def close(self, deadline: float = 5.0) -> None:
        """Wait at most `deadline` seconds for running statements, then close the connections."""
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is None:
            return
        try:
            async with asyncio.timeout(deadline):
                await pool.close()
        except Exception:  # the server may be down; no connection may stay open
            pool.terminate()

    async def _opened(self) -> asyncpg.Pool:
        if self._closed:
            raise StorageUnavailable("The database connections are closed.", retry_after=1)
        if self._pool is None:
            # With `min_size=0` this returns without using the network.
            self._pool = asyncpg.create_pool(
                self._url,
                min_size=0,
                max_size=self.pool_size,
                timeout=CONNECT_TIMEOUT,
                command_timeout=self._command_timeout,
                server_settings=self._session_settings(),
                reset=_keep_session,
                # A prepared statement belongs to a session of the server, which a pooler gives to other clients.
                statement_cache_size=0 if self._pooled else STATEMENTS,
            )
        await self._pool
        return self._pool

    async def _acquire(self, pool: asyncpg.Pool, wait: float) -> asyncpg.Connection:
        """Take a connection from the pool; in the first second of an outage, try again.

        Nothing of the caller has been sent yet, so every attempt is safe to repeat.
        """
        pause, end = RETRY_PAUSE, time.monotonic() + wait
        while True:
            try:
                held = await pool.acquire(timeout=max(0.001, end - time.monotonic()))
                if not self.up:
                    await _check_primary(pool, held)
            except Exception as error:
                now = time.monotonic()
                since = self._down_since = self._down_since or now
                if not is_lost(error) or now + pause > min(end, since + RETRY_SECONDS):
                    raise
            else:
                return held
            await asyncio.sleep(pause)
            pause *= 2

    def _session_settings(self) -> dict[str, str]:
        """Return the settings of a session. A pooler's sessions are shared: deploy/ha/pgbouncer.ini sets theirs."""
        if self._pooled:
            return {"application_name": APPLICATION}
        return {
            "application_name": APPLICATION,
            "statement_timeout": str(int(self._command_timeout * 1000)),
            # A frozen or unreachable process must not keep its locks: events of others wait for them.
            "idle_in_transaction_session_timeout": str(int(max(IDLE_SECONDS, self._command_timeout) * 1000)),
            "tcp_keepalives_idle": "30",
            "tcp_keepalives_interval": "10",
            "tcp_keepalives_count": "3",
            "jit": "off",
        }

    def _log_outage(self, unavailable: StorageUnavailable, error: Exception) -> None:
        """Log once why the database is unavailable; callers do not see the reason."""
        now = time.monotonic()
        if self._logs and self._logged != unavailable.message and now >= self._log_from:
            self._logged, self._log_from = unavailable.message, now + LOG_EVERY
            log.warning("database_unavailable", sentence=unavailable.message, reason=f"{type(error).__name__}: {error}")

    def _log_recovery(self) -> None:
        # The next statement may use another table, so its success does not end the failure of a missing table.
        if self._logged is not None and not self.up:
            self._logged = None
            log.info("database_available")

    def _drop(self, held: asyncpg.Connection | None) -> None:
        self.up = False
        if held is not None:
            # The server may hang: closing the connection makes the next caller open a new one.
            with suppress(asyncpg.InterfaceError):
                held.terminate()


def _is_broken(held: asyncpg.Connection | None) -> bool:
    """Return whether no statement can be sent; the pool may already have dropped a cut connection."""
    try:
        return held is None or bool(held.is_closed())
    except asyncpg.InterfaceError:
        return True


async def _check_primary(pool: asyncpg.Pool, held: asyncpg.Connection) -> None:
    """Raise unless the server answers and accepts writes; the connection is closed then."""
    standby = True
    try:
        standby = bool(await held.fetchval("SELECT pg_is_in_recovery()"))
    finally:
        if standby:
            with suppress(Exception):
                held.terminate()
                await pool.release(held, timeout=_RELEASE_TIMEOUT)
    if standby:
        raise asyncpg.ReadOnlySQLTransactionError("the server is a standby")


async def _release_cancelled(pool: asyncpg.Pool, held: asyncpg.Connection) -> None:
    """Return the connection of a cancelled caller to the pool.

    The driver prepares a statement and executes it in two messages. A caller that is cancelled between them leaves a
    transaction of which the driver does not know; the next caller would work inside it.
    """
    if not _is_broken(held):
        try:
            async with asyncio.timeout(_RELEASE_TIMEOUT):
                await held.execute(";")  # an empty simple query ends it; the pool rolls back other transactions
        except Exception:
            held.terminate()
    await pool.release(held, timeout=_RELEASE_TIMEOUT)


async def _keep_session(_: object) -> None:
    """Skip the round trip of a reset: our statements leave no session state."""


async def copy_lines(connection: Connection, query: str, sink: Callable[[bytes], Awaitable[None]]) -> None:
    """Give the rows of a query to the sink as lines; the database waits while the sink does.

    If the sink fails, the connection is closed. The driver would ask the server to cancel and wait for its answer,
    which never comes if the server has sent all rows: the transaction would keep its locks.
    """
    try:
        await connection.copy_from_query(query, output=sink, format="csv", delimiter=COPY_DELIMITER, quote=_COPY_QUOTE)
    except BaseException:
        with suppress(asyncpg.InterfaceError):
            connection.terminate()
        raise


async def confirm_earlier(connection: Connection) -> None:
    """Make the commit of this transaction wait for the standby, as if the transaction had changed a row.

    A repeated change may find everything done by an attempt whose wait for the standby was cut off. Its own commit
    would not wait, and acknowledge a change that a failover can lose. See decision 106.
    """
    await connection.execute(_WRITE_NOTHING)


class ScopedTransaction:
    """`last` is a statement without parameters that is sent with COMMIT, so its locks are held only briefly.

    `in_doubt`: COMMIT was sent, and no answer came. The transaction may be committed or not.
    """

    __slots__ = ("in_doubt", "last")

    def __init__(self) -> None:
        self.last = ""
        self.in_doubt = False


@asynccontextmanager
async def scoped(
    connection: Connection, setting: str, *, snapshot: bool = False, first: str = ""
) -> AsyncIterator[ScopedTransaction]:
    """Run the block in one transaction that may see the rows of a scope: `all`, `global`, or a tenant's UUID.

    Only the tables of lists and feeds have row-level security; statements on others compare the tenant themselves.

    With `snapshot` every statement of the block sees the same state and none may write. `first` has statements without
    parameters that are sent with BEGIN.
    """
    transaction = ScopedTransaction()
    begin = _BEGIN_SNAPSHOT if snapshot else _BEGIN
    try:
        await connection.execute(f"{begin}; SET LOCAL mailwarden.scope = '{_checked(setting)}'; {first}")
        yield transaction
        transaction.in_doubt = True
        await connection.execute(f"{transaction.last}; COMMIT" if transaction.last else "COMMIT")
        transaction.in_doubt = False
    except BaseException as error:
        if isinstance(error, asyncpg.PostgresError) and not is_lost(error):
            transaction.in_doubt = False  # the server answered: the transaction failed
        # A cancelled statement leaves the connection usable. On a connection that hangs, a rollback would only wait
        # again.
        if isinstance(error, asyncpg.QueryCanceledError) or not is_outage(error):
            with suppress(Exception):
                await connection.execute("ROLLBACK")
        raise


def _checked(setting: str) -> str:
    """Return the scope if it has only letters, digits and hyphens: it is part of the statement's text."""
    if not setting.replace("-", "").isalnum() or not setting.isascii():
        raise ValueError("no scope")
    return setting
