"""Actions on messages that are ticked in the list: release and delete those that are held, report any of them."""

from collections.abc import Sequence

from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.held_actions import MAX_CHOSEN, HeldActions, action_in
from mailwarden.console.language import _
from mailwarden.console.message_rows import read_rows
from mailwarden.console.message_search import ADDRESS, read_back
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other, with_error_status
from mailwarden.console.screens.training import REPORT_KINDS, read_kind
from mailwarden.errors import MailwardenError, MessageNotFound, NotReleasable, SchemaViolation
from mailwarden.history.store import Cursor, HistoryStore, Row
from mailwarden.model.record import FinishedRequest
from mailwarden.user_reports.service import ReportService


class SelectionScreen:
    def __init__(self, history: HistoryStore, actions: HeldActions, reports: ReportService) -> None:
        self._history = history
        self._actions = actions
        self._reports = reports

    def pages(self) -> Sequence[Page]:
        return [
            Page("POST", "/messages/chosen", Permission.QUARANTINE_WRITE, self.ask),
            Page("POST", "/messages/chosen/reports", Permission.TRAINING_WRITE, self.ask_kind),
            Page("POST", "/messages/chosen/reports/do", Permission.TRAINING_WRITE, self.report),
        ]

    async def ask(self, request: UserRequest) -> web.StreamResponse:
        """Show the held ones of the selected messages and the action, for confirmation on the page of quarantine."""
        action, places = action_in(request), _selected(request)
        held = await self._actions.waiting(request, places)
        skipped = len(places) - len(held)
        if held:
            return self._actions.ask(request, action, await self._actions.evidence_of(request, held), skipped=skipped)
        error = NotReleasable("None of the selected messages is held.")
        return with_error_status(self._actions.ask(request, action, (), skipped=skipped, error=error), error)

    async def ask_kind(self, request: UserRequest) -> web.StreamResponse:
        """Show the selected messages and ask what they are."""
        return self._page(request, await self._found(request, _selected(request)))

    async def report(self, request: UserRequest) -> web.StreamResponse:
        """Report one message after the other and return to the list; show those that could not be reported."""
        found = await self._found(request, _selected(request))
        try:
            kind = read_kind(request.form)
        except SchemaViolation as error:
            return with_error_status(self._page(request, found, error=error), error)
        failed: list[tuple[FinishedRequest, MailwardenError]] = []
        for each in found:
            try:
                scope = request.scope.narrowed(each.tenant)
                await self._reports.report_request(scope, each, kind, request.actor)
            except MailwardenError as error:
                failed.append((each, error))
        if failed:
            partly = SchemaViolation(
                _("%(reported)s of %(all)s messages were reported.")
                % {"reported": len(found) - len(failed), "all": len(found)}
            )
            return with_error_status(self._page(request, found, failed, partly), partly)
        return see_other(read_back(request.form.text("back")) or ADDRESS, "reported-several")

    async def _found(self, request: UserRequest, places: Sequence[Cursor]) -> list[FinishedRequest]:
        """Return the messages of the user's scope, or raise MessageNotFound if there is none."""
        found = await self._history.find_many(request.scope, places)
        if not found:
            raise MessageNotFound("The selected messages are no longer in history.")
        return [found[place] for place in places if place in found]

    def _page(
        self,
        request: UserRequest,
        found: Sequence[FinishedRequest],
        failed: Sequence[tuple[FinishedRequest, MailwardenError]] = (),
        error: MailwardenError | None = None,
    ) -> web.Response:
        return request.render(
            "messages/report.html",
            rows=[Row.of(each, request.scope) for each in found],
            failed=failed,
            error=error,
            report_kinds=REPORT_KINDS,
            back=read_back(request.form.text("back")) or ADDRESS,
        )


def _selected(request: UserRequest) -> tuple[Cursor, ...]:
    """Return the ticked messages, or raise SchemaViolation."""
    try:
        places = read_rows(request.form.many("row"))
    except ValueError:
        raise SchemaViolation("Select messages of the list.") from None
    if not places:
        raise SchemaViolation("No message is selected: tick some first.")
    if len(places) > MAX_CHOSEN:
        raise SchemaViolation(f"Select {MAX_CHOSEN} messages at most.")
    return places
