"""Reports in PostgreSQL: what was given once stays, whoever says something else of it."""

from uuid import UUID, uuid4

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.database.pool import Database
from mailwarden.errors import TenantForbidden
from mailwarden.model.scope import Actor, Scope
from mailwarden.user_reports.reports import Kind, NewReport, TrainingState
from mailwarden.user_reports.store import ReplacedReport, ReportStore

ALL = Scope.deployment()
ANN, BOB = Actor("ann"), Actor("bob")
DIGEST = b"d" * 32


@pytest.fixture
async def tenant(database: Database) -> UUID:
    return (await TenantStore(database).create(ALL, "North")).uid


def said(tenant: UUID, kind: Kind, contents: bytes | None) -> NewReport:
    return NewReport(uuid4(), tenant, kind, DIGEST, 100, contents, uuid4(), "Hello")


async def test_a_stored_message_is_not_sent_again(database: Database, tenant: UUID):
    store = ReportStore(database)
    first, _ = await store.add(ALL, said(tenant, Kind.SPAM, b"sealed"), ANN)
    await store.save_change(ALL, first.uid, {"taken": [1]})
    (due,) = await store.pending(ALL, 10)
    await store.mark_trained(ALL, due, rejected=False)

    second, replaced = await store.add(ALL, said(tenant, Kind.PHISHING, None), BOB)

    assert (second.uid, second.kind, second.reported_by) == (first.uid, Kind.PHISHING, "bob")
    assert second.reported_at > first.reported_at
    assert second.state is TrainingState.TRAINED, "both are threats: there is nothing to learn anew"
    assert replaced == ReplacedReport(Kind.SPAM, {"taken": [1]})
    assert len(await store.page(ALL, tenant)) == 1


async def test_a_message_with_the_opposite_kind_is_learned_again(database: Database, tenant: UUID):
    store = ReportStore(database)
    await store.add(ALL, said(tenant, Kind.SPAM, b"sealed"), ANN)
    (due,) = await store.pending(ALL, 10)
    await store.mark_trained(ALL, due, rejected=False)

    await store.add(ALL, said(tenant, Kind.RELEASED, None), BOB)

    (again,) = await store.pending(ALL, 10)
    assert (again.kind, again.contents, again.generation) == (Kind.RELEASED, b"sealed", due.generation + 1)
    assert (await store.status(ALL, tenant)).rebuilding


async def test_all_reports_can_be_learned_again(database: Database, tenant: UUID):
    store = ReportStore(database)
    await store.add(ALL, said(tenant, Kind.SPAM, b"sealed"), ANN)
    (due,) = await store.pending(ALL, 10)
    await store.mark_trained(ALL, due, rejected=False)
    assert await store.pending(ALL, 10) == []

    await store.rebuild(ALL, tenant, ANN)

    (again,) = await store.pending(ALL, 10)
    assert (again.uid, again.generation) == (due.uid, due.generation + 1)
    with pytest.raises(TenantForbidden):
        await store.rebuild(Scope.of(uuid4()), tenant, ANN)


async def test_contents_that_arrive_later_are_stored(database: Database, tenant: UUID):
    store = ReportStore(database)
    first, _ = await store.add(ALL, said(tenant, Kind.SPAM, None), ANN)
    assert first.state is TrainingState.NOT_STORED

    second, _ = await store.add(ALL, said(tenant, Kind.SPAM, b"sealed"), ANN)

    assert (second.uid != first.uid, second.state) == (True, TrainingState.WAITING)
    assert [report.uid for report in await store.page(ALL, tenant)] == [second.uid]
