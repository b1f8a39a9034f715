"""GET /v1/messages/{ggrid}: why a message was judged as it was."""

import msgspec
from aiohttp import web

from mailwarden.abby.access import Caller
from mailwarden.history.lookup import find_message
from mailwarden.history.store import HistoryStore
from mailwarden.serving.front_door import Call
from mailwarden.wire.explanation import ExplanationQuery, explanation_of
from mailwarden.wire.query import read_query


class Messages:
    def __init__(self, history: HistoryStore) -> None:
        self._history = history

    async def explain(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Answer the explanation; a foreign message is answered like one that does not exist.

        A message with recipients of several tenants has a row for each of them: the caller names the tenant, or gets
        the row that was answered to the submission, as far as its scope goes, and hears which others there are.
        """
        query = read_query(call.request.query.items(), ExplanationQuery)
        scope = caller.scope.narrowed(query.tenant_uid or None)
        request = await find_message(self._history, scope, call.variables["ggrid"])
        tenants = await self._history.tenants_of(caller.scope, request.ggrid)
        explanation = explanation_of(request, tenants)
        return web.Response(body=msgspec.json.encode(explanation), content_type="application/json")
