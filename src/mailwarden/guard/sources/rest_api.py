"""The scan source `restApi`: takes from abby the same upload that abby took from its caller, and answers the result.

Security: only abby may call; the listener asks for a certificate of the deployment's own authority.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from uuid import UUID

import msgspec
import structlog
from aiohttp import web

from mailwarden.errors import BadRequest
from mailwarden.guard.admission import Admission
from mailwarden.guard.processing import GuardRequest, Processing
from mailwarden.guard.sources.progress import answer_with_progress
from mailwarden.guard.sources.result import result_of
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.serving.front_door import Call
from mailwarden.serving.uploads import MAX_BODY, Keep, receive_upload
from mailwarden.wire.guard import (
    DEADLINE_HEADER,
    GGRID_HEADER,
    PROFILE_HEADER,
    PROGRESS_HEADER,
    STORE_HEADER,
    TENANT_BY_HEADER,
    TENANT_HEADER,
    WEIGHTS_HEADER,
)
from mailwarden.wire.parameters import envelope_of, read_parameters

BODY_TIMEOUT_MS = 30_000
_YES_OR_NO = {"yes": True, "no": False}


class Handover(msgspec.Struct, frozen=True):
    """What abby says of a message in headers, because the caller's own record has no place for it."""

    ggrid: UUID
    deadline: float
    assignment: Assignment
    stored: bool
    watched: bool


class RestApi:
    name = "restApi"

    def __init__(self, admission: Admission, processing: Processing, spool: Path, analysis_timeout: float) -> None:
        self._admission = admission
        self._processing = processing
        self._spool = spool
        self._analysis_timeout = analysis_timeout

    async def submit(self, call: Call) -> web.StreamResponse:
        """Answer one submission: admitted or refused before its body is read."""
        request = call.request
        handover = read_handover(request.headers)
        structlog.contextvars.bind_contextvars(ggrid=str(handover.ggrid))
        async with self._admission.admitted(request.content_length or MAX_BODY):
            upload = await receive_upload(request, self._spool, body_timeout_ms=BODY_TIMEOUT_MS, keep=Keep.EMAIL)
            with upload:
                guard_request = GuardRequest(
                    ggrid=handover.ggrid,
                    source=self.name,
                    envelope=envelope_of(read_parameters(upload.parameters)),
                    assignment=handover.assignment,
                    raw=upload.email,
                    deadline=min(handover.deadline, self._analysis_timeout),
                    stored=handover.stored,
                )
                if handover.watched:
                    return await answer_with_progress(call, partial(self._processing.process, guard_request))
                finished = await self._processing.process(guard_request)
        return web.Response(body=msgspec.json.encode(result_of(finished)), content_type="application/json")


def read_handover(headers: Mapping[str, str]) -> Handover:
    try:
        return Handover(
            ggrid=UUID(headers[GGRID_HEADER]),
            deadline=max(int(headers[DEADLINE_HEADER]), 0) / 1000,
            assignment=Assignment(
                tenant=UUID(headers[TENANT_HEADER]),
                by=AssignedBy(headers[TENANT_BY_HEADER]),
                profile=Profile(headers[PROFILE_HEADER]),
                weights=msgspec.json.decode(headers.get(WEIGHTS_HEADER, "{}"), type=dict[str, int]),
            ),
            stored=_YES_OR_NO[headers.get(STORE_HEADER, "yes")],
            watched=_YES_OR_NO[headers.get(PROGRESS_HEADER, "no")],
        )
    except (KeyError, ValueError, msgspec.DecodeError) as error:
        raise BadRequest(f"This is guard's own port; messages come here through abby ({error}).") from None
