"""The scan source `restApi`: takes from abby the same upload that abby took from its caller, and answers the result.

Security: only abby may call; the listener asks for a certificate of the deployment's own authority.
"""

from collections.abc import Mapping, Sequence
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
from mailwarden.model.envelope import Envelope
from mailwarden.model.tenant import RecipientGroup
from mailwarden.serving.front_door import Call
from mailwarden.serving.uploads import MAX_BODY, Keep, receive_upload
from mailwarden.wire.guard import (
    DEADLINE_HEADER,
    GGRID_HEADER,
    GROUPS_HEADER,
    PROGRESS_HEADER,
    STORE_HEADER,
    GroupRecord,
    groups_of,
    read_groups,
)
from mailwarden.wire.parameters import envelope_of, read_parameters

BODY_TIMEOUT_MS = 30_000
MAX_HEAD = 655_360  # abby names the tenants of 1,000 recipients in headers
MAX_HEADERS = 128
_YES_OR_NO = {"yes": True, "no": False}


class Handover(msgspec.Struct, frozen=True):
    """What abby says of a message in headers, because the caller's own record has no place for it."""

    ggrid: UUID
    deadline: float
    groups: tuple[GroupRecord, ...]
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
        handover = read_handover(request.headers, request.headers.getall(GROUPS_HEADER, ()))
        structlog.contextvars.bind_contextvars(ggrid=str(handover.ggrid))
        async with self._admission.admitted(request.content_length or MAX_BODY):
            upload = await receive_upload(request, self._spool, body_timeout_ms=BODY_TIMEOUT_MS, keep=Keep.EMAIL)
            with upload:
                envelope = envelope_of(read_parameters(upload.parameters))
                guard_request = GuardRequest(
                    ggrid=handover.ggrid,
                    source=self.name,
                    envelope=envelope,
                    groups=share_out(handover.groups, envelope),
                    raw=upload.email,
                    deadline=min(handover.deadline, self._analysis_timeout),
                    stored=handover.stored,
                )
                if handover.watched:
                    return await answer_with_progress(call, partial(self._processing.process, guard_request))
                finished = await self._processing.process(guard_request)
        return web.Response(body=msgspec.json.encode(result_of(finished)), content_type="application/json")


def read_handover(headers: Mapping[str, str], groups: Sequence[str]) -> Handover:
    try:
        return Handover(
            ggrid=UUID(headers[GGRID_HEADER]),
            deadline=max(int(headers[DEADLINE_HEADER]), 0) / 1000,
            groups=read_groups(groups),
            stored=_YES_OR_NO[headers.get(STORE_HEADER, "yes")],
            watched=_YES_OR_NO[headers.get(PROGRESS_HEADER, "no")],
        )
    except (KeyError, ValueError, msgspec.DecodeError) as error:
        raise _not_from_abby(error) from None


def share_out(records: Sequence[GroupRecord], envelope: Envelope) -> tuple[RecipientGroup, ...]:
    """Return the envelope's recipients by tenant, as abby says."""
    try:
        return groups_of(records, envelope.recipients)
    except ValueError as error:
        raise _not_from_abby(error) from None


def _not_from_abby(error: Exception) -> BadRequest:
    return BadRequest(f"This is guard's own port; messages come here through abby ({error}).")
