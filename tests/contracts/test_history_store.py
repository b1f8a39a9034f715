"""Every history store stores, finds and deletes finished requests within a scope."""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Self
from uuid import UUID, uuid4

import msgspec
import pytest
from msgspec.structs import replace

from mailwarden.database import clock
from mailwarden.errors import GlobalScopeForbidden, StorageUnavailable
from mailwarden.history.postgresql import partitions
from mailwarden.history.store import Cursor, HistoryStore
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from tests.samples.finished import finished_request

ALL = Scope.deployment()


async def test_a_saved_request_is_found_with_every_field(store: HistoryStore) -> None:
    requests = [finished_request() for _ in range(5)]
    assert (await store.save(ALL, requests)).stored == 5
    for request in requests:
        assert await store.find(ALL, request.ggrid) == request


async def test_a_ggrid_is_kept_once_and_the_first_stands(store: HistoryStore) -> None:
    first = finished_request(guard="guard-1.example")
    second = msgspec.structs.replace(first, guard="guard-2.example")
    await store.save(ALL, [first])
    assert (await store.save(ALL, [second])).stored == 1
    assert await store.find(ALL, first.ggrid) == first


async def test_the_same_ggrid_twice_in_one_batch_is_kept_once(store: HistoryStore) -> None:
    request = finished_request()
    await store.save(ALL, [request, request])
    assert await store.find(ALL, request.ggrid) == request


async def test_a_scope_never_sees_the_row_of_another_tenant(store: HistoryStore) -> None:
    request = finished_request(tenant=uuid4())
    await store.save(ALL, [request])
    assert await store.find(Scope.of(request.tenant), request.ggrid) == request
    assert await store.find(Scope.of(uuid4(), request.tenant), request.ggrid) == request
    assert await store.find(Scope.of(uuid4()), request.ggrid) is None
    assert await store.find(Scope.of(), request.ggrid) is None


async def test_a_scope_cannot_write_a_row_of_another_tenant(store: HistoryStore) -> None:
    request = finished_request(tenant=uuid4())
    assert (await store.save(Scope.of(uuid4()), [request])).stored == 0
    assert await store.find(ALL, request.ggrid) is None


@pytest.mark.parametrize("ggrid", [uuid4(), UUID(int=0), UUID(int=(1 << 128) - 1), new_ggrid()])
async def test_an_unknown_id_and_an_id_that_is_none_of_ours_find_nothing(store: HistoryStore, ggrid: UUID) -> None:
    assert await store.find(ALL, ggrid) is None


async def test_a_request_with_an_id_that_is_none_of_ours_does_not_stop_the_others(store: HistoryStore) -> None:
    good, bad = finished_request(), finished_request(ggrid=uuid4())
    assert (await store.save(ALL, [bad, good])).stored == 1
    assert await store.find(ALL, good.ggrid) == good


async def test_days_before_the_given_one_are_deleted(store: HistoryStore) -> None:
    today = datetime.now(UTC).date()
    request = finished_request()
    await store.save(ALL, [request])
    await store.delete_days(ALL, today)
    assert await store.find(ALL, request.ggrid) == request
    assert await store.delete_days(ALL, today + timedelta(days=1)) == 1
    assert await store.find(ALL, request.ggrid) is None
    again = finished_request()
    assert (await store.save(ALL, [again])).stored == 1


async def test_one_tenant_cannot_delete_days(store: HistoryStore) -> None:
    with pytest.raises(GlobalScopeForbidden):
        await store.delete_days(Scope.of(uuid4()), datetime.now(UTC).date())


async def test_nothing_to_save_is_no_error(store: HistoryStore) -> None:
    assert (await store.save(ALL, [])).stored == 0


@pytest.mark.contract("3 mixed recipients")
async def test_each_tenant_has_its_own_row_under_one_ggrid(store: HistoryStore) -> None:
    ggrid = new_ggrid()
    mild, severe = (made(Decision.DELIVER, Verdict.CLEAN, ggrid), made(Decision.QUARANTINE, Verdict.SPAM, ggrid))
    worse = made(Decision.QUARANTINE, Verdict.PHISHING, ggrid)
    undecided = made(Decision.UNDECIDED, Verdict.UNKNOWN, ggrid)
    rows = [mild, severe, worse, undecided]
    assert (await store.save(ALL, rows)).stored == 4
    assert (await store.save(ALL, [replace(row, guard="a second guard") for row in rows])).stored == 4
    for row in rows:
        assert await store.find(Scope.of(row.tenant), ggrid) == row
        assert await store.tenants_of(Scope.of(row.tenant), ggrid) == [row.tenant]
    assert await store.find(ALL, ggrid) == worse
    assert list(await store.tenants_of(ALL, ggrid)) == [each.tenant for each in (worse, severe, undecided, mild)]
    assert await store.find(Scope.of(mild.tenant, undecided.tenant), ggrid) == undecided
    assert list(await store.tenants_of(Scope.of(uuid4()), ggrid)) == []
    assert list(await store.tenants_of(ALL, uuid4())) == []
    places = {Cursor.of(row): row for row in rows}
    assert await store.find_many(ALL, [*places, Cursor(ggrid, uuid4()), Cursor(uuid4(), mild.tenant)]) == places
    assert await store.find_many(Scope.of(mild.tenant), [*places]) == {Cursor.of(mild): mild}
    assert await store.find_many(ALL, []) == await store.find_many(Scope.of(), [*places]) == {}


def made(decision: Decision, verdict: Verdict, ggrid: UUID) -> FinishedRequest:
    request = finished_request(ggrid=ggrid)
    judgement = replace(request.judgement, verdict=verdict)
    return replace(request, judgement=judgement, ruling=replace(request.ruling, decision=decision))


class WrongClock(datetime):
    """The clock of a host; `off` is how far it is ahead."""

    off = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + cls.off


@pytest.mark.parametrize("off", [timedelta(days=-4), timedelta(days=32)])
async def test_rows_wait_while_the_clock_of_their_host_is_wrong(
    off: timedelta, store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = finished_request()
    with monkeypatch.context() as patched:
        patched.setattr(WrongClock, "off", off)
        for module in (clock, partitions):
            patched.setattr(module, "datetime", WrongClock)
        with pytest.raises(StorageUnavailable, match="clocks of this host and of PostgreSQL differ"):
            await store.save(ALL, [request])
    assert (await store.save(ALL, [request])).stored == 1
