"""The Training screen: a tenant's reports, the training progress, undo and reset; and the report form of messages."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.auth import BodyType, Page
from mailwarden.console.forms import Form
from mailwarden.console.language import N_, _
from mailwarden.console.list_form import MAX_CHOICES
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other
from mailwarden.errors import (
    EmptyEmail,
    MailwardenError,
    NotFound,
    PayloadTooLarge,
    ReportNotFound,
    SchemaViolation,
    TrainingFull,
)
from mailwarden.history.store import parse_ggrid
from mailwarden.model.tenant import Tenant
from mailwarden.serving.errors import STATUS_OF
from mailwarden.user_reports.reports import MAX_CONTENTS, MIN_REPORTS, Kind, TrainingState, TrainingStatus, UserReport
from mailwarden.user_reports.service import ReportService

# The kinds that users report; only the quarantine reports a release.
REPORT_KINDS = (
    (Kind.PHISHING, N_("Phishing"), N_("Tries to get passwords, money or access by deception")),
    (Kind.SPAM, N_("Spam"), N_("Unsolicited, without other harm")),
    (Kind.GOOD, N_("Good"), N_("Wanted or harmless")),
)

TRAINING = "/console/training"
PAGE_SIZE = 50


def read_kind(form: Form) -> Kind:
    """Return the reported kind, or raise SchemaViolation."""
    wanted = form.text("kind")
    for kind, *_texts in REPORT_KINDS:
        if wanted == kind:
            return kind
    raise SchemaViolation("Choose a kind: phishing, spam or good.")


def read_contents(form: Form) -> bytes | None:
    """Return the uploaded message, or None; reject one that is too large for training."""
    file = form.file("message")
    if file is None:
        return None
    if file.size > MAX_CONTENTS:
        raise PayloadTooLarge("The file is larger than 1 MiB. Only messages up to 1 MiB train the filter.")
    return file.data()


def require_contents(form: Form) -> bytes:
    """Return the uploaded message, or raise EmptyEmail."""
    contents = read_contents(form)
    if contents is None:
        raise EmptyEmail("Choose the message as a file.")
    return contents


def notice_code(report: UserReport) -> str:
    """Return the code of the notice after a report."""
    return "report-untrained" if report.state is TrainingState.NOT_STORED else "report-kept"


class Side(Struct, frozen=True):
    """The number of messages trained for one side."""

    label: str
    trained: int

    @property
    def missing(self) -> int:
        return max(0, MIN_REPORTS - self.trained)


class TrainingScreen:
    def __init__(self, reports: ReportService) -> None:
        self._reports = reports

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/training", Permission.TRAINING_READ, self.show),
            Page("POST", "/training/report", Permission.TRAINING_WRITE, self.report, BodyType.UPLOAD),
            Page("POST", "/training/reports/{report}/undo", Permission.TRAINING_WRITE, self.take_back),
            Page("GET", "/training/reset", Permission.TRAINING_RESET, self.show_reset),
            Page("POST", "/training/reset", Permission.TRAINING_RESET, self.reset),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return await self._page(request, tenant_of(request))

    async def report(self, request: UserRequest) -> web.StreamResponse:
        """Report an uploaded message, which need not be in history."""
        tenant = tenant_of(request)
        try:
            kind, contents = read_kind(request.form), require_contents(request.form)
            report = await self._reports.report_contents(
                request.scope, tenant.uid, kind, request.actor, contents=contents
            )
        except (EmptyEmail, TrainingFull, PayloadTooLarge, SchemaViolation) as error:
            return await self._page(request, tenant, error)
        return see_other(TRAINING, notice_code(report), tenant=str(tenant.uid))

    async def take_back(self, request: UserRequest) -> web.StreamResponse:
        """Undo a report and return to the message's page or to this screen."""
        ggrid = parse_ggrid(request.form.text("ggrid")) if request.form.text("ggrid") else None
        tenant = None if ggrid else tenant_of(request)
        await self._reports.withdraw(request.scope, _report_in(request.variables["report"]), request.actor)
        if tenant is None:
            return see_other(f"/console/messages/{ggrid}", "report-withdrawn", tenant=request.form.text("tenant"))
        return see_other(TRAINING, "report-withdrawn", tenant=str(tenant.uid))

    async def show_reset(self, request: UserRequest) -> web.StreamResponse:
        return await self._reset_page(request, tenant_of(request))

    async def reset(self, request: UserRequest) -> web.StreamResponse:
        """Delete the training, after the user typed the tenant's name."""
        tenant = tenant_of(request)
        if request.form.text("name") != tenant.name:
            return await self._reset_page(
                request, tenant, _("This is not the name of the tenant. Nothing was deleted.")
            )
        await self._reports.reset(request.scope, tenant.uid, request.actor)
        return see_other(TRAINING, "training-reset", tenant=str(tenant.uid))

    async def _page(
        self, request: UserRequest, tenant: Tenant, error: MailwardenError | None = None
    ) -> web.StreamResponse:
        before = _moment_in(request.query.get("before", ""))
        found = await self._reports.reports(request.scope, tenant.uid, before, PAGE_SIZE + 1)
        standing = await self._reports.status(request.scope, tenant.uid)
        return request.render(
            "training/index.html",
            tenant=tenant,
            tenants=request.tenants if len(request.tenants) <= MAX_CHOICES else None,
            standing=standing,
            sides=sides_of(standing),
            enough=MIN_REPORTS,
            reports=found[:PAGE_SIZE],
            older=found[PAGE_SIZE - 1].reported_at.isoformat() if len(found) > PAGE_SIZE else "",
            is_first=before is None,
            report_kinds=REPORT_KINDS,
            error=error,
            status=STATUS_OF[type(error)] if error else 200,
        )

    async def _reset_page(self, request: UserRequest, tenant: Tenant, mistake: str = "") -> web.StreamResponse:
        standing = await self._reports.status(request.scope, tenant.uid)
        return request.render(
            "training/reset.html", tenant=tenant, standing=standing, mistake=mistake, status=400 if mistake else 200
        )


def sides_of(standing: TrainingStatus) -> tuple[Side, Side]:
    return Side(_("Phishing and spam"), standing.threats), Side(_("Good"), standing.good)


def tenant_of(request: UserRequest) -> Tenant:
    """Return the tenant named in the form or the URL, by name or UUID; otherwise the active, default or first one.

    A tenant that the user may not see raises NotFound.
    """
    named = request.form.text("tenant") or request.query.get("tenant", "").strip()
    if not named and (active := request.active_tenant):
        return active
    for tenant in request.tenants:
        if named.casefold() in (str(tenant.uid), tenant.name.casefold()) or (not named and tenant.is_default):
            return tenant
    if named or not request.tenants:
        raise NotFound("There is no such tenant.")
    return request.tenants[0]


def _report_in(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise ReportNotFound("There is no such report.") from None


def _moment_in(text: str) -> datetime | None:
    """Return the time before which reports are shown."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SchemaViolation("`before` must be a time such as 2026-11-15T09:00:00+00:00.") from None
    if moment.tzinfo is None:
        raise SchemaViolation("`before` must name its time zone, such as 2026-11-15T09:00:00+00:00.")
    return moment
