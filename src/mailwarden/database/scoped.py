"""A transaction that says whose rows it may touch, begun and ended in one round trip each."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from mailwarden.database.pool import Connection, is_away

EVERYTHING = "all"
GLOBAL = "global"

_BEGIN = "BEGIN"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class ScopedTransaction:
    """`last` is a statement without values that travels with the commit: what it locks is held no longer than that."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = ""


@asynccontextmanager
async def scoped(
    connection: Connection, setting: str, *, snapshot: bool = False, first: str = ""
) -> AsyncIterator[ScopedTransaction]:
    """Run the block in one transaction under row-level security: `all`, `global`, or a tenant's uuid.

    With `snapshot` every statement of the block sees the same state and none may write. `first` are statements
    without values that travel with the beginning.
    """
    transaction = ScopedTransaction()
    begin = _BEGIN_SNAPSHOT if snapshot else _BEGIN
    try:
        await connection.execute(f"{begin}; SET LOCAL mailwarden.scope = '{_checked(setting)}'; {first}")
        yield transaction
        await connection.execute(f"{transaction.last}; COMMIT" if transaction.last else "COMMIT")
    except BaseException as error:
        # A statement that was cancelled leaves the connection well.
        if isinstance(error, asyncpg.QueryCanceledError) or not is_away(
            error
        ):  # on a connection that hangs a rollback would only wait once more
            with suppress(Exception):
                await connection.execute("ROLLBACK")
        raise


def _checked(setting: str) -> str:
    """Return the setting, which stands in the statement itself: letters, digits and hyphens, as every scope is."""
    if not setting.replace("-", "").isalnum() or not setting.isascii():
        raise ValueError("no scope")
    return setting
