"""Checks of `mailwarden doctor` read the database through this module."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mailwarden.database.pool import Database
from mailwarden.errors import MailwardenError

PATIENCE = 5.0  # seconds

T = TypeVar("T")


async def read_stored(url: str, read: Callable[[Database], Awaitable[T]]) -> T | None:
    """Return what is stored, or None if the database does not answer: its own line reports that."""
    database = Database(url, pool_size=1, pooled=True)
    try:
        async with asyncio.timeout(PATIENCE):
            return await read(database)
    except (MailwardenError, OSError, TimeoutError):
        return None
    finally:
        await database.close()
