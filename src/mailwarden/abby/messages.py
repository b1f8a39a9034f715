"""GET /v1/messages/{ggrid}: why a message was judged as it was."""

import msgspec
from aiohttp import web

from mailwarden.abby.access import Caller
from mailwarden.history.finding import find_message
from mailwarden.history.store import HistoryStore
from mailwarden.serving.front_door import Call
from mailwarden.wire.explanation import explanation_of


class Messages:
    def __init__(self, history: HistoryStore) -> None:
        self._history = history

    async def explain(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Answer the explanation; a foreign message is answered like one that does not exist."""
        request = await find_message(self._history, caller.scope, call.variables["ggrid"])
        return web.Response(body=msgspec.json.encode(explanation_of(request)), content_type="application/json")
