"""GET /v1/events: the events after a cursor, as JSON or as NDJSON, with long polling.

Security: tenants are separated here. A credential of some tenants never sees another tenant's events, nor events of the
deployment.
"""

import asyncio

import msgspec
from aiohttp import web
from msgspec import UNSET

from mailwarden import errors
from mailwarden.access.callers import Access, Caller, call_scope
from mailwarden.access.endpoints import OF_TENANT, Endpoint
from mailwarden.access.permissions import ApiPermission
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.turns import Turns
from mailwarden.event_delivery.requests import LATEST, EventPage, EventsQuery
from mailwarden.events.catalogue import CATALOGUE, schemas
from mailwarden.events.reader import EventReader, Filter, Page
from mailwarden.events.waiting import MAX_WAITING, EventWatch
from mailwarden.serving.http_app import Call
from mailwarden.serving.ndjson import NDJSON, accepts_ndjson
from mailwarden.wire.strict_json import read_query, violation_at

NEXT, MORE = "X-Next-Cursor", "X-More-Events"
READERS = 2  # reads that run at once; each has a connection
MAX_CALLS_EACH = 10  # of one credential
MAX_EMPTY_PAGES = 20  # that one call reads; the client continues with `next`
_encoder = msgspec.json.Encoder()


class EventsApi:
    """Answers from the outbox, with connections of its own."""

    def __init__(self, reader: EventReader, watch: EventWatch, tenants: TenantDirectory, access: Access) -> None:
        self._reader = reader
        self._watch = watch
        self._tenants = tenants
        self._access = access
        self._turns = Turns("calls for events", each=MAX_CALLS_EACH, total=MAX_WAITING, running=READERS)
        self._schemas = _encoder.encode({"schemas": schemas()})

    async def show(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Return the events after the cursor; wait for one if there is none."""
        query = read_query(call.request.query.items(), EventsQuery)
        scope = await call_scope(self._tenants, query.tenant_uid, caller)
        wanted = Filter(scope, deployment=scope.tenants is None, types=_types(query))
        cursor = None if query.after is UNSET else query.after
        with self._turns.call(caller):
            if cursor == LATEST:
                async with self._turns.place():
                    cursor = await self._reader.latest()
            page = await self._page(call, wanted, cursor, query)
        return _answer(page, lines=accepts_ndjson(call.request))

    async def show_schemas(self, _: Call, caller: Caller) -> web.StreamResponse:
        return web.Response(body=self._schemas, content_type="application/json")

    async def _page(self, call: Call, wanted: Filter, cursor: str | None, query: EventsQuery) -> Page[bytes]:
        """Return the first page with an event, or an empty one when the time or the number of reads is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + query.wait
        page = await self._read(wanted, cursor, query)
        for _ in range(MAX_EMPTY_PAGES):
            left = end - loop.time()
            if page.events or left <= 0:
                break
            # A page may be empty although later rows were not looked at yet: it goes on at once.
            if not page.more and not await self._watch.wait(wanted, page.number, left):
                end = loop.time()
            await self._access.caller(call, ApiPermission.EVENTS)  # a key may have been revoked meanwhile
            page = await self._read(wanted, page.next, query)
        return page

    async def _read(self, wanted: Filter, cursor: str | None, query: EventsQuery) -> Page[bytes]:
        async with self._turns.place():
            return await self._reader.read_encoded(wanted, cursor, query.limit)


def _types(query: EventsQuery) -> frozenset[str] | None:
    if query.types is UNSET:
        return None
    wanted = frozenset(query.types.split(","))
    if unknown := sorted(wanted - CATALOGUE.keys()):
        raise violation_at("/types", f"`{unknown[0][:64]}` is no event type; known are {', '.join(CATALOGUE)}")
    return wanted


def _answer(page: Page[bytes], *, lines: bool) -> web.Response:
    if lines:
        body = b"".join(event + b"\n" for event in page.events)
        headers = {NEXT: page.next, MORE: "true" if page.more else "false"}
        return web.Response(body=body, content_type=NDJSON, headers=headers)
    # The form of EventPage; the events are encoded already.
    more = b"true" if page.more else b"false"
    body = b'{"events":[%b],"next":"%b","more":%b}' % (b",".join(page.events), page.next.encode("ascii"), more)
    return web.Response(body=body, content_type="application/json")


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/events", ApiPermission.EVENTS, EventsApi.show, "listEvents",
        "Show the events after a cursor in their order; `wait` waits for the next one.",
        query=EventsQuery, result=EventPage,
        errors=(*OF_TENANT, errors.CursorExpired, errors.RateLimited),
        example={"types": "message.held"},
    ),
    Endpoint(
        "GET", "/v1/events/schemas", None, EventsApi.show_schemas, "getEventSchemas",
        "Show the JSON schema of every event type.",
    ),
)  # fmt: skip
