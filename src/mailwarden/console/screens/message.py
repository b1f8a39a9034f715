"""The page of one message: its status, the verdict with its evidence, and the actions on it.

History and quarantine have an address for it each, `/messages/{ggrid}` and `/quarantine/{uid}`; both show this page.

Security: shows hostile messages as text in a sandboxed frame, and exports them to users with that permission."""

from collections.abc import Sequence
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.auth import BodyType, Page
from mailwarden.console.indicators import indicators_of
from mailwarden.console.language import _
from mailwarden.console.message_search import ADDRESS
from mailwarden.console.message_status import names_of, needs_confirmation, status_of
from mailwarden.console.message_timeline import events_of
from mailwarden.console.message_view import MessageView, view_of
from mailwarden.console.permissions import Permission
from mailwarden.console.policy_texts import request_in_language
from mailwarden.console.request import GLOBAL, UserRequest, preview_response, see_other, with_error_status
from mailwarden.console.screens.quarantine import QUARANTINE, uid_in
from mailwarden.console.screens.training import REPORT_KINDS, notice_code, read_contents, read_kind
from mailwarden.console.templating import HEADERS
from mailwarden.errors import (
    EntryTooBroad,
    Forbidden,
    InvalidEntry,
    ListFull,
    MailwardenError,
    MessageMismatch,
    MessageNotFound,
    NotReleasable,
    PayloadTooLarge,
    SchemaViolation,
    StorageUnavailable,
    TrainingFull,
)
from mailwarden.history.store import HistoryStore, find_message
from mailwarden.message.preview import document_of, notice
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.pipeline.previews import Previews
from mailwarden.policy.rules import Policy
from mailwarden.quarantine.model import HeldMessage, State
from mailwarden.quarantine.requests import SenderPart
from mailwarden.quarantine.service import QuarantineService
from mailwarden.user_reports.reports import UserReport
from mailwarden.user_reports.service import ReportService

MAX_OTHERS = 20  # other tenants named on the page of a message
MAX_TICKS = 100  # recipients shown with a tick box each; with more, the action applies to all
ACTION_ERRORS = (EntryTooBroad, InvalidEntry, ListFull, NotReleasable, SchemaViolation)
READ_ERRORS = (NotReleasable, StorageUnavailable)
REPORT_ERRORS = (TrainingFull, MessageMismatch, PayloadTooLarge, SchemaViolation)


class Order(Struct, frozen=True):
    """A release or deletion as the form states it; without recipients it applies to all that wait."""

    action: str  # release or delete
    recipients: Sequence[str] | None
    listed: SenderPart | None  # the sender's address or domain, for sender-allow or sender-block
    train: bool = False


class MessagePages:
    """Builds the page from the row in history, the row in quarantine, or both."""

    def __init__(
        self, history: HistoryStore, policy: Policy, reports: ReportService, quarantine: QuarantineService
    ) -> None:
        self._history = history
        self._policy = policy
        self._reports = reports
        self._quarantine = quarantine

    async def of_history(self, request: UserRequest, error: MailwardenError | None = None) -> web.Response:
        """Show the message of the ggrid in the URL, or raise MessageNotFound."""
        named = tenant_in(request.form.text("tenant") or request.query.get("tenant", ""))
        finished = await find_message(self._history, request.scope.narrowed(named), request.variables["ggrid"])
        return await self._page(request, finished, await self._held_of(request, finished), error)

    async def of_held(
        self, request: UserRequest, held: HeldMessage, error: MailwardenError | None = None
    ) -> web.Response:
        """Show a held message; without its row in history, the page has less to show."""
        return await self._page(request, await self.finished_of(request, held), held, error)

    async def finished_of(self, request: UserRequest, held: HeldMessage) -> FinishedRequest | None:
        """Return the row in history of a held message, if it is still there and the user may read it."""
        if not request.may(Permission.MESSAGES):
            return None
        return await self._history.find(request.scope.narrowed(held.tenant), held.ggrid)

    async def _held_of(self, request: UserRequest, finished: FinishedRequest) -> HeldMessage | None:
        if not request.may(Permission.QUARANTINE_READ):
            return None
        place = (finished.ggrid, finished.tenant)
        return (await self._quarantine.store.of_rows(request.scope, [place])).get(place)

    async def _page(
        self,
        request: UserRequest,
        finished: FinishedRequest | None,
        held: HeldMessage | None,
        error: MailwardenError | None,
    ) -> web.Response:
        values: dict[str, object] = {"message": None, "stored": True, "others": (), "reports": (), "error": error}
        reports: Sequence[UserReport] = ()
        if finished is not None:
            scope = request.scope.narrowed(finished.tenant)
            reports = await self._reports.reports_of(scope, finished.ggrid)
            tenants = await self._history.tenants_of(request.scope, finished.ggrid)
            values |= {
                **shown(request, view_of(finished, self._policy), stored=True),
                "reports": reports,
                "others": [tenant for tenant in tenants if tenant != finished.tenant][:MAX_OTHERS],
                "error": error,
                "indicators": [*indicators_of(finished, request.scope)],
            }
        readable = request.may(Permission.QUARANTINE_READ)
        values["status_lines"] = status_of(finished, held, self._policy, reads_quarantine=readable)
        may_see_reports = request.may(Permission.TRAINING_READ)
        told = request_in_language(finished, self._policy) if finished else None
        values["events"] = events_of(told, held, reports if may_see_reports else ())
        values |= held_values(request, held)
        page = request.render("message/page.html", values)
        return with_error_status(page, error) if error else page

    def confirm(
        self, request: UserRequest, held: HeldMessage, finished: FinishedRequest | None, order: Order
    ) -> web.Response:
        """Ask whether to release or delete the message, with its evidence on the same page."""
        view = view_of(finished, self._policy) if finished else None
        return request.render(
            "message/confirm.html",
            held=held,
            message=view,
            order=order,
            whom=names_of(order.recipients or held.in_state(State.HELD)),
        )


