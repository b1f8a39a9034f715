"""Finds one message by its ggrid for the API and the console, and waits briefly for a message that was just scanned."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mailwarden.errors import MessageNotFound
from mailwarden.history.store import HistoryStore
from mailwarden.model.ggrid import moment_of
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

RECENT = timedelta(minutes=2)  # longer than an analysis takes, so the row may still be in a guard's queue
WAIT_SECONDS = 1.0
RETRY_SECONDS = 0.1


async def find_message(history: HistoryStore, scope: Scope, text: str) -> FinishedRequest:
    """Return the message of this ggrid; raise MessageNotFound for an invalid, foreign or deleted one alike.

    History is written shortly after the response, so a recent message is looked up again for a moment.
    """
    ggrid = parse_ggrid(text)
    loop = asyncio.get_running_loop()
    end = loop.time() + (WAIT_SECONDS if is_recent(ggrid, datetime.now(UTC)) else 0)
    while True:
        request = await history.find(scope, ggrid)
        if request is not None:
            return request
        if loop.time() >= end:
            raise _not_found()
        await asyncio.sleep(RETRY_SECONDS)


def parse_ggrid(text: str) -> UUID:
    """Return the ggrid in a path, or raise MessageNotFound."""
    try:
        ggrid = UUID(text)
    except ValueError:
        raise _not_found() from None
    if str(ggrid) != text.lower():
        raise _not_found()
    return ggrid


def is_recent(ggrid: UUID, now: datetime) -> bool:
    created = moment_of(ggrid)
    return created is not None and abs(now - created) < RECENT


def _not_found() -> MessageNotFound:
    return MessageNotFound("There is no message with this ggrid.")
