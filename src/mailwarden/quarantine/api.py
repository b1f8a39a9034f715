"""The quarantine under /v1: lists, shows, releases, deletes and downloads held messages.

Security: tenants are separated here: a message of another tenant is reported as missing. `download` returns hostile
bytes as an attachment that browsers do not open.
"""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
from aiohttp import web
from msgspec import UNSET

from mailwarden import errors
from mailwarden.access.callers import Caller
from mailwarden.access.endpoints import Endpoint
from mailwarden.access.permissions import ApiPermission
from mailwarden.errors import MessageNotFound
from mailwarden.quarantine.model import HeldFilter, PageCursor, State
from mailwarden.quarantine.requests import DeleteQuery, HeldMessage, HeldMessages, QuarantineQuery, ReleaseOrder
from mailwarden.quarantine.service import QuarantineService, held_of
from mailwarden.serving.http_app import Call, finish_headers
from mailwarden.serving.uploads import receive_json
from mailwarden.wire.strict_json import convert, read_object, read_query, violation_at

MAX_BODY = 1_048_576
_encoder = msgspec.json.Encoder()
_LISTED = (errors.GlobalScopeForbidden, errors.ListFull)  # a release may allow the sender, a deletion block it


class QuarantineApi:
    def __init__(self, service: QuarantineService, *, body_timeout_ms: int) -> None:
        self._service = service
        self._body_timeout_ms = body_timeout_ms

    async def list_held(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Return a page; another tenant's messages are never listed."""
        query = read_query(call.request.query.items(), QuarantineQuery)
        after = None
        if query.after is not UNSET:
            last = await self._service.store.find(caller.scope, query.after)
            after = PageCursor(last.received, last.uid)
        filters = HeldFilter(
            tenant=None if query.tenant_uid is UNSET else query.tenant_uid,
            verdict=None if query.verdict is UNSET else query.verdict,
            recipient=None if query.recipient is UNSET else query.recipient,
            sender=None if query.sender is UNSET else query.sender,
            text=None if query.text is UNSET else query.text,
            state=None if query.state is UNSET else State(query.state),
            since=None if query.since is UNSET else _in_utc(query.since),
            after=after,
        )
        found = await self._service.store.page(caller.scope, filters, query.limit)
        return _answer(HeldMessages(tuple(map(held_of, found))))

    async def show(self, call: Call, caller: Caller) -> web.StreamResponse:
        return _answer(held_of(await self._service.store.find(caller.scope, _uid_in(call))))

    async def download(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Return the message, verified before the first byte is sent."""
        uid = _uid_in(call)
        raw = await self._service.export(caller.scope, uid, caller.actor(call))
        try:
            response = web.StreamResponse(
                headers={
                    "Content-Type": "message/rfc822",
                    "Content-Length": str(raw.size),
                    "Content-Disposition": f'attachment; filename="{uid}.eml"',
                }
            )
            finish_headers(response, call.request_id, call.request.path, call.headers)
            await response.prepare(call.request)
            async for chunk in raw.stream():
                await response.write(chunk)
            await response.write_eof()
            return response
        finally:
            raw.close()

    async def release(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Request a release; a guard delivers within seconds, and `show` has the result."""
        uid = _uid_in(call)
        raw = await receive_json(call.request, max_body=MAX_BODY, body_timeout_ms=self._body_timeout_ms)
        order = convert(read_object(raw), ReleaseOrder)
        message = await self._service.release(
            caller.scope,
            uid,
            caller.actor(call),
            recipients=None if order.recipients is UNSET else order.recipients,
            allow=None if order.allow is UNSET else order.allow,
            global_list=order.global_list,
            train=order.train,
        )
        return _answer(held_of(message), 202)

    async def delete(self, call: Call, caller: Caller) -> web.StreamResponse:
        uid = _uid_in(call)
        query = read_query(call.request.query.items(), DeleteQuery)
        message = await self._service.delete(
            caller.scope,
            uid,
            caller.actor(call),
            recipients=None if query.recipient is UNSET else [query.recipient],
            block=None if query.block is UNSET else query.block,
        )
        return _answer(held_of(message))


def _uid_in(call: Call) -> UUID:
    """Return the uid in the path; raise MessageNotFound for other text."""
    try:
        return UUID(call.variables["uid"])
    except ValueError:
        raise MessageNotFound("There is no such message in quarantine.") from None


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:  # before year 1 or after 9999 in UTC
        raise violation_at("/since", "Not a moment that can be written in UTC") from None


def _answer(record: HeldMessage | HeldMessages, status: int = 200) -> web.Response:
    return web.Response(status=status, body=_encoder.encode(record), content_type="application/json")


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/quarantine", ApiPermission.HELD, QuarantineApi.list_held, "listHeldMessages",
        "Show held messages, the newest first.",
        query=QuarantineQuery, result=HeldMessages,
        errors=(errors.MessageNotFound,),
    ),
    Endpoint(
        "GET", "/v1/quarantine/{uid}", ApiPermission.HELD, QuarantineApi.show, "showHeldMessage",
        "Show a held message with its state for each recipient.",
        result=HeldMessage, errors=(errors.MessageNotFound,),
    ),
    Endpoint(
        "GET", "/v1/quarantine/{uid}/message", ApiPermission.RELEASE, QuarantineApi.download, "downloadHeldMessage",
        "Take the message itself out, as harmful as it came.",
        media_type="message/rfc822",
        errors=(errors.MessageNotFound, errors.NotReleasable),
    ),
    Endpoint(
        "POST", "/v1/quarantine/{uid}/release", ApiPermission.RELEASE, QuarantineApi.release, "releaseHeldMessage",
        "Have a held message delivered to all who wait for it, or to some; a guard does it within seconds.",
        body=ReleaseOrder, result=HeldMessage, status=202,
        errors=(errors.MessageNotFound, errors.NotReleasable, *_LISTED),
    ),
    Endpoint(
        "DELETE", "/v1/quarantine/{uid}", ApiPermission.RELEASE, QuarantineApi.delete, "deleteHeldMessage",
        "Delete a held message for all who wait for it, or for one.",
        query=DeleteQuery, result=HeldMessage,
        errors=(errors.MessageNotFound, errors.NotReleasable, *_LISTED),
    ),
)  # fmt: skip
