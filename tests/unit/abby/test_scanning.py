"""A message that another cell forwards: it gets the time that this cell still waits, and only its tenants' places."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from mailwarden.abby.access import SUBMIT, Caller
from mailwarden.abby.cell_forwarding import CellForwarding
from mailwarden.abby.guard_client import GuardClient, form_of
from mailwarden.abby.guard_in_process import InProcessTransport
from mailwarden.abby.guards import Guard, GuardWatch
from mailwarden.abby.scanning import FirstAnswers, Scanning
from mailwarden.errors import TenantMoving
from mailwarden.model.scope import Scope
from mailwarden.serving.errors import answer_for
from mailwarden.serving.http_app import Call
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.metrics import Metrics
from mailwarden.wire.guard import DEADLINE_HEADER
from mailwarden.wire.scanning import MessageAnalysisRequest
from tests.samples.guard_behaviour import finish
from tests.unit.abby.test_guard_in_process import GROUPS, PARAMETERS, RAW, StandIn

SLOW = 0.4
PATIENCE = 10.0


class Owners:
    def group(self, tenant_uid, recipients):
        return GROUPS


class Switching:
    """Cells where a tenant is just being switched."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def wait_for_switch(self, call: Call, scope: Scope, parameters: MessageAnalysisRequest) -> None:
        self.scopes.append(scope)
        raise TenantMoving("It moves.")


async def submitted(tmp_path: Path, caller: Caller, milliseconds: int, cells: Switching | None = None):
    """Submit a message whose body ends late; return the status, and the seconds that the guard got."""
    guard = StandIn(finish)
    watch = GuardWatch([Guard("https://g.example", InProcessTransport(guard))])
    await watch.look()
    scanning = Scanning(
        GuardClient(watch, Metrics()),
        Owners(),
        cast("FirstAnswers", None),  # there is no Idempotency-Key
        tmp_path,
        Metrics(),
        max_uploads=2,
        body_timeout_ms=5_000,
        long_request_timeout_ms=int(PATIENCE * 1000),
        cells=cast("CellForwarding | None", cells),
    )

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await scanning.submit_email(Call(request, "id", {}, cell="b"), caller)
        except TenantMoving as error:
            return answer_for(error)

    app = web.Application()
    app.router.add_post("/", handle)
    form = form_of(Spooled.of(RAW), PARAMETERS)

    async def late() -> AsyncIterator[bytes]:
        async for chunk in cast("AsyncIterator[bytes]", form.body()):
            await asyncio.sleep(SLOW / 3)
            yield chunk

    headers = {"Content-Type": form.content_type, DEADLINE_HEADER: str(milliseconds)}
    async with TestClient(TestServer(app)) as client:
        answer = await client.post("/", data=late(), headers=headers)
    return answer.status, [scan.seconds for scan in guard.scans]


@pytest.mark.parametrize(("given", "most"), [(2_000, 2.0 - SLOW / 2), (60_000, PATIENCE)])
async def test_the_time_of_the_other_cell_counts_from_the_arrival_of_the_call(
    tmp_path: Path, given: int, most: float
) -> None:
    cell = Caller("cell:b", frozenset({SUBMIT}), Scope.deployment(), "cell:b")
    status, (seconds,) = await submitted(tmp_path, cell, given)
    assert (status, seconds <= most, seconds > most - 1.0) == (200, True, True), seconds


async def test_a_call_waits_for_a_switch_with_the_rights_of_its_caller(tmp_path: Path) -> None:
    scope, cells = Scope.of(UUID(int=7)), Switching()
    status, scans = await submitted(tmp_path, Caller("key:x", frozenset({SUBMIT}), scope, "key:x"), 2_000, cells)
    assert (status, scans, cells.scopes) == (503, [], [scope])
