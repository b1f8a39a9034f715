"""Actions on several held messages: a few statements for all of them, and a result for each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import asyncpg
import pytest
from aiohttp import web

from mailwarden.access.audit import AuditFilter, AuditStore
from mailwarden.console.forms import Form
from mailwarden.console.held_actions import HeldActions
from mailwarden.console.request import UserRequest
from mailwarden.console.screens.quarantine import QuarantineScreen
from mailwarden.database.pool import Connection, Database
from mailwarden.errors import MessageNotFound, NotReleasable, StorageUnavailable
from mailwarden.history.opening import open_history
from mailwarden.lists.service import ListService
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.policy.rules import load_policy
from mailwarden.quarantine.model import State
from mailwarden.quarantine.service import QuarantineService
from mailwarden.serving.spool import Spooled
from tests.integration.held_messages import RAW, finished
from tests.integration.quarantine.quarantine_setup import ALL, ANN, QuarantineSetup


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the statements that are sent to PostgreSQL."""
    lend, sent = Database.connection, list[str]()

    @asynccontextmanager
    async def logged(database: Database) -> AsyncIterator[Connection]:
        async with lend(database) as connection:
            with cast("asyncpg.Connection", connection).query_logger(lambda query: sent.append(query.query)):
                yield connection

    monkeypatch.setattr(Database, "connection", logged)
    return sent


async def submit(setup: QuarantineSetup, action: str, uids: Sequence[UUID]) -> dict[str, Any]:
    """Submit the page that confirms an action, and return the values of the page of results."""
    shown: dict[str, Any] = {}

    def render(_: str, **values: object) -> web.Response:
        shown.update(values)
        return web.Response()

    form = Form({"action": [action], "uid": list(map(str, uids))})
    visit = SimpleNamespace(form=form, scope=Scope.of(setup.north), actor=ANN, render=render)
    quarantine = QuarantineService(setup.store, setup.vault, cast("ListService", None), setup.folder)
    history = open_history(setup.database)
    screen = QuarantineScreen(quarantine, history, HeldActions(quarantine, history, load_policy()))
    await screen.do(cast("UserRequest", visit))
    return shown


async def audited(setup: QuarantineSetup, action: str) -> int:
    return len(await AuditStore(setup.database).find(ALL, AuditFilter(action=f"quarantine.{action}")))


@pytest.mark.parametrize("action", ["release", "delete"])
async def test_fifty_messages_take_five_statements(
    setup: QuarantineSetup, statements: list[str], note: Callable[[str], None], action: str
) -> None:
    requests = [finished(setup.north) for _ in range(50)]
    await open_history(setup.database).save(ALL, requests)
    uids = [await setup.writer.hold(request, Spooled.of(RAW)) for request in requests]
    statements.clear()
    page = await submit(setup, action, uids)
    await asyncio.sleep(0)  # the driver calls its logger in the next round
    count = sum(statement not in ("BEGIN;", "COMMIT;") for statement in statements)
    note(f"{action} of 50 held messages: {count} statements")
    assert (page["done"], [result.uid for result in page["results"]], page["in_doubt"]) == (50, uids, False)
    assert (await audited(setup, action), count) == (50, 5)


@pytest.mark.parametrize("action", ["release", "delete"])
async def test_each_message_has_its_own_result(setup: QuarantineSetup, action: str) -> None:
    uids = [await setup.keep(raw=bytes([number])) for number in range(2)]
    foreign, virus = await setup.keep(setup.south), await setup.keep(raw=b"virus", verdict=Verdict.MALWARE)
    await setup.store.delete(ALL, uids[0], None, ANN)
    before = await audited(setup, action)
    act = setup.store.request_releases if action == "release" else setup.store.delete_several
    results = await act(Scope.of(setup.north), [*uids, foreign, uuid4(), virus], ANN)
    errors = [result.error and type(result.error) for result in results]
    last = NotReleasable if action == "release" else None
    assert errors == [NotReleasable, None, MessageNotFound, MessageNotFound, last]
    assert [result.message and result.message.uid for result in results] == [*uids, None, None, virus]
    assert await audited(setup, action) == before + errors.count(None)
    assert (await setup.store.find(ALL, foreign)).in_state(State.HELD)


async def test_selections_that_overlap_request_each_release_once(setup: QuarantineSetup) -> None:
    uids = [await setup.keep(raw=bytes([number])) for number in range(10)]
    there, back = await asyncio.gather(
        setup.store.request_releases(ALL, uids, ANN), setup.store.request_releases(ALL, uids[::-1], ANN)
    )
    errors = [(one.error, other.error) for one, other in zip(there, back[::-1], strict=True)]
    assert all((one is None) != (other is None) for one, other in errors)
    assert await audited(setup, "release") == 10


@pytest.mark.parametrize("in_doubt", [True, False])
async def test_the_page_says_whether_a_lost_change_is_in_doubt(
    setup: QuarantineSetup, monkeypatch: pytest.MonkeyPatch, in_doubt: bool
) -> None:
    async def lose(*_: object) -> None:
        error = StorageUnavailable("The database is down.")
        error.in_doubt = in_doubt
        raise error

    monkeypatch.setattr(setup.store, "delete_several", lose)
    page = await submit(setup, "delete", [uuid4()])
    assert (page["done"], page["in_doubt"], page["results"][0].error.message) == (0, in_doubt, "The database is down.")
