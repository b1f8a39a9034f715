"""The Reports screens: the weekly report of a tenant as a page, and who receives it by email."""

from collections.abc import Sequence
from datetime import UTC, datetime
from urllib.parse import urlencode
from uuid import UUID

from aiohttp import web

from mailwarden.console.auth import Page
from mailwarden.console.language import _, day_text
from mailwarden.console.list_form import MAX_CHOICES
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other, with_error_status
from mailwarden.errors import MailwardenError, NotFound, SchemaViolation
from mailwarden.model.tenant import Tenant
from mailwarden.weekly_report.model import Week, WeeklyReport, checked_week, recent_weeks, sentences_of
from mailwarden.weekly_report.service import WeeklyReports
from mailwarden.weekly_report.store import SubscriptionStore

REPORTS = "/console/reports"
EMAIL = f"{REPORTS}/email"
# The end of a search that leaves the attacks.
ATTACKS_QUERY = "verdict:malware,phishing,fraud,spoof"


class WeeklyReportScreen:
    def __init__(self, reports: WeeklyReports, subscriptions: SubscriptionStore) -> None:
        self._reports = reports
        self._subscriptions = subscriptions

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/reports", Permission.REPORTS_READ, self.show),
            Page("GET", "/reports/email", Permission.REPORTS_WRITE, self.ask),
            Page("POST", "/reports/email", Permission.REPORTS_WRITE, self.change),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        tenant, week = tenant_of(request), week_of(request)
        report = await self._reports.build(request.scope, tenant, week)
        return request.render(
            "reports/index.html",
            tenant=tenant,
            tenants=choices(request),
            week=week,
            week_title=week_title(week),
            weeks=recent_weeks(datetime.now(UTC)),
            report=report,
            sentences=sentences_of(report),
            recipients=[(value, value, messages) for value, messages in report.attacked.recipients],
            senders=[(value, value, messages) for value, messages in report.attacked.senders],
            campaigns=[
                (str(campaign.campaign), campaign.subject, campaign.messages) for campaign in report.attacked.campaigns
            ],
            attacks_query=ATTACKS_QUERY,
            address=SearchAddress(report),
            subscription=await self._subscriptions.find(request.scope, tenant.uid),
            mail=await self._subscriptions.mail_state(request.scope, tenant.uid, week),
        )

    async def ask(self, request: UserRequest) -> web.StreamResponse:
        return await self._form(request, tenant_of(request))

    async def change(self, request: UserRequest) -> web.StreamResponse:
        """Switch the email on or off, and choose who receives it."""
        tenant, form = tenant_of(request), request.form
        try:
            await self._subscriptions.save(
                request.scope,
                tenant.uid,
                enabled=form.ticked("enabled"),
                recipients=frozenset(map(_uid, form.many("recipient"))),
                actor=request.actor,
            )
        except SchemaViolation as error:
            return with_error_status(await self._form(request, tenant, error), error)
        return see_other(REPORTS, "report-email-changed", tenant=str(tenant.uid))

    async def _form(self, request: UserRequest, tenant: Tenant, error: MailwardenError | None = None) -> web.Response:
        users = await self._subscriptions.users(request.scope, tenant.uid)
        subscription = await self._subscriptions.find(request.scope, tenant.uid)
        chosen = {str(recipient) for recipient in subscription.recipients}
        seen = {str(user.uid) for user in users}
        return request.render(
            "reports/email.html",
            tenant=tenant,
            tenants=choices(request),
            users=users,
            enabled=request.form.ticked("enabled") if error else subscription.enabled,
            chosen=set(request.form.many("recipient")) if error else chosen,
            others=len(chosen - seen),
            error=error,
        )


class SearchAddress:
    """Makes the address of a search for messages of the report's tenant and week."""

    def __init__(self, report: WeeklyReport) -> None:
        self._tenant = report.tenant
        self._week = report.week

    def __call__(self, terms: str = "") -> str:
        asked = {
            "q": f"tenant:{self._tenant} {terms}".strip(),
            "range": "between",
            "since": f"{self._week.begin:%Y-%m-%dT%H:%M}",
            "until": f"{self._week.end:%Y-%m-%dT%H:%M}",
        }
        return f"/console/messages?{urlencode(asked)}"


def tenant_of(request: UserRequest) -> Tenant:
    """Return the tenant in the form or the URL, by name or UUID, or else the active one or the user's first.

    A tenant that the user may not see raises NotFound.
    """
    named = (request.form.text("tenant") or request.query.get("tenant", "").strip()).casefold()
    tenants = request.tenants
    if not named and tenants:
        return request.active_tenant or tenants[0]
    for tenant in tenants:
        if named in (str(tenant.uid), tenant.name.casefold()):
            return tenant
    raise NotFound("There is no such tenant.")


def week_title(week: Week) -> str:
    """Return the week with its days, in the language of the request."""
    values = {"number": week.monday.isocalendar()[1], "monday": day_text(week.monday), "sunday": day_text(week.sunday)}
    return _("Week %(number)s, %(monday)s to %(sunday)s (UTC)") % values


def week_of(request: UserRequest) -> Week:
    return checked_week(request.query.get("week", "").strip(), datetime.now(UTC))


def choices(request: UserRequest) -> Sequence[Tenant] | None:
    """Return the tenants of a menu, or None if there are too many: then a name is typed."""
    return request.tenants if len(request.tenants) <= MAX_CHOICES else None


def _uid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise SchemaViolation("A recipient of the report is not a user of this tenant.") from None
