"""The lock of a list: changes run in parallel, and a change that waits too long gets the list exclusively.

PostgreSQL gives a free row lock to any waiting transaction, so a large change among many small ones could starve. The
advisory lock of a list is granted in order: every change takes it shared, and a change that times out takes it
exclusively.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import asyncpg

from mailwarden.database.pool import Connection
from mailwarden.database.scoped import ScopedTransaction, scoped

SHARED_TIMEOUT_MS = 1_000
_LOCKS = 1_818_850_164  # names our locks among those of one database
# A plan that is made while a list is short is kept while it grows: it must not be one that reads the whole list.
BY_INDEX = "SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"
_SHARED = (
    "SELECT pg_advisory_xact_lock_shared({locks}, {list_id}); SET LOCAL statement_timeout = {patience}; {by_index}"
)
_ALONE = "SELECT pg_advisory_xact_lock({locks}, {list_id}); {by_index}"

T = TypeVar("T")


async def with_list_lock(
    connection: Connection, setting: str, list_id: int, change: Callable[[ScopedTransaction], Awaitable[T]]
) -> T:
    """Run the change in a transaction of that scope, and once more, alone, where others kept it waiting too long."""
    shared = _SHARED.format(locks=_LOCKS, list_id=list_id, patience=SHARED_TIMEOUT_MS, by_index=BY_INDEX)
    try:
        async with scoped(connection, setting, first=shared) as transaction:
            return await change(transaction)
    except (asyncpg.QueryCanceledError, asyncpg.TransactionRollbackError):
        alone = _ALONE.format(locks=_LOCKS, list_id=list_id, by_index=BY_INDEX)
    async with scoped(connection, setting, first=alone) as transaction:
        return await change(transaction)
