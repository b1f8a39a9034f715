"""Reports of users about messages under /v1: create, withdraw, list, and the training status of a tenant.

Security: reads hostile bytes, and holds no more of a reported message than training needs. Tenants are separated here:
a token learns nothing about another tenant's reports.
"""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
from aiohttp import web

from mailwarden import errors
from mailwarden.access.callers import Caller, require_tenant
from mailwarden.access.endpoints import OF_TENANT, Endpoint
from mailwarden.access.permissions import ApiPermission
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.turns import CallCounter
from mailwarden.errors import (
    EmptyEmail,
    ReportNotFound,
    UnsupportedMediaType,
)
from mailwarden.serving.form_data import parse_options
from mailwarden.serving.http_app import Call
from mailwarden.serving.uploads import MAX_BODY, BodyClock, send_continue, too_large
from mailwarden.user_reports.reports import (
    MIN_REPORTS,
    Kind,
    MessageCollector,
    ReportedMessage,
    TrainingStatus,
    UserReport,
)
from mailwarden.user_reports.requests import (
    DeletedReports,
    MessageReportQuery,
    Report,
    ReportQuery,
    Reports,
    ReportsQuery,
    TenantQuery,
    Training,
)
from mailwarden.user_reports.service import ReportService
from mailwarden.wire.strict_json import T, read_query, violation_at

MESSAGE = "message/rfc822"
MAX_CALLS = 64  # concurrent calls: each may hold a message of 1 MiB
_encoder = msgspec.json.Encoder()