def held_values(request: UserRequest, held: HeldMessage | None) -> dict[str, object]:
    """Return the values of the page about a held message and the actions on it."""
    if held is None:
        return {"held": None}
    waiting = held.in_state(State.HELD)
    address = held.from_address or held.sender
    return {
        "held": held,
        "waiting": waiting,
        "ticks": waiting if 1 < len(waiting) <= MAX_TICKS else (),
        "releasing": held.in_state(State.RELEASING),
        "failures": [recipient for recipient in held.recipients if recipient.failure],
        "releasable": held.is_kept and held.verdict is not Verdict.MALWARE and bool(waiting),
        "deletable": bool(waiting) or held.address is not None,
        "is_malware": held.verdict is Verdict.MALWARE,
        "address": address,
        "domain": address.rpartition("@")[2],
        "lists": request.may(Permission.LISTS_WRITE),
    }


class MessageScreen:
    def __init__(self, message_pages: MessagePages, reports: ReportService) -> None:
        self._pages = message_pages
        self._reports = reports

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/messages/{ggrid}", Permission.MESSAGES, self.show),
            Page("POST", "/messages/{ggrid}/report", Permission.TRAINING_WRITE, self.report, BodyType.UPLOAD),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        """Show a message of the user's scope, or raise MessageNotFound."""
        return await self._pages.of_history(request)

    async def report(self, request: UserRequest) -> web.StreamResponse:
        """Store the user's report; show an error at the report form."""
        ggrid = request.variables["ggrid"]
        try:
            kind, contents = read_kind(request.form), read_contents(request.form)
            scope = request.scope.narrowed(tenant_in(request.form.text("tenant")))
            report = await self._reports.report_message(scope, ggrid, kind, request.actor, contents)
        except REPORT_ERRORS as error:
            return await self._pages.of_history(request, error)
        return see_other(f"/console/messages/{report.ggrid}", notice_code(report), tenant=str(report.tenant))


