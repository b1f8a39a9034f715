"""Calls for events: bounds of one credential, reads of one call, and credentials that end while a call waits."""

import asyncio
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID, uuid4

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from msgspec import UNSET

from mailwarden.access.callers import Access, Caller, call_scope
from mailwarden.access.permissions import ApiPermission
from mailwarden.access.tenants import TenantDirectory
from mailwarden.errors import InvalidCredentials, RateLimited, TenantForbidden, TenantNotFound
from mailwarden.event_delivery.api import MAX_CALLS_EACH, MAX_EMPTY_PAGES, EventsApi
from mailwarden.events.reader import EventReader, Filter, Page
from mailwarden.events.waiting import EventWatch
from mailwarden.model.scope import Scope
from mailwarden.serving.http_app import Call

CALLER = Caller("key:1", frozenset({ApiPermission.EVENTS}), Scope.deployment(), "key:soar")


@dataclass
class FakeReader:
    """Always finds rows to look at and never an event."""

    more: bool = True
    reads: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_encoded(self, wanted: Filter, cursor: str | None, limit: int) -> Page[bytes]:
        self.reads += 1
        await self.gate.wait()
        return Page((), "AQAAAAAAAAAB", 1, self.more)


class FakeWatch:
    async def wait(self, wanted: Filter, after: int, seconds: float) -> bool:
        return True


@dataclass
class FakeAccess:
    valid: bool = True

    async def caller(self, call: Call, permission: ApiPermission) -> Caller:
        if not self.valid:
            raise InvalidCredentials("This API key is not known.")
        return CALLER


@dataclass
class FakeTenants:
    uids: tuple[UUID, ...] = ()

    async def find(self, tenant_uid: UUID) -> object:
        return object() if tenant_uid in self.uids else None


def api(reader: FakeReader, access: FakeAccess) -> EventsApi:
    return EventsApi(
        cast("EventReader", reader), cast("EventWatch", FakeWatch()), cast("TenantDirectory", FakeTenants()),
        cast("Access", access),
    )  # fmt: skip


def call(query: str = "wait=60") -> Call:
    return Call(cast("web.BaseRequest", make_mocked_request("GET", f"/v1/events?{query}")), "", {})


async def test_a_call_reads_a_bounded_number_of_empty_pages():
    reader = FakeReader()
    reader.gate.set()
    answer = await api(reader, FakeAccess()).show(call(), CALLER)
    assert isinstance(answer, web.Response)
    assert reader.reads == MAX_EMPTY_PAGES + 1
    assert b'"next"' in cast("bytes", answer.body)


async def test_a_credential_has_a_bounded_number_of_calls_and_others_go_on():
    reader = FakeReader(more=False)
    events = api(reader, FakeAccess())
    running = [asyncio.create_task(events.show(call("wait=0"), CALLER)) for _ in range(MAX_CALLS_EACH)]
    await asyncio.sleep(0)
    with pytest.raises(RateLimited, match="calls for events running"):
        await events.show(call("wait=0"), CALLER)
    other = asyncio.create_task(
        events.show(call("wait=0"), Caller("key:2", frozenset(), Scope.deployment(), "key:other"))
    )
    reader.gate.set()
    await asyncio.gather(*running, other)
    await events.show(call("wait=0"), CALLER)


async def test_a_key_that_was_revoked_while_the_call_waits_gets_nothing():
    reader = FakeReader(more=False)
    reader.gate.set()
    with pytest.raises(InvalidCredentials):
        await api(reader, FakeAccess(valid=False)).show(call(), CALLER)
    assert reader.reads == 1


async def test_only_a_caller_of_all_tenants_learns_whether_a_tenant_exists():
    own, other = uuid4(), uuid4()
    tenants = cast("TenantDirectory", FakeTenants((own, other)))
    of_tenant = Caller("key:3", frozenset(), Scope.of(own), "key:own")
    assert await call_scope(tenants, UNSET, of_tenant) == Scope.of(own)
    assert await call_scope(tenants, own, of_tenant) == Scope.of(own)
    for forbidden in (other, uuid4()):
        with pytest.raises(TenantForbidden):
            await call_scope(tenants, forbidden, of_tenant)
    assert await call_scope(tenants, other, CALLER) == Scope.of(other)
    with pytest.raises(TenantNotFound):
        await call_scope(tenants, uuid4(), CALLER)
