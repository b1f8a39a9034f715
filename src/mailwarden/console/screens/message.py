"""One message: what it was taken for and why, what would change that, and what can be done about it."""

from collections.abc import Sequence
from uuid import UUID

from aiohttp import web

from mailwarden.console.message_view import MessageView, view_of
from mailwarden.console.page import Page, Takes
from mailwarden.console.quarantine import Quarantine
from mailwarden.console.report_form import SAYABLE, given_contents, notice_for, said_kind
from mailwarden.console.rights import Right
from mailwarden.console.screens.held import held_line
from mailwarden.console.visit import GLOBAL, Visit, see_other
from mailwarden.errors import (
    LearningFull,
    MailwardenError,
    MessageNotFound,
    OtherMessage,
    PayloadTooLarge,
    SchemaViolation,
)
from mailwarden.history.lookup import find_message
from mailwarden.history.store import HistoryStore
from mailwarden.learning.teaching import Teaching
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.rules import Policy
from mailwarden.serving.errors import STATUS_OF

MAX_OTHERS = 20  # tenants that the page of a message with recipients of several names


class MessageScreen:
    def __init__(self, history: HistoryStore, policy: Policy, teaching: Teaching, quarantine: Quarantine) -> None:
        self._history = history
        self._policy = policy
        self._teaching = teaching
        self._quarantine = quarantine

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/messages/{ggrid}", Right.MESSAGES, self.show),
            Page("POST", "/messages/{ggrid}/report", Right.LEARNING_WRITE, self.report, Takes.UPLOAD),
        ]

    async def show(self, visit: Visit) -> web.StreamResponse:
        """Show a message of the person's own scope; a foreign one is answered like one that does not exist."""
        return await self._page(visit)

    async def report(self, visit: Visit) -> web.StreamResponse:
        """Take the person's word on the message; what keeps it from being taken is said where it was given."""
        ggrid = visit.variables["ggrid"]
        try:
            kind, contents = said_kind(visit.form), given_contents(visit.form)
            scope = visit.scope.narrowed(tenant_in(visit.form.text("tenant")))
            lesson = await self._teaching.report_message(scope, ggrid, kind, visit.actor, contents)
        except (LearningFull, OtherMessage, PayloadTooLarge, SchemaViolation) as error:
            return await self._page(visit, error)
        return see_other(f"/console/messages/{lesson.ggrid}", notice_for(lesson), tenant=str(lesson.tenant))

    async def _page(self, visit: Visit, error: MailwardenError | None = None) -> web.StreamResponse:
        named = tenant_in(visit.form.text("tenant") or visit.query.get("tenant", ""))
        request = await find_message(self._history, visit.scope.narrowed(named), visit.variables["ggrid"])
        others = [each for each in await self._history.tenants_of(visit.scope, request.ggrid) if each != request.tenant]
        said = await self._teaching.reports_of(visit.scope.narrowed(request.tenant), request.ggrid)
        values = shown(visit, view_of(request, self._policy), stored=True)
        held = await held_line(self._quarantine, visit, request)
        more = {"said": said, "held": held, "error": error, "others": others[:MAX_OTHERS]}
        return visit.render("message/page.html", {**values, **more}, status=STATUS_OF[type(error)] if error else 200)


def tenant_in(text: str) -> UUID | None:
    """Return the tenant whose row is meant, or None for the most severe; what is no uid names no message."""
    try:
        return UUID(text.strip()) if text.strip() else None
    except ValueError:
        raise MessageNotFound("There is no message with this ggrid.") from None


def shown(visit: Visit, message: MessageView, *, stored: bool) -> dict[str, object]:
    """Return what the templates of a message are given, where nobody has said anything of it yet."""
    return {
        "message": message,
        "stored": stored,
        "said": (),
        "sayable": SAYABLE,
        "error": None,
        "curl": curl_for(visit, message.request),
        "scopes": scopes_for(visit, message.request),
    }


def curl_for(visit: Visit, request: FinishedRequest) -> str:
    address = f"https://{visit.call.request.host}/v1/messages/{request.ggrid}?tenantUid={request.tenant}"
    return f'curl --header "Authorization: Bearer $TOKEN" "{address}"'


def scopes_for(visit: Visit, request: FinishedRequest) -> list[tuple[str, str]]:
    """Return where an entry about this message can stand: its tenant, and the deployment for who may."""
    scopes = [(str(request.tenant), f"Tenant {visit.tenant_name(request.tenant)}")]
    if visit.scope.tenants is None:
        scopes.append((GLOBAL, "Global: every tenant"))
    return scopes
