"""A transaction under row-level security, with one round trip to begin and one to end it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from mailwarden.database.pool import Connection, is_away

EVERYTHING = "all"
GLOBAL = "global"

_BEGIN = "BEGIN"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


class ScopedTransaction:
    """`last` is a statement without parameters that is sent with COMMIT, so its locks are held only briefly."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = ""


@asynccontextmanager
async def scoped(
    connection: Connection, setting: str, *, snapshot: bool = False, first: str = ""
) -> AsyncIterator[ScopedTransaction]:
    """Run the block in one transaction under row-level security: `all`, `global`, or a tenant's UUID.

    With `snapshot` every statement of the block sees the same state and none may write. `first` has statements without
    parameters that are sent with BEGIN.
    """
    transaction = ScopedTransaction()
    begin = _BEGIN_SNAPSHOT if snapshot else _BEGIN
    try:
        await connection.execute(f"{begin}; SET LOCAL mailwarden.scope = '{_checked(setting)}'; {first}")
        yield transaction
        await connection.execute(f"{transaction.last}; COMMIT" if transaction.last else "COMMIT")
    except BaseException as error:
        # A cancelled statement leaves the connection usable. On a connection that hangs, a rollback would only wait
        # again.
        if isinstance(error, asyncpg.QueryCanceledError) or not is_away(error):
            with suppress(Exception):
                await connection.execute("ROLLBACK")
        raise


def _checked(setting: str) -> str:
    """Return the scope if it has only letters, digits and hyphens: it is part of the statement's text."""
    if not setting.replace("-", "").isalnum() or not setting.isascii():
        raise ValueError("no scope")
    return setting
