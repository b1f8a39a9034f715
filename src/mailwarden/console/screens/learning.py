"""Learning: what a tenant's people said of messages, how much of it is learned, and the ways to take it back."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from aiohttp import web
from msgspec import Struct

from mailwarden.console.auth import BodyType, Page
from mailwarden.console.forms import Form
from mailwarden.console.list_form import MAX_CHOICES
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other
from mailwarden.errors import (
    EmptyEmail,
    LearningFull,
    LessonNotFound,
    MailwardenError,
    NotFound,
    PayloadTooLarge,
    SchemaViolation,
)
from mailwarden.history.lookup import parse_ggrid
from mailwarden.learning.contents import MAX_CONTENTS
from mailwarden.learning.reports import MIN_REPORTS, Kind, TrainingState, TrainingStatus, UserReport
from mailwarden.learning.service import ReportService
from mailwarden.model.tenant import Tenant
from mailwarden.serving.errors import STATUS_OF

# What can be said; that a message was released is told by the quarantine alone.
REPORT_KINDS = (
    (Kind.PHISHING, "Phishing", "It wants passwords, money or access by deceit"),
    (Kind.SPAM, "Spam", "Nobody asked for it, and it means no other harm"),
    (Kind.FINE, "Fine", "It is wanted, or harmless"),
)


def read_kind(form: Form) -> Kind:
    """Return what was said, or say what can be."""
    said = form.text("kind")
    for kind, _, _ in REPORT_KINDS:
        if said == kind:
            return kind
    raise SchemaViolation("Say what the message is: phishing, spam or fine.")


def read_contents(form: Form) -> bytes | None:
    """Return the message that was given, or None; one that could not be learned from is refused unread."""
    file = form.file("message")
    if file is None:
        return None
    if file.size > MAX_CONTENTS:
        raise PayloadTooLarge("The file is larger than 1 MiB: what is larger is not learned from.")
    return file.data()


def require_contents(form: Form) -> bytes:
    """Return the message where there is nothing without it."""
    contents = read_contents(form)
    if contents is None:
        raise EmptyEmail("Choose the message as a file.")
    return contents


def notice_code(lesson: UserReport) -> str:
    """Return the code of what is said after a report."""
    return "report-unlearned" if lesson.state is TrainingState.NOT_KEPT else "report-kept"


LEARNING = "/console/learning"
PAGE_SIZE = 50


class Side(Struct, frozen=True):
    """How much of one side is learned."""

    label: str
    learned: int

    @property
    def missing(self) -> int:
        return max(0, MIN_REPORTS - self.learned)


class LearningScreen:
    def __init__(self, teaching: ReportService) -> None:
        self._teaching = teaching

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/learning", Permission.LEARNING_READ, self.show),
            Page("POST", "/learning/report", Permission.LEARNING_WRITE, self.report, BodyType.UPLOAD),
            Page("POST", "/learning/reports/{report}/undo", Permission.LEARNING_WRITE, self.take_back),
            Page("GET", "/learning/reset", Permission.LEARNING_RESET, self.show_reset),
            Page("POST", "/learning/reset", Permission.LEARNING_RESET, self.reset),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return await self._page(request, tenant_of(request))

    async def report(self, request: UserRequest) -> web.StreamResponse:
        """Take somebody's word on a message that they give, which history need not know."""
        tenant = tenant_of(request)
        try:
            kind, contents = read_kind(request.form), require_contents(request.form)
            lesson = await self._teaching.report_contents(
                request.scope, tenant.uid, kind, request.actor, contents=contents
            )
        except (EmptyEmail, LearningFull, PayloadTooLarge, SchemaViolation) as error:
            return await self._page(request, tenant, error)
        return see_other(LEARNING, notice_code(lesson), tenant=str(tenant.uid))

    async def take_back(self, request: UserRequest) -> web.StreamResponse:
        """Undo a report, and go back to where it was shown: the page of its message, or this screen."""
        ggrid = parse_ggrid(request.form.text("ggrid")) if request.form.text("ggrid") else None
        tenant = None if ggrid else tenant_of(request)
        await self._teaching.withdraw(request.scope, _report_in(request.variables["report"]), request.actor)
        if tenant is None:
            return see_other(f"/console/messages/{ggrid}", "report-withdrawn", tenant=request.form.text("tenant"))
        return see_other(LEARNING, "report-withdrawn", tenant=str(tenant.uid))

    async def show_reset(self, request: UserRequest) -> web.StreamResponse:
        return await self._reset_page(request, tenant_of(request))

    async def reset(self, request: UserRequest) -> web.StreamResponse:
        """Forget everything, for who can say for whom."""
        tenant = tenant_of(request)
        if request.form.text("name") != tenant.name:
            return await self._reset_page(request, tenant, "This is not the name of the tenant. Nothing was forgotten.")
        await self._teaching.reset(request.scope, tenant.uid, request.actor)
        return see_other(LEARNING, "learning-reset", tenant=str(tenant.uid))

    async def _page(
        self, request: UserRequest, tenant: Tenant, error: MailwardenError | None = None
    ) -> web.StreamResponse:
        before = _moment_in(request.query.get("before", ""))
        found = await self._teaching.reports(request.scope, tenant.uid, before, PAGE_SIZE + 1)
        standing = await self._teaching.status(request.scope, tenant.uid)
        return request.render(
            "learning/index.html",
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
        standing = await self._teaching.status(request.scope, tenant.uid)
        return request.render(
            "learning/reset.html", tenant=tenant, standing=standing, mistake=mistake, status=400 if mistake else 200
        )


def sides_of(standing: TrainingStatus) -> tuple[Side, Side]:
    return Side("Phishing and spam", standing.threats), Side("Fine", standing.fine)


def tenant_of(request: UserRequest) -> Tenant:
    """Return the tenant that the form or the address names, by uid or name; without one the person's first.

    A tenant of others does not exist for this person.
    """
    named = request.form.text("tenant") or request.query.get("tenant", "").strip()
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
        raise LessonNotFound("There is no such report.") from None


def _moment_in(text: str) -> datetime | None:
    """Return the moment from which older reports are shown."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SchemaViolation("`before` must be a time such as 2026-11-15T09:00:00+00:00.") from None
    if moment.tzinfo is None:
        raise SchemaViolation("`before` must name its time zone, such as 2026-11-15T09:00:00+00:00.")
    return moment
