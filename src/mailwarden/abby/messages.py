"""GET /v1/messages/{ggrid}: why a message was judged as it was."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec
from aiohttp import web

from mailwarden.abby.access import Caller
from mailwarden.errors import MessageNotFound
from mailwarden.history.store import HistoryStore
from mailwarden.model.ggrid import moment_of
from mailwarden.model.record import FinishedRequest
from mailwarden.serving.front_door import Call
from mailwarden.wire.explanation import explanation_of

JUST_MADE = timedelta(minutes=2)  # longer than an analysis may take, so that its explanation may be on its way
PATIENCE = 1.0
PAUSE = 0.1


class Messages:
    def __init__(self, history: HistoryStore) -> None:
        self._history = history

    async def explain(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Answer the explanation; a foreign message is answered like one that does not exist."""
        ggrid = ggrid_in(call.variables["ggrid"])
        request = await self._find(caller, ggrid)
        if request is None:
            raise MessageNotFound("There is no message with this ggrid.")
        return web.Response(body=msgspec.json.encode(explanation_of(request)), content_type="application/json")

    async def _find(self, caller: Caller, ggrid: UUID) -> FinishedRequest | None:
        """Look the message up; history is written a moment after the answer, so a new one is awaited a moment."""
        loop = asyncio.get_running_loop()
        end = loop.time() + (PATIENCE if was_just_made(ggrid, datetime.now(UTC)) else 0)
        while True:
            request = await self._history.find(caller.scope, ggrid)
            if request is not None or loop.time() >= end:
                return request
            await asyncio.sleep(PAUSE)


def ggrid_in(text: str) -> UUID:
    """Return the ggrid in a path; what is none names no message."""
    try:
        ggrid = UUID(text)
    except ValueError:
        raise MessageNotFound("There is no message with this ggrid.") from None
    if str(ggrid) != text.lower():
        raise MessageNotFound("There is no message with this ggrid.")
    return ggrid


def was_just_made(ggrid: UUID, now: datetime) -> bool:
    made = moment_of(ggrid)
    return made is not None and abs(now - made) < JUST_MADE
