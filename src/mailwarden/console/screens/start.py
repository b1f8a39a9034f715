"""The First steps screen: the checklist of a deployment or tenant, and sample messages to send."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from aiohttp import web

from mailwarden.console.auth import Page, VisitorSessions
from mailwarden.console.first_steps import START, FirstSteps, StepName
from mailwarden.console.permissions import Permission
from mailwarden.console.request import UserRequest, see_other, with_error_status
from mailwarden.console.samples import (
    SAMPLES,
    SampleName,
    parameters_of_sample,
    recipient_of,
    sample_curl,
    sample_message,
)
from mailwarden.console.screens.keys import tenant_uid_of
from mailwarden.console.services import Analyses, scan_to_end
from mailwarden.errors import MailwardenError, SchemaViolation
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import Tenant
from mailwarden.serving.spool import Spooled
from mailwarden.wire.scanning import read_parameters

KEY_PLACEHOLDER = "API_KEY"


class StartScreen:
    def __init__(self, steps: FirstSteps, analyses: Analyses, visitors: VisitorSessions) -> None:
        self._steps = steps
        self._analyses = analyses
        self._visitors = visitors

    def pages(self) -> Sequence[Page]:
        return [
            Page("GET", "/start", Permission.ANALYZE, self.show),
            Page("POST", "/start/hide", Permission.ANALYZE, self.hide),
            Page("POST", "/start/sample", Permission.ANALYZE, self.send),
        ]

    async def show(self, request: UserRequest) -> web.StreamResponse:
        return await self._page(request, _tenant(request, request.query.get("tenant", "")))

    async def hide(self, request: UserRequest) -> web.StreamResponse:
        """Hide a step, or show it again."""
        form = request.form
        tenant = _tenant(request, form.text("tenant"))
        try:
            name = StepName(form.text("step"))
        except ValueError:
            raise SchemaViolation("There is no such step.") from None
        await self._steps.hide(request, name, hidden=not form.ticked("show"))
        return see_other(START, tenant=str(tenant.uid) if tenant else "")

    async def send(self, request: UserRequest) -> web.StreamResponse:
        """Scan a sample for the tenant and show its page; show an error on the checklist."""
        tenant = _tenant(request, request.form.text("tenant"))
        try:
            if tenant is None:
                raise SchemaViolation("Choose the tenant of the sample.")
            finished = await self._scan(request, _sample(request.form.text("sample")), tenant)
        except MailwardenError as error:
            return with_error_status(await self._page(request, tenant, error.message), error)
        return see_other(f"/console/messages/{finished.ggrid}", tenant=str(tenant.uid))

    async def _scan(self, request: UserRequest, name: SampleName, tenant: Tenant) -> FinishedRequest:
        recipient = recipient_of(tenant, request.user)
        message = Spooled.of(sample_message(name, recipient, datetime.now(UTC)))
        parameters = read_parameters(parameters_of_sample(recipient, tenant.uid).encode())
        return await scan_to_end(self._analyses, request.scope, message, parameters, request.call.request_id)

    async def _page(self, request: UserRequest, tenant: Tenant | None, mistake: str = "") -> web.Response:
        uid: UUID | None = tenant.uid if tenant else None
        recipient, site = recipient_of(tenant, request.user), self._visitors.origin(request.call).site
        samples = [(sample, sample_curl(site, KEY_PLACEHOLDER, sample.name, recipient, uid)) for sample in SAMPLES]
        return request.render(
            "start/index.html",
            steps=await self._steps.of(request, uid),
            tenant=tenant,
            samples=samples,
            recipient=recipient,
            mistake=mistake,
        )


def _tenant(request: UserRequest, text: str) -> Tenant | None:
    """Return the chosen tenant; a user of one tenant has no other choice."""
    if not text:
        return request.tenants[0] if len(request.tenants) == 1 else None
    uid = tenant_uid_of(request, text)
    return next(tenant for tenant in request.tenants if tenant.uid == uid)


def _sample(text: str) -> SampleName:
    try:
        return SampleName(text)
    except ValueError:
        raise SchemaViolation("There is no such sample.") from None