class ReportApi:
    """Handles reports, at most MAX_CALLS at once."""

    def __init__(self, reports: ReportService, tenants: TenantDirectory, *, body_timeout_ms: int) -> None:
        self._reports = reports
        self._tenants = tenants
        self._body_timeout_ms = body_timeout_ms
        self._calls = CallCounter(MAX_CALLS, "Too many reports at once; try again.")

    async def report_message(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Store a report about a scanned message; another tenant's message is reported as missing."""
        comes = call.request.can_read_body or "Content-Type" in call.request.headers
        if comes:
            _check_head(call.request)
        query = _query(call, MessageReportQuery)
        with self._calls.call():
            given = await self._receive(call.request) if comes else None
            ggrid, kind = call.variables["ggrid"], Kind(query.kind)
            scope = caller.scope.narrowed(query.tenant_uid or None)
            report = await self._reports.report_message(scope, ggrid, kind, caller.actor(call), given)
        return _answer(report_of(report), 202)

    async def report(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Store a report with its message, scanned or not."""
        _check_head(call.request)
        query = _query(call, ReportQuery)
        with self._calls.call():
            given = await self._receive(call.request)
            tenant = await self._tenant(query.tenant_uid, caller)
            kind, actor = Kind(query.kind), caller.actor(call)
            report = await self._reports.report_contents(caller.scope, tenant, kind, actor, contents=given)
        return _answer(report_of(report), 202)

    async def list_reports(self, call: Call, caller: Caller) -> web.StreamResponse:
        query = _query(call, ReportsQuery)
        before = None if query.before is msgspec.UNSET else _in_utc(query.before)
        uid = None if query.before_uid is msgspec.UNSET else query.before_uid
        tenant = await self._tenant(query.tenant_uid, caller)
        found = await self._reports.reports(caller.scope, tenant, before, query.limit, before_uid=uid)
        return _answer(Reports(tuple(map(report_of, found))))

    async def take_back(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Withdraw a report; another tenant's report is reported as missing."""
        await self._reports.withdraw(caller.scope, _uid_in(call.variables["uid"]), caller.actor(call))
        return web.Response(status=204)

    async def show_training(self, call: Call, caller: Caller) -> web.StreamResponse:
        tenant = await self._tenant(_query(call, TenantQuery).tenant_uid, caller)
        standing = await self._reports.status(caller.scope, tenant)
        return _answer(training_of(standing))

    async def reset(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Delete all training of a tenant."""
        tenant = await self._tenant(_query(call, TenantQuery).tenant_uid, caller)
        return _answer(DeletedReports(await self._reports.reset(caller.scope, tenant, caller.actor(call))))

    async def _receive(self, request: web.BaseRequest) -> ReportedMessage:
        intake = MessageCollector()
        await send_continue(request)
        async with BodyClock(self._body_timeout_ms) as clock:
            while chunk := await clock.next_chunk(request):
                intake.add(chunk)
        given = intake.finish()
        if not given.size:
            raise EmptyEmail("The body is empty: send the raw message.")
        return given

    async def _tenant(self, tenant: UUID, caller: Caller) -> UUID:
        sentence = "This credential may not act for this tenant."
        return await require_tenant(self._tenants, tenant, caller.scope, sentence)


def report_of(report: UserReport) -> Report:
    """Return the API record of a report."""
    return Report(
        uid=report.uid,
        tenant_uid=report.tenant,
        kind=report.kind,
        state=report.state,
        ggrid=report.ggrid,
        subject=report.subject,
        size=report.size,
        reported_by=report.reported_by,
        reported_at=report.reported_at,
    )


def training_of(standing: TrainingStatus) -> Training:
    """Return the API record of a tenant's training status."""
    return Training(
        tenant_uid=standing.tenant,
        threats=standing.threats,
        good=standing.good,
        waiting=standing.waiting,
        required=MIN_REPORTS,
        active=standing.active,
        rebuilding=standing.rebuilding,
    )


def _check_head(request: web.BaseRequest) -> None:
    """Check the headers before the body is read."""
    if (request.content_length or 0) > MAX_BODY:
        raise too_large(MAX_BODY)
    if request.headers.get("Content-Encoding", "identity").strip().lower() != "identity":
        raise UnsupportedMediaType("The body must not be compressed.")
    kinds = request.headers.getall("Content-Type", [])
    if len(kinds) != 1 or parse_options(kinds[0])[0] != MESSAGE:
        raise UnsupportedMediaType(f"The body must be a raw message: send one header `Content-Type: {MESSAGE}`.")


def _query(call: Call, kind: type[T]) -> T:
    return read_query(call.request.query.items(), kind)


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # before year 1 or after 9999 in UTC
        raise violation_at("/before", "Not a moment that can be written in UTC") from None


def _uid_in(text: str) -> UUID:
    """Return the uid in the path; raise for other text."""
    try:
        return UUID(text)
    except ValueError:
        raise ReportNotFound("There is no such report.") from None


def _answer(record: Report | Reports | Training | DeletedReports, status: int = 200) -> web.Response:
    return web.Response(status=status, body=_encoder.encode(record), content_type="application/json")


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/messages/{ggrid}/report", ApiPermission.REPORT, ReportApi.report_message, "reportMessage",
        "Report a scanned message. It trains the filter if the message is sent as well, exactly as it was scanned.",
        query=MessageReportQuery, message="optional", result=Report, status=202,
        errors=(errors.MessageNotFound, errors.MessageMismatch, errors.TrainingFull),
        example={"kind": "spam"},
    ),
    Endpoint(
        "POST", "/v1/reports", ApiPermission.REPORT, ReportApi.report, "reportContents",
        "Report a message and train the filter with it.",
        query=ReportQuery, message="required", result=Report, status=202,
        errors=(*OF_TENANT, errors.TrainingFull), example={"kind": "spam"},
    ),
    Endpoint(
        "GET", "/v1/reports", ApiPermission.REPORT, ReportApi.list_reports, "listReports",
        "Show a tenant's reports, the newest first.",
        query=ReportsQuery, result=Reports, errors=OF_TENANT,
        example={"limit": 500},
    ),
    Endpoint(
        "DELETE", "/v1/reports/{uid}", ApiPermission.REPORT, ReportApi.take_back, "withdrawReport",
        "Undo a report and train again without it.",
        status=204, errors=(errors.ReportNotFound,),
    ),
    Endpoint(
        "GET", "/v1/training", ApiPermission.REPORT, ReportApi.show_training, "getTraining",
        "Show the training of a tenant: how many messages its reports have.",
        query=TenantQuery, result=Training, errors=OF_TENANT,
    ),
    Endpoint(
        "DELETE", "/v1/training", ApiPermission.REPORT, ReportApi.reset, "resetTraining",
        "Delete all reports of a tenant and the statistics trained from them.",
        query=TenantQuery, result=DeletedReports, errors=OF_TENANT,
    ),
)  # fmt: skip
