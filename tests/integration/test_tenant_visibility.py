"""Rows of a tenant that is not in this cell: nobody but its move sees them."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID, uuid4

import pytest

from mailwarden.access.keys import ApiKeys, KeyScope, KeyStore, NewKey
from mailwarden.access.tenants import TenantStore
from mailwarden.access.users import NewUser, Position, Role, User, UserStore
from mailwarden.cases.model import NewCaseReport
from mailwarden.cases.report_mail import ReportFormat
from mailwarden.cases.store import CaseStore
from mailwarden.cells import history as moved_history
from mailwarden.cells import move
from mailwarden.event_delivery.model import Kind as EndpointKind
from mailwarden.event_delivery.model import NewEndpoint, Sealed
from mailwarden.event_delivery.store import EndpointStore
from mailwarden.events.reader import EventReader, Filter, cursor_of
from mailwarden.feeds.model import FeedFormat, FeedSettings
from mailwarden.feeds.store import FeedStore
from mailwarden.history import pages
from mailwarden.history.clickhouse.client import Clickhouse
from mailwarden.history.query import Query
from mailwarden.history.store import Range
from mailwarden.learning.reports import Kind, NewReport
from mailwarden.learning.store import ReportStore
from mailwarden.lists.store import ListScope
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.retention import RetentionStore
from mailwarden.quarantine.store import QuarantineStore
from rig.clickhouse import EmbeddedClickhouse
from rig.engines import Engines
from tests.clickhouse_databases import opened_history
from tests.databases import ReusedDatabases
from tests.integration.cell_pair import ACTOR, ALL, LIST, RING, OneCell, Pair, interrupted, open_pair
from tests.integration.held_messages import finished


@pytest.fixture(params=["postgresql", "clickhouse"])
async def pair(
    request: pytest.FixtureRequest, engines: Engines, reused_databases: ReusedDatabases, tmp_path: Path
) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        stores: list[Clickhouse | None] = [None, None]
        if request.param == "clickhouse":
            server: EmbeddedClickhouse = request.getfixturevalue("clickhouse_server")
            stores = [await stack.enter_async_context(opened_history(server)) for _ in stores]
        yield await stack.enter_async_context(open_pair(engines, reused_databases, tmp_path, stores))


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(moved_history, "IN_FLIGHT_SECONDS", 0.0)
    for limit in ("SEARCH_SECONDS", "CANDIDATE_SECONDS"):  # a busy machine must not end a search
        monkeypatch.setattr(pages, limit, 60.0)


async def fill(pair: Pair) -> User:
    """Store a row of each kind for the tenant; return a user of it."""
    database, uid = pair.a.database, pair.uid
    await pair.a.hold(uid)
    await pair.a.history.save(ALL, [finished(uid, verdict=Verdict.PHISHING)])
    await pair.a.history.update_rollups(ALL)
    keys = ApiKeys(KeyStore(database), RING)
    await keys.create(ALL, NewKey("north", frozenset({KeyScope.READ}), frozenset({uid})), ACTOR)
    await ReportStore(database).add(ALL, NewReport(uuid4(), uid, Kind.SPAM, b"d" * 32, 10), ACTOR)
    report = NewCaseReport(
        uuid4(), uid, b"m" * 32, 0, "ann@north.example", verified=True, kind=Kind.SPAM, format=ReportFormat.ATTACHED
    )
    await CaseStore(database).add(ALL, report, datetime.now(UTC).date(), 10)
    settings = FeedSettings("https://feed.example/list", FeedFormat.TEXT, LIST)
    await FeedStore(database).add(ListScope(uid), "feed", settings, ACTOR)
    endpoint = NewEndpoint("siem", EndpointKind.WEBHOOK, "https://siem.example/", tenants=frozenset({uid}))
    await EndpointStore(database).create(
        ALL, uuid4(), endpoint, cursor=cursor_of(0), sealed=Sealed(b"s", b"u"), actor=ACTOR
    )
    return await UserStore(database).create(ALL, NewUser("ann", Position(Role.ANALYST, frozenset({uid}))), ACTOR)


async def seen(cell: OneCell, scope: Scope = ALL) -> dict[str, int]:
    """Return how many rows of each kind a scope sees in a cell."""
    database = cell.database
    history, held, now = cell.history, QuarantineStore(database), datetime.now(UTC)
    page = await history.search(scope, Query(), None, 100)
    attacked = await history.attacked_between(scope, now - timedelta(hours=1), now + timedelta(hours=1))
    vocabulary = await history.vocabulary(scope)
    statistics = await history.statistics(scope, Range.DAY)
    return {
        "held": len(await held.page(scope)),
        "held by verdict": sum((await held.counts(scope)).values()),
        "held in metrics": (await RetentionStore(database).totals(scope)).messages,
        "messages": len(page.rows),
        "found by id": sum([len(await history.tenants_of(scope, ggrid)) for ggrid in await ggrids(cell)]),
        "counted": (await history.count(scope, ["verdict:phishing"], now - timedelta(days=1))).counted,
        "attacked": len(attacked.recipients),
        "vocabulary": len(vocabulary.recipients),
        "statistics": sum(statistics.decisions.values()),
        "learning": len(await ReportStore(database).statuses(scope)),
        "cases": await CaseStore(database).count_open(scope),
        "feeds": len(await FeedStore(database).list(scope)),
        "keys": len(await KeyStore(database).list(scope)),
        "users": len(await UserStore(database).list(scope)),
        "endpoints": len(await EndpointStore(database).list(scope)),
    }


async def ggrids(cell: OneCell) -> set[UUID]:
    """Return the ids of all messages whose events the cell has or that it stores."""
    async with cell.database.connection() as connection:
        rows = await connection.fetch("SELECT subject FROM events WHERE type = 'message.judged'")
    named = Scope.of(*await tenants(cell))
    page = await cell.history.search(named, Query(), None, 100)
    return {UUID(str(row["subject"])) for row in rows} | {row.ggrid for row in page.rows}


async def tenants(cell: OneCell) -> list[UUID]:
    async with cell.database.connection() as connection:
        return [cast("UUID", row["uid"]) for row in await connection.fetch("SELECT uid FROM tenants")]


def nothing(found: dict[str, int]) -> bool:
    return set(found.values()) == {0}


async def test_nobody_sees_rows_of_a_tenant_that_is_arriving(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(pair)
    before = await seen(pair.a)
    assert 0 not in before.values(), before
    await interrupted(pair, monkeypatch)
    assert nothing(await seen(pair.b)), await seen(pair.b)
    assert await seen(pair.a) == before
    events = await EventReader(pair.b.database).read_after(Filter(ALL, deployment=True), None)
    assert events.events == []

    await pair.move().run(ACTOR)
    after = await seen(pair.b)
    assert {**after, "statistics": 1} == before, "its statistics are counted later"
    assert nothing(await seen(pair.a)), await seen(pair.a)
    await pair.move().finish()
    assert nothing(await seen(pair.a)), await seen(pair.a)


async def test_a_tenant_that_came_back_is_seen_again(pair: Pair) -> None:
    await fill(pair)
    before = await seen(pair.a)
    await pair.move().run(ACTOR)
    await pair.move(back=True).run(ACTOR)
    assert {**await seen(pair.a), "statistics": 1} == before
    assert nothing(await seen(pair.b)), await seen(pair.b)


async def test_a_user_of_two_tenants_sees_the_one_that_is_here(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await fill(pair)
    south = await TenantStore(pair.a.database).create(ALL, "south", ["south.example"])
    both = frozenset({pair.uid, south.uid})
    user = await UserStore(pair.a.database).create(ALL, NewUser("ben", Position(Role.ANALYST, both)), ACTOR)
    second = move.TenantMove(pair.a.access, pair.b.access, pair.directory, south.uid, lambda _: None)
    await second.run(ACTOR)
    await interrupted(pair, monkeypatch)

    found = await UserStore(pair.b.database).find(ALL, user.uid)
    assert found is not None
    assert (found.tenants, found.scope, found.disabled) == (both, Scope.of(south.uid), False)
    there = await UserStore(pair.a.database).find(ALL, user.uid)
    assert there is not None
    assert there.scope == Scope.of(pair.uid)
    await pair.move().run(ACTOR)
    found = await UserStore(pair.b.database).find(ALL, user.uid)
    assert found is not None
    assert found.scope == Scope(both)
