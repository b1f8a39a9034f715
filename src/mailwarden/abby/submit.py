"""Scanning: submitEmail, and analyses that a user watches in the console."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import partial
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

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
from mailwarden.hop.records import REST_API
from mailwarden.model.scan import Scan
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import RecipientGroup
from mailwarden.serving.http_app import Call
from mailwarden.serving.spool import Spooled
from mailwarden.serving.uploads import check_upload_head, receive_upload
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.scanning import MessageAnalysisRequest, MessageAnalysisResult, ScanParameters, read_parameters

IDEMPOTENCY_KEY = "Idempotency-Key"
_canonical = msgspec.json.Encoder(order="deterministic", decimal_format="string")
MAX_WATCHED = 8  # watched at once; the other places are for mail
NOT_FOR_CREDENTIAL = "This credential may not submit for this tenant."
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
        boundary = check_upload_head(call.request)
        with self.uploads.call():
            self._guards.require_room()
            upload = await receive_upload(call.request, boundary, self._spool, body_timeout_ms=self._body_timeout_ms)
            with upload:
                parameters = read_parameters(upload.parameters)
                groups = require_groups(self._tenants, parameters, caller.scope, NOT_FOR_CREDENTIAL)
                scan = partial(scan_of, parameters, groups, upload.email, self._patience, call.request_id)
                answer = await self._answer_once(call, caller, parameters, upload.email, scan)
        return web.Response(body=answer, content_type="application/json")

    async def _answer_once(
        self, call: Call, caller: Caller, parameters: ScanParameters, email: Spooled, scan: Callable[[], Scan]
    ) -> bytes:
        """Return the result, or the stored one for a repeated Idempotency-Key, which begins no scan."""
        keys = call.request.headers.getall(IDEMPOTENCY_KEY, ())
        if not keys:
            return await self._guards.submit(scan())
        key = ", ".join(keys)  # two keys are ambiguous, and rejected like one with a space
        digest = await digest_of(parameters, email)
        first = await self._first_answers.find(caller.name, key, digest)
        if first is not None:
            return first
        answer = await self._guards.submit(scan())
        return await self._first_answers.remember(caller.name, key, digest, answer)


def scan_of(
    parameters: ScanParameters,
    groups: tuple[RecipientGroup, ...],
    message: Spooled,
    patience: float,
    request_id: str,
    *,
    stored: bool = True,
    watched: bool = False,
) -> Scan:
    """Return the scan of an upload; its id is in every line of the log from here on."""
    deadline = time.monotonic() + patience
    scan = Scan(
        REST_API,
        parameters.envelope,
        groups,
        message,
        deadline=deadline,
        request_id=request_id,
        stored=stored,
        watched=watched,
    )
    structlog.contextvars.bind_contextvars(ggrid=str(scan.ggrid))
    return scan


async def digest_of(parameters: ScanParameters, email: Spooled) -> bytes:
    """Return the digest of a submission: the parsed parameters and the bytes of the message."""
    digest = email.sha256() if email.in_memory else await asyncio.to_thread(email.sha256)
    return hashlib.sha256(_canonical.encode(parameters) + b"\n" + digest).digest()


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
        self, scope: Scope, message: Spooled, parameters: ScanParameters, *, stored: bool, request_id: str
    ) -> AsyncGenerator[Step, None]:
        """Yield each analyzer's result as it finishes, and the finished guard request last."""
        try:
            groups = require_groups(self._tenants, parameters, scope, NOT_FOR_TENANT)
        except TenantNotFound:
            raise TenantForbidden(NOT_FOR_TENANT) from None
        with self._watched.call():
            self._guards.require_room()
            scan = scan_of(parameters, groups, message, self._patience, request_id, stored=stored, watched=True)
            steps = self._guards.watch(scan)
            async with aclosing(steps):
                async for step in steps:
                    yield step
