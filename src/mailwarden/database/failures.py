"""Tells a database that is away from a mistake of ours: the one place where PostgreSQL's errors become our own."""

import asyncpg

from mailwarden.errors import StorageUnavailable

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