class HeldScreen:
    def __init__(self, message_pages: MessagePages, quarantine: QuarantineService, previews: Previews) -> None:
        self._pages = message_pages
        self._quarantine = quarantine
        self._previews = previews

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/quarantine/{uid}", Permission.QUARANTINE_READ, self.show),
            Page("GET", "/quarantine/{uid}/progress", Permission.QUARANTINE_READ, self.show_progress, quiet=True),
            Page("POST", "/quarantine/{uid}/release", Permission.QUARANTINE_WRITE, self.release),
            Page("POST", "/quarantine/{uid}/delete", Permission.QUARANTINE_WRITE, self.delete),
            Page("POST", "/quarantine/{uid}/preview", Permission.QUARANTINE_WRITE, self.preview),
            Page("GET", "/quarantine/{uid}/message", Permission.QUARANTINE_EXPORT, self.warn),
            Page("POST", "/quarantine/{uid}/message", Permission.QUARANTINE_EXPORT, self.export),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return await self._pages.of_held(request, await self._found(request))

    async def show_progress(self, request: UserRequest) -> web.StreamResponse:
        """Reload a page that waits for a release once the release has finished."""
        message = await self._found(request)
        if message.in_state(State.RELEASING):
            return web.Response(status=204, headers=HEADERS)
        current = request.call.request.headers.get("HX-Current-URL", "").partition("?")[0]
        beside_list = current.endswith(ADDRESS)
        moved = {"HX-Refresh": "true"} if beside_list else {"HX-Redirect": f"{QUARANTINE}/{message.uid}"}
        return web.Response(headers={**HEADERS, **moved})

    async def release(self, request: UserRequest) -> web.StreamResponse:
        """Release the message to the chosen recipients; a dangerous message first shows the confirmation page."""
        message = await self._found(request)
        try:
            chosen, allow = _recipients(request, message), _listed(request, "allow")
            order = Order("release", chosen, allow, request.form.ticked("train"))
            # Malware needs no question: the service rejects its release.
            if message.verdict is not Verdict.MALWARE and not request.form.ticked("confirmed"):
                finished = await self._pages.finished_of(request, message)
                if needs_confirmation(message, finished):
                    return self._pages.confirm(request, message, finished, order)
            await self._quarantine.release(
                request.scope, message.uid, request.actor, recipients=chosen, allow=allow, train=order.train
            )
        except ACTION_ERRORS as error:
            return await self._pages.of_held(request, await self._found(request), error)
        return see_other(f"{QUARANTINE}/{message.uid}", "release-allowed" if allow else "release-asked")

    async def delete(self, request: UserRequest) -> web.StreamResponse:
        """Delete the message for the chosen recipients, after the confirmation page."""
        message = await self._found(request)
        try:
            chosen, block = _recipients(request, message), _listed(request, "block")
            if not request.form.ticked("sure"):
                finished = await self._pages.finished_of(request, message)
                return self._pages.confirm(request, message, finished, Order("delete", chosen, block))
            await self._quarantine.delete(request.scope, message.uid, request.actor, recipients=chosen, block=block)
        except ACTION_ERRORS as error:
            return await self._pages.of_held(request, await self._found(request), error)
        return see_other(f"{QUARANTINE}/{message.uid}", "held-deleted-blocked" if block else "held-deleted")

    async def preview(self, request: UserRequest) -> web.StreamResponse:
        """Show the message in its frame as text with plain formatting."""
        uid = _uid(request)
        try:
            raw = await self._quarantine.preview(request.scope, uid, request.actor)
        except READ_ERRORS as error:
            return preview_response(document_of(notice(error.message)))
        try:
            return preview_response((await self._previews.of(raw)).document)
        finally:
            raw.close()

    async def warn(self, request: UserRequest) -> web.StreamResponse:
        return request.render("quarantine/export.html", message=await self._found(request), error=None)

    async def export(self, request: UserRequest) -> web.StreamResponse:
        """Send the message as a file that browsers do not open."""
        message = await self._found(request)
        try:
            raw = await self._quarantine.export(request.scope, message.uid, request.actor)
        except READ_ERRORS as error:
            return with_error_status(request.render("quarantine/export.html", message=message, error=error), error)
        try:
            name = f'attachment; filename="{message.uid}.eml"'
            size = {"Content-Disposition": name, "Content-Length": str(raw.size)}
            response = await request.begin_stream("message/rfc822", charset=None, **size)
            async for chunk in raw.stream():
                await response.write(chunk)
            await response.write_eof()
            return response
        finally:
            raw.close()

    async def _found(self, request: UserRequest) -> HeldMessage:
        """Return the message in the URL, or raise MessageNotFound."""
        return await self._quarantine.store.find(request.scope, _uid(request))


def _uid(request: UserRequest) -> UUID:
    return uid_in(request.variables["uid"])


def _recipients(request: UserRequest, message: HeldMessage) -> Sequence[str] | None:
    """Return the chosen recipients that still wait, or None for all.

    An outdated page never releases a message twice to the same recipient.
    """
    waiting = message.in_state(State.HELD)
    if not request.form.ticked("some"):
        return None
    chosen = {each.lower() for each in request.form.many("to")}
    if not chosen:
        raise SchemaViolation("Choose at least one recipient.")
    left = [each for each in waiting if each.lower() in chosen]
    if not left:
        raise NotReleasable("None of the chosen recipients waits for this message.")
    return None if len(left) == len(waiting) else left


def _listed(request: UserRequest, name: str) -> SenderPart | None:
    """Return whether to list the sender by address or domain; this needs the permission to change lists."""
    given = request.form.text(name)
    if not given:
        return None
    if not request.may(Permission.LISTS_WRITE):
        raise Forbidden("Your role does not change lists. An administrator can change it.")
    try:
        return SenderPart(given)
    except ValueError:
        raise SchemaViolation("A sender is listed by address or by domain.") from None


def tenant_in(text: str) -> UUID | None:
    """Return the tenant of the requested row, or None for the most severe row."""
    try:
        return UUID(text.strip()) if text.strip() else None
    except ValueError:
        raise MessageNotFound("There is no message with this ggrid.") from None


def shown(request: UserRequest, message: MessageView, *, stored: bool) -> dict[str, object]:
    """Return the values of the message templates, without reports."""
    return {
        "message": message,
        "stored": stored,
        "reports": (),
        "report_kinds": REPORT_KINDS,
        "error": None,
        "held": None,
        "status_lines": (),
        "curl": curl_for(request, message.request),
        "scopes": scopes_for(request, message.request),
    }


def curl_for(request: UserRequest, finished: FinishedRequest) -> str:
    address = f"https://{request.call.request.host}/v1/messages/{finished.ggrid}?tenantUid={finished.tenant}"
    return f'curl --header "Authorization: Bearer $TOKEN" "{address}"'


def scopes_for(request: UserRequest, finished: FinishedRequest) -> list[tuple[str, str]]:
    """Return the list scopes for an entry: the message's tenant, and global for deployment-wide users."""
    scopes = [(str(finished.tenant), _("Tenant %(name)s") % {"name": request.tenant_name(finished.tenant)})]
    if request.scope.tenants is None:
        scopes.append((GLOBAL, _("Global: every tenant")))
    return scopes
