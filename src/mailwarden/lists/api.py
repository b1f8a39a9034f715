"""The List API, /api/public/lists/v1: reads and changes entries of lists in one scope.

Security: tenants are separated here: a key reaches only its own scopes and cannot learn about others.
"""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID

import msgspec
from aiohttp import web

from mailwarden import errors
from mailwarden.access.callers import Caller, require_tenant
from mailwarden.access.endpoints import OF_TENANT, Endpoint, Lines
from mailwarden.access.permissions import ApiPermission
from mailwarden.access.tenants import TenantDirectory
from mailwarden.access.turns import CallCounter
from mailwarden.errors import GlobalScopeForbidden, Overloaded
from mailwarden.lists.requests import (
    AddEntries,
    AvailableLists,
    DeleteEntries,
    GetLists,
    ListEntries,
    ModifiedEntries,
    PublicListsEntry,
    read_request,
)
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, Reading
from mailwarden.serving.http_app import Call, finish_headers
from mailwarden.serving.ndjson import NDJSON
from mailwarden.serving.uploads import receive_json
from mailwarden.telemetry.logs import get_logger

PREFIX = "/api/public/lists/v1"
MAX_BODY = 4_194_304
MAX_CALLS = 256  # concurrent calls: each may hold a body of 4 MiB
STREAM_WAIT_SECONDS = 30.0
STALL_SECONDS = 60.0  # a client that reads nothing for so long holds a place, a snapshot and locks no longer
_encoder = msgspec.json.Encoder()

log = get_logger("lists")

R = TypeVar("R", AddEntries, DeleteEntries, GetLists, ListEntries)

_SCOPE = (*OF_TENANT, errors.GlobalScopeForbidden)
_LIST = (*_SCOPE, errors.ListNotFound)
_CHANGE = (*_LIST, errors.TooManyEntries)


class ListApi:
    """Handles calls, at most MAX_CALLS at once."""

    def __init__(self, lists: ListService, tenants: TenantDirectory, *, body_timeout_ms: int, max_streams: int) -> None:
        self._lists = lists
        self._tenants = tenants
        self._body_timeout_ms = body_timeout_ms
        self._calls = CallCounter(MAX_CALLS, "Too many calls at once; try again.")
        self._places = asyncio.Semaphore(max_streams)

    async def add_entries(self, call: Call, caller: Caller) -> web.StreamResponse:
        with self._calls.call():
            request = await self._receive(call, AddEntries)
            scope = await self._scope(request.tenant_uid, caller)
            count = await self._lists.add_entries(scope, request.list_name, request.entries, caller.actor(call))
        return _answer(ModifiedEntries(count))

    async def delete_entries(self, call: Call, caller: Caller) -> web.StreamResponse:
        with self._calls.call():
            request = await self._receive(call, DeleteEntries)
            scope = await self._scope(request.tenant_uid, caller)
            count = await self._lists.delete_entries(scope, request.list_name, request.entries, caller.actor(call))
        return _answer(ModifiedEntries(count))

    async def get_lists(self, call: Call, caller: Caller) -> web.StreamResponse:
        with self._calls.call():
            request = await self._receive(call, GetLists)
        scope = await self._scope(request.tenant_uid, caller)
        return _answer(AvailableLists(tuple(self._lists.available(scope))))

    async def list_entries(self, call: Call, caller: Caller) -> web.StreamResponse:
        """Stream one snapshot of a list; an error after the first byte closes the connection."""
        with self._calls.call():
            request = await self._receive(call, ListEntries)
        scope = await self._scope(request.tenant_uid, caller)
        response = web.StreamResponse(headers={"Content-Type": NDJSON})
        try:
            async with self._place(), self._lists.reading(scope, request.list_name) as reading:
                await _stream(call, response, reading)
            await response.write_eof()
        except Exception as error:
            if not response.prepared:
                raise
            log.warning("list_stream_broken", list=request.list_name, reason=type(error).__name__)
            if call.request.transport is not None:
                call.request.transport.abort()
            raise ConnectionAbortedError("The stream was broken off.") from error
        return response

    async def _receive(self, call: Call, kind: type[R]) -> R:
        raw = await receive_json(call.request, max_body=MAX_BODY, body_timeout_ms=self._body_timeout_ms)
        return read_request(raw, kind)

    async def _scope(self, tenant: UUID | None, caller: Caller) -> ListScope:
        """Return the scope of the call, if the key may use it."""
        if tenant is None:
            if caller.scope.tenants is not None:
                raise GlobalScopeForbidden("The global scope needs a deployment key; name your tenant in tenantUid.")
            return ListScope()
        sentence = "This API key may not use this tenant."
        return ListScope(await require_tenant(self._tenants, tenant, caller.scope, sentence))

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Wait for one of the connections reserved for streams."""
        try:
            async with asyncio.timeout(STREAM_WAIT_SECONDS):
                await self._places.acquire()
        except TimeoutError:
            raise Overloaded("Too many lists are streamed at once; try again.") from None
        try:
            yield
        finally:
            self._places.release()


async def _stream(call: Call, response: web.StreamResponse, reading: Reading) -> None:
    response.headers["X-Entry-Count"] = str(reading.count)
    finish_headers(response, call.request_id, call.request.path, call.headers)
    await response.prepare(call.request)

    await reading.copy_to(functools.partial(pass_on, response))


async def pass_on(response: web.StreamResponse, lines: bytes) -> None:
    """Write lines to the client, or raise ReaderGone if it closed the stream or does not read."""
    try:
        async with asyncio.timeout(STALL_SECONDS):
            await response.write(lines)
    except (ConnectionError, TimeoutError) as error:  # not to be confused with an error of the database
        raise ReaderGone from error


class ReaderGone(Exception):
    """The client closed the stream, or does not read it."""


def _answer(record: ModifiedEntries | AvailableLists) -> web.Response:
    return web.Response(body=_encoder.encode(record), content_type="application/json")


ENDPOINTS = (
    Endpoint(
        "POST", f"{PREFIX}/addEntries", ApiPermission.LISTS_WRITE, ListApi.add_entries, "addEntries",
        "Add or update entries of one list, all or none.",
        body=AddEntries, result=ModifiedEntries,
        errors=(*_CHANGE, errors.InvalidEntry, errors.EntryTooBroad, errors.ListFull),
        example={"listName": "sender-block", "entries": [{"entry": "billing@evil.example"}]},
    ),
    Endpoint(
        "POST", f"{PREFIX}/deleteEntries", ApiPermission.LISTS_WRITE, ListApi.delete_entries, "deleteEntries",
        "Delete entries of one list; missing entries are ignored.",
        body=DeleteEntries, result=ModifiedEntries, errors=_CHANGE,
        example={"listName": "sender-block", "entries": ["billing@evil.example"]},
    ),
    Endpoint(
        "POST", f"{PREFIX}/getLists", ApiPermission.LISTS_READ, ListApi.get_lists, "getLists",
        "Show all lists of one scope.",
        body=GetLists, result=AvailableLists, errors=_SCOPE,
    ),
    Endpoint(
        "POST", f"{PREFIX}/listEntries", ApiPermission.LISTS_READ, ListApi.list_entries, "listEntries",
        "Stream all entries of one list, one record a line, from one snapshot.",
        body=ListEntries,
        lines=Lines(
            "One PublicListsEntry a line, ordered by entry; X-Entry-Count says how many.",
            (PublicListsEntry,), {"X-Entry-Count": "^[0-9]+$"},
        ),
        errors=_LIST, example={"listName": "sender-block"},
    ),
)  # fmt: skip
