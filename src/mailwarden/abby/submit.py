"""Scanning: submitEmail, and analyses that a user watches in the console."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import msgspec
import structlog
from aiohttp import web
from msgspec import Struct

from mailwarden import errors
from mailwarden.access.callers import Caller, require_groups
from mailwarden.access.endpoints import OF_TENANT, Endpoint
from mailwarden.access.idempotency import IdempotencyStore
from mailwarden.access.permissions import ApiPermission
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.turns import CallCounter
from mailwarden.console.services import Step
from mailwarden.errors import TenantForbidden, TenantNotFound
from mailwarden.hop.client import GuardClient
from mailwarden.hop.transport import ScanRequest
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import RecipientGroup
from mailwarden.serving.http_app import Call
from mailwarden.serving.spool import Spooled
from mailwarden.serving.uploads import Upload, check_upload_head, receive_upload
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.scanning import MessageAnalysisRequest, MessageAnalysisResult, envelope_of, read_parameters
from mailwarden.wire.strict_json import refuse_query

IDEMPOTENCY_KEY = "Idempotency-Key"
_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic", decimal_format="string")
MAX_WATCHED = 8  # watched at once; the other places are for mail
NOT_FOR_TENANT = "You may not analyze messages for this tenant."


class Scanning:
    """Handles uploads, at most `maxUploads` at once."""

    def __init__(
        self,
        guards: GuardClient,
        tenants: TenantDirectory,
        first_answers: IdempotencyStore,
        spool: Path,
        metrics: Metrics,
        *,
        max_uploads: int,
        body_timeout_ms: int,
        long_request_timeout_ms: int,
    ) -> None:
        self._guards = guards
        self._tenants = tenants
        self._first_answers = first_answers
        self._spool = spool
        self._body_timeout_ms = body_timeout_ms
        self._patience = long_request_timeout_ms / 1000
        self.uploads = uploads = CallCounter(max_uploads, "Too many uploads at once; try again.")
        metrics.gauge("uploads", "Uploads in progress.").set_function(lambda: uploads.in_progress)
        metrics.gauge("uploads_limit", "Uploads that may be in progress at once.").set_function(lambda: uploads.maximum)

    async def submit_email(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Return the result of one submission; the specification sets the order of the checks."""
        check_upload_head(call.request)
        refuse_query(call.request.query)
        with self.uploads.call():
            self._guards.require_room()
            upload = await receive_upload(call.request, self._spool, body_timeout_ms=self._body_timeout_ms)
            with upload:
                parameters = read_parameters(upload.parameters)
                message = Received(upload, parameters, self._group(parameters, caller))
                answer = await self._answer_once(call, caller, message)
        return web.Response(body=answer, content_type="application/json")

    def _group(self, parameters: MessageAnalysisRequest, caller: Caller) -> tuple[RecipientGroup, ...]:
        """Return the recipients by tenant, if the caller may submit for all these tenants."""
        sentence = "This credential may not submit for this tenant."
        recipients = parameters.border_mta_data.envelope_recipients
        return require_groups(self._tenants, parameters.tenant_uid, recipients, caller.scope, sentence)

    async def _answer_once(self, call: Call, caller: Caller, message: "Received") -> bytes:
        """Return the result, or the stored one for a repeated Idempotency-Key."""
        keys = call.request.headers.getall(IDEMPOTENCY_KEY, ())
        if not keys:
            return await self._scan(call, message)
        key = ", ".join(keys)  # two keys are ambiguous, and rejected like one with a space
        digest = await digest_of(message.parameters, message.upload)
        first = await self._first_answers.find(caller.name, key, digest)
        if first is not None:
            return first
        answer = await self._scan(call, message)
        return await self._first_answers.remember(caller.name, key, digest, answer)

    async def _scan(self, call: Call, message: "Received") -> bytes:
        ggrid = new_ggrid()
        structlog.contextvars.bind_contextvars(ggrid=str(ggrid))
        deadline = asyncio.get_running_loop().time() + self._patience
        request = ScanRequest(ggrid, envelope_of(message.parameters), message.groups, call.request_id)
        return _encoder.encode(await self._guards.submit(message.upload.email, request, deadline))


class Received(Struct, frozen=True):
    """An upload with its recipients by tenant."""

    upload: Upload
    parameters: MessageAnalysisRequest
    groups: tuple[RecipientGroup, ...]


async def digest_of(parameters: MessageAnalysisRequest, upload: Upload) -> bytes:
    """Return the digest of a submission: the parsed parameters and the bytes of the message."""
    email = upload.email.sha256() if upload.email.in_memory else await asyncio.to_thread(upload.email.sha256)
    return hashlib.sha256(_canonical.encode(parameters) + b"\n" + email).digest()


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/messageQueue/submitEmail", ApiPermission.SUBMIT, Scanning.submit_email, "submitEmail",
        "Submit a message and wait for its analysis.",
        form=MessageAnalysisRequest, result=MessageAnalysisResult,
        errors=(
            *OF_TENANT, errors.ParametersContentTypeRequired, errors.MalformedMultipart, errors.MissingPart,
            errors.DuplicatePart, errors.UnexpectedPart, errors.IdempotencyConflict, errors.CoreUnreachable,
            errors.CoreError, errors.ScanningDisabled, errors.EngineUnavailable, errors.AnalysisTimeout,
        ),
    ),
)  # fmt: skip


class WatchedAnalyses:
    """Implements the console's `Analyses`."""

    def __init__(self, guards: GuardClient, tenants: TenantDirectory, *, long_request_timeout_ms: int) -> None:
        self._guards = guards
        self._tenants = tenants
        self._patience = long_request_timeout_ms / 1000
        self._watched = CallCounter(MAX_WATCHED, "Too many analyses are being watched; try again shortly.")

    async def watch(
        self, scope: Scope, message: Spooled, request: MessageAnalysisRequest, *, stored: bool, request_id: str
    ) -> AsyncGenerator[Step, None]:
        """Yield each analyzer's result as it finishes, and the finished guard request last."""
        recipients = request.border_mta_data.envelope_recipients
        try:
            groups = require_groups(self._tenants, request.tenant_uid, recipients, scope, NOT_FOR_TENANT)
        except TenantNotFound:
            raise TenantForbidden(NOT_FOR_TENANT) from None
        with self._watched.call():
            self._guards.require_room()
            ggrid = new_ggrid()
            structlog.contextvars.bind_contextvars(ggrid=str(ggrid))
            deadline = asyncio.get_running_loop().time() + self._patience
            scan_request = ScanRequest(ggrid, envelope_of(request), groups, request_id)
            steps = self._guards.watch(message, scan_request, deadline, stored=stored)
            async with aclosing(steps):
                async for step in steps:
                    yield step
