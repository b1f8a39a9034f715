"""The Cases screens: the list of user-reported cases, one case with its reports, and closing it with an outcome.

Only the close teaches the filter. It is the same function that `mailwarden cases close` calls.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.auth import Page
from mailwarden.console.language import N_
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other, with_error_status
from mailwarden.errors import (
    CaseClosed,
    CaseNotFound,
    MailwardenError,
    SchemaViolation,
    TrainingFull,
)
from mailwarden.history.store import Cursor, HistoryStore
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import HeldMessage
from mailwarden.quarantine.service import QuarantineService
from mailwarden.user_reports.cases.model import (
    MAX_TRAINED,
    NOT_STORED,
    AnswerState,
    Case,
    CaseCursor,
    CaseOutcome,
    CaseReport,
    CaseState,
)
from mailwarden.user_reports.cases.service import CaseService
from mailwarden.user_reports.cases.store import MAX_COUNTED, MAX_REPORTS
from mailwarden.user_reports.mailbox.report_mail import ReportFormat

CASES = "/console/cases"
ALL = "all"
ROWS = 25
MAX_LOOKED_UP = 20  # messages of one case that are looked up in history and quarantine
# States of the filter; the first is the default.
STATES: Mapping[str, str] = {
    CaseState.OPEN: N_("Open cases"),
    CaseState.CLOSED: N_("Closed cases"),
    ALL: N_("All cases"),
}

FORMATS: Mapping[ReportFormat, str] = {
    ReportFormat.ATTACHED: N_("forwarded as attachment"),
    ReportFormat.MICROSOFT: N_("report button of Outlook"),
    ReportFormat.ARF: N_("feedback report (ARF)"),
    ReportFormat.INLINE: N_("forwarded in the text"),
    ReportFormat.UNREADABLE: N_("without a message"),
}
ANSWERS: Mapping[AnswerState, str] = {
    AnswerState.NONE: N_("no answer"),
    AnswerState.WANTED: N_("is answered when the case closes"),
    AnswerState.DUE: N_("the answer is due"),
    AnswerState.SENDING: N_("the answer is being sent"),
    AnswerState.SENT: N_("answered"),
    AnswerState.FAILED: N_("the answer could not be sent"),
}


class OutcomeText(Struct, frozen=True):
    """The texts of an outcome: its button, its meaning, and what the filter is trained with."""

    button: str
    meaning: str
    training: str


OUTCOMES: Mapping[CaseOutcome, OutcomeText] = {
    CaseOutcome.MALICIOUS: OutcomeText(
        N_("Close as malicious"),
        N_("The message is an attack: phishing, fraud or malware."),
        N_("The filter is trained with the messages of the case as phishing."),
    ),
    CaseOutcome.SPAM: OutcomeText(
        N_("Close as spam"),
        N_("The message is unsolicited, without other harm."),
        N_("The filter is trained with the messages of the case as spam."),
    ),
    CaseOutcome.HARMLESS: OutcomeText(
        N_("Close as harmless"),
        N_("The message is wanted or harmless."),
        N_("The messages of the case train the filter as good mail."),
    ),
    CaseOutcome.UNDECIDED: OutcomeText(
        N_("Close as undecided"), N_("The case needs no decision."), N_("The filter is not trained.")
    ),
}


class ReportedMessage(Struct, frozen=True):
    """A reported message that history has, and the held copy if the quarantine has one."""

    verdict: Verdict
    held: HeldMessage | None = None


class CasesScreen:
    def __init__(self, cases: CaseService, history: HistoryStore, quarantine: QuarantineService) -> None:
        self._cases = cases
        self._history = history
        self._quarantine = quarantine

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/cases", Permission.TRAINING_READ, self.show_list),
            Page("GET", "/cases/{case}", Permission.TRAINING_READ, self.show),
            Page("GET", "/cases/{case}/close", Permission.TRAINING_WRITE, self.ask),
            Page("POST", "/cases/{case}/close", Permission.TRAINING_WRITE, self.close),
        ]

    async def show_list(self, request: UserRequest) -> web.StreamResponse:
        """Show the cases of the active tenant or of all tenants of the user, open ones first."""
        state, after = _state_in(request.query.get("state", "")), _cursor_in(request.query.get("after", ""))
        wanted = None if state == ALL else CaseState(state)
        found = await self._cases.cases(request.view, wanted, after, ROWS + 1)
        shown = found[:ROWS]
        return request.render(
            "cases/index.html",
            state=state,
            states=STATES,
            cases=shown,
            verdicts=await self._verdicts(request.scope, shown),
            open_cases=await self._cases.count_open(request.view),
            max_counted=MAX_COUNTED,
            first="" if after is None else address_of(state),
            next=address_of(state, shown[-1].cursor) if len(found) > ROWS else "",
        )

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return await self._page(request, await self._found(request))

    async def ask(self, request: UserRequest) -> web.StreamResponse:
        """Ask before a case is closed, and say what follows."""
        case, outcome = await self._found(request), _outcome_in(request.query.get("outcome", ""))
        if not case.is_open:
            error = CaseClosed(f"The case is closed already, as {case.outcome}.")
            return with_error_status(await self._page(request, case, error), error)
        reports = await self._cases.reports(request.scope, case.uid)
        return request.render(
            "cases/close.html",
            case=case,
            outcome=outcome,
            text=OUTCOMES[outcome],
            messages=len([report for report in reports[:MAX_TRAINED] if report.kept]) if outcome.kind else 0,
            answers=len([report for report in reports if report.answer is AnswerState.WANTED]),
        )

    async def close(self, request: UserRequest) -> web.StreamResponse:
        """Close the case; the same outcome again trains with the rest, if that failed."""
        uid, outcome = case_in(request.variables["case"]), _outcome_in(request.form.text("outcome"))
        try:
            await self._cases.close(request.scope, uid, outcome, request.actor)
        except (CaseClosed, TrainingFull) as error:
            return with_error_status(await self._page(request, await self._found(request), error), error)
        return see_other(f"{CASES}/{uid}", "case-closed")

    async def _page(self, request: UserRequest, case: Case, error: MailwardenError | None = None) -> web.Response:
        reports = await self._cases.reports(request.scope, case.uid)
        return request.render(
            "cases/case.html",
            case=case,
            reports=reports,
            max_reports=MAX_REPORTS,
            messages=await self._messages(request, case, reports),
            untrained=_untrained(case, reports),
            outcomes=OUTCOMES,
            formats=FORMATS,
            answers=ANSWERS,
            error=error,
        )

    async def _found(self, request: UserRequest) -> Case:
        return await self._cases.find(request.scope, case_in(request.variables["case"]))

    async def _verdicts(self, scope: Scope, cases: Sequence[Case]) -> Mapping[UUID, Verdict]:
        """Return the verdict of the first reported message of each case, as far as history still has it."""
        places = {case.uid: Cursor(case.ggrid, case.tenant) for case in cases if case.ggrid is not None}
        found = await self._history.find_many(scope, [*places.values()])
        return {uid: found[place].judgement.verdict for uid, place in places.items() if place in found}

    async def _messages(
        self, request: UserRequest, case: Case, reports: Sequence[CaseReport]
    ) -> Mapping[UUID, ReportedMessage]:
        """Return the reported messages that history still has, by ggrid, up to MAX_LOOKED_UP."""
        scope = request.scope.narrowed(case.tenant)
        ggrids = list(dict.fromkeys(report.ggrid for report in reports if report.ggrid is not None))[:MAX_LOOKED_UP]
        found = await self._history.find_many(scope, [Cursor(ggrid, case.tenant) for ggrid in ggrids])
        keys = [(ggrid, case.tenant) for ggrid in ggrids] if request.may(Permission.QUARANTINE_READ) else []
        held = await self._quarantine.store.of_rows(scope, keys)
        return {
            place.ggrid: ReportedMessage(each.judgement.verdict, held.get((place.ggrid, place.tenant)))
            for place, each in found.items()
        }


def address_of(state: str, after: CaseCursor | None = None) -> str:
    """Return the URL of the list from a place on."""
    asked = {} if state == CaseState.OPEN else {"state": state}
    if after is not None:
        asked["after"] = f"{after.rank}_{after.changed_at.astimezone(UTC).isoformat()}_{after.uid}"
    return f"{CASES}?{urlencode(asked)}" if asked else CASES


def case_in(text: str) -> UUID:
    """Return the UUID of a case in a URL, or raise CaseNotFound."""
    try:
        return UUID(text)
    except ValueError:
        raise CaseNotFound("There is no such case.") from None


def _untrained(case: Case, reports: Sequence[CaseReport]) -> int:
    """Return the number of messages that a closed case did not train, because closing was interrupted."""
    kind = case.outcome.kind if case.outcome is not None else None
    if kind is None:
        return 0
    return len(
        [report for report in reports[:MAX_TRAINED] if _teaches(report) and report.trained_as not in (kind, NOT_STORED)]
    )


def _teaches(report: CaseReport) -> bool:
    return report.kept or report.ggrid is not None


def _state_in(text: str) -> str:
    state = text or CaseState.OPEN
    if state not in STATES:
        raise SchemaViolation("There is no state of that name.")
    return state


def _outcome_in(text: str) -> CaseOutcome:
    if text not in list(CaseOutcome):
        raise SchemaViolation("Choose an outcome: malicious, spam, harmless or undecided.")
    return CaseOutcome(text)


def _cursor_in(text: str) -> CaseCursor | None:
    if not text:
        return None
    rank, _, place = text.partition("_")
    moment, _, uid = place.partition("_")
    if rank not in ("0", "1", "2"):
        raise SchemaViolation("The `after` cursor is invalid.")
    try:
        return CaseCursor(int(rank), datetime.fromisoformat(moment).astimezone(UTC), UUID(uid))
    except (ValueError, OverflowError):
        raise SchemaViolation("The `after` cursor is invalid.") from None
