"""A database that is away is told from a mistake of ours."""

import ssl

import asyncpg
import pytest

from mailwarden.database.pool import storage_unavailable


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(),
        ConnectionResetError(),
        TimeoutError(),
        ssl.SSLError("handshake"),
        asyncpg.ConnectionDoesNotExistError("cut"),
        asyncpg.CannotConnectNowError("starting up"),
        asyncpg.AdminShutdownError("shutting down"),
        asyncpg.CrashShutdownError("crashed"),
        asyncpg.TooManyConnectionsError("full"),
        asyncpg.DiskFullError("full"),
        asyncpg.QueryCanceledError("statement timeout"),
        asyncpg.DeadlockDetectedError("deadlock"),
        asyncpg.InvalidPasswordError("wrong"),
        asyncpg.InvalidCatalogNameError("no such database"),
        asyncpg.ReadOnlySQLTransactionError("a standby"),
        asyncpg.UndefinedTableError("not migrated"),
        asyncpg.InterfaceError("connection is closed"),
    ],
)
def test_temporary_failures_are_storage_unavailable_with_retry_after(error: Exception) -> None:
    found = storage_unavailable(error)
    assert found is not None
    assert found.retry_after


@pytest.mark.parametrize(
    "error",
    [ValueError(), asyncpg.PostgresSyntaxError("bug"), asyncpg.DataError("bug"), asyncpg.UniqueViolationError("taken")],
)
def test_a_bug_stays_a_bug(error: Exception) -> None:
    assert storage_unavailable(error) is None


def test_a_wrong_call_on_a_good_connection_is_a_bug() -> None:
    assert storage_unavailable(asyncpg.InterfaceError("expects 1 argument"), broken=False) is None
