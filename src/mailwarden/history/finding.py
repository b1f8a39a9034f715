"""Finds one message by its ggrid, for the API and for the console alike; one that was just made is awaited a moment."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mailwarden.errors import MessageNotFound
from mailwarden.history.store import HistoryStore
from mailwarden.model.ggrid import moment_of
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope

JUST_MADE = timedelta(minutes=2)  # longer than an analysis may take, so that its explanation may be on its way
PATIENCE = 1.0
PAUSE = 0.1


async def find_message(history: HistoryStore, scope: Scope, text: str) -> FinishedRequest:
    """Return the message of this ggrid; what is none, foreign or gone is answered alike.

    History is written a moment after the answer, so a new message is awaited that moment.
    """
    ggrid = ggrid_in(text)
    loop = asyncio.get_running_loop()
    end = loop.time() + (PATIENCE if was_just_made(ggrid, datetime.now(UTC)) else 0)
    while True:
        request = await history.find(scope, ggrid)
        if request is not None:
            return request
        if loop.time() >= end:
            raise _unknown()
        await asyncio.sleep(PAUSE)


def ggrid_in(text: str) -> UUID:
    """Return the ggrid in a path; what is none names no message."""
    try:
        ggrid = UUID(text)
    except ValueError:
        raise _unknown() from None
    if str(ggrid) != text.lower():
        raise _unknown()
    return ggrid


def was_just_made(ggrid: UUID, now: datetime) -> bool:
    made = moment_of(ggrid)
    return made is not None and abs(now - made) < JUST_MADE


def _unknown() -> MessageNotFound:
    return MessageNotFound("There is no message with this ggrid.")
