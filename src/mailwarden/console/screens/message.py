"""One message: what it was taken for and why, what would change that, and what can be done about it."""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.message_view import MessageView, view_of
from mailwarden.console.page import Page
from mailwarden.console.rights import Right
from mailwarden.console.visit import GLOBAL, Visit
from mailwarden.history.finding import find_message
from mailwarden.history.store import HistoryStore
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.rules import Policy


class MessageScreen:
    def __init__(self, history: HistoryStore, policy: Policy) -> None:
        self._history = history
        self._policy = policy

    def pages(self) -> Sequence[Page]:
        return [Page("GET", "/messages/{ggrid}", Right.MESSAGES, self.show)]

    async def show(self, visit: Visit) -> web.StreamResponse:
        """Show a message of the person's own scope; a foreign one is answered like one that does not exist."""
        request = await find_message(self._history, visit.scope, visit.variables["ggrid"])
        return visit.render("message/page.html", shown(visit, view_of(request, self._policy), stored=True))


def shown(visit: Visit, message: MessageView, *, stored: bool) -> dict[str, object]:
    """Return what the templates of a message are given."""
    return {
        "message": message,
        "stored": stored,
        "curl": curl_for(visit, message.request),
        "scopes": scopes_for(visit, message.request),
    }


def curl_for(visit: Visit, request: FinishedRequest) -> str:
    address = f"https://{visit.call.request.host}/v1/messages/{request.ggrid}"
    return f'curl --header "Authorization: Bearer $TOKEN" {address}'


def scopes_for(visit: Visit, request: FinishedRequest) -> list[tuple[str, str]]:
    """Return where an entry about this message can stand: its tenant, and the deployment for who may."""
    scopes = [(str(request.tenant), f"Tenant {visit.tenant_name(request.tenant)}")]
    if visit.scope.tenants is None:
        scopes.append((GLOBAL, "Global: every tenant"))
    return scopes
