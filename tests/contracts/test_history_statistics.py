"""Every history store counts its messages for the dashboard within a scope."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.database.pool import Connection, Database
from mailwarden.errors import StorageUnavailable
from mailwarden.history.clickhouse import figures
from mailwarden.history.postgresql import attacked as attacked_module
from mailwarden.history.postgresql import statistics as statistics_module
from mailwarden.history.store import Range
from mailwarden.model.ggrid import first_ggrid, new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Scope
from tests.contracts.conftest import OpenStore
from tests.contracts.test_history_store import WrongClock
from tests.samples.finished import finished_request

ALL = Scope.deployment()
ACME, OTHER = uuid4(), uuid4()


def message(
    age: timedelta, tenant: UUID = ACME, decision: Decision = Decision.DELIVER, milliseconds: float = 40
) -> FinishedRequest:
    created = datetime.now(UTC) - age
    ggrid = UUID(int=first_ggrid(created).int | (new_ggrid().int & ((1 << 62) - 1)))
    base = finished_request(tenant=tenant, ggrid=ggrid, created=created)
    return msgspec.structs.replace(
        base,
        completed=created + timedelta(milliseconds=milliseconds),
        ruling=msgspec.structs.replace(base.ruling, decision=decision),
    )


async def test_figures_are_the_same_before_and_after_rollups(
    open_store: OpenStore,
) -> None:
    requests = [message(timedelta(hours=hours)) for hours in range(1, 7)]
    requests += [message(timedelta(minutes=3), decision=Decision.QUARANTINE) for _ in range(4)]
    await open_store().save(ALL, requests)
    figures = []
    for _ in range(3):
        statistics = await open_store().statistics(ALL, Range.DAY)
        figures.append((statistics.decisions, statistics.verdicts, statistics.tags))
        assert statistics.messages == 10
        assert sum(bucket.messages for bucket in statistics.buckets) == 10
        await open_store().update_rollups(ALL)
    assert figures[0] == figures[1] == figures[2]
    assert figures[0][0][Decision.DELIVER] == 6
    assert figures[0][0][Decision.QUARANTINE] == 4
    assert figures[0][1][Verdict.PHISHING] == 10
    assert ("url.mismatch", 10) in figures[0][2]


@pytest.mark.parametrize("late", [timedelta(minutes=9), timedelta(hours=3), timedelta(hours=20)])
async def test_a_row_that_comes_late_is_counted_once(open_store: OpenStore, late: timedelta) -> None:
    store = open_store()
    await store.save(ALL, [message(timedelta(minutes=8))])
    await open_store().update_rollups(ALL)
    await store.save(ALL, [message(late)])
    await open_store().update_rollups(ALL)
    assert (await open_store().statistics(ALL, Range.DAY)).messages == 2
    await open_store().update_rollups(ALL)
    assert (await open_store().statistics(ALL, Range.DAY)).messages == 2


async def test_a_late_row_of_a_guard_whose_clock_is_behind_is_counted(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_store().save(ALL, [message(timedelta(minutes=8))])
    await open_store().update_rollups(ALL)
    late = message(timedelta(minutes=40))
    with monkeypatch.context() as patched:
        patched.setattr(WrongClock, "off", timedelta(minutes=-50))
        patched.setattr(statistics_module, "datetime", WrongClock)
        await open_store().save(ALL, [late])
    await open_store().update_rollups(ALL)
    assert (await open_store().statistics(ALL, Range.DAY)).messages == 2


async def test_a_lost_connection_keeps_the_mark_of_late_rows(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_store().save(ALL, [message(timedelta(minutes=8))])
    await open_store().update_rollups(ALL)
    await open_store().save(ALL, [message(timedelta(hours=3))])

    async def fail_over(connection: Connection, *given: object) -> None:
        await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    with monkeypatch.context() as patched:
        patched.setattr(statistics_module, "_roll_to", fail_over)
        with pytest.raises(StorageUnavailable):
            await open_store().update_rollups(ALL)
    await open_store().update_rollups(ALL)
    assert (await open_store().statistics(ALL, Range.DAY)).messages == 2


@pytest.mark.parametrize("step", ["_write_rolled_to", "count_days"])
async def test_a_row_that_comes_late_during_a_count_is_counted_by_the_next(
    step: str, open_store: OpenStore, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_store().save(ALL, [message(timedelta(minutes=8))])
    await open_store().update_rollups(ALL)
    await open_store().save(ALL, [message(timedelta(hours=5))])
    async with database.connection() as connection:  # so that there are new hours to count
        await connection.execute("UPDATE history_rolled SET rolled_to = rolled_to - interval '2 hours'")
    late, real = [message(timedelta(hours=4))], getattr(statistics_module, step)

    async def after_late_row(*given: object) -> object:
        await open_store().save(ALL, [late.pop()] if late else [])
        return await real(*given)

    monkeypatch.setattr(statistics_module, step, after_late_row)
    await open_store().update_rollups(ALL)
    assert (await open_store().statistics(ALL, Range.DAY)).messages == 2
    await open_store().update_rollups(ALL)
    assert (await open_store().statistics(ALL, Range.DAY)).messages == 3
    async with database.connection() as connection:
        assert await connection.fetchval("SELECT late_from FROM history_rolled") is None


async def test_a_scope_counts_only_its_own_messages(open_store: OpenStore) -> None:
    requests = [message(timedelta(hours=2), tenant) for tenant in (ACME, ACME, OTHER)]
    await open_store().save(ALL, [*requests, message(timedelta(seconds=5), OTHER)])
    for _ in range(2):
        assert (await open_store().statistics(Scope.of(ACME), Range.DAY)).messages == 2
        assert (await open_store().statistics(Scope.of(OTHER), Range.DAY)).messages == 2
        assert (await open_store().statistics(Scope.of(ACME, OTHER), Range.DAY)).messages == 4
        assert (await open_store().statistics(Scope.of(uuid4()), Range.DAY)).messages == 0
        assert (await open_store().statistics(Scope.of(), Range.DAY)).messages == 0
        assert (await open_store().statistics(Scope.of(UUID(int=0)), Range.DAY)).messages == 0
        await open_store().update_rollups(ALL)


async def test_a_range_excludes_older_messages(open_store: OpenStore) -> None:
    ages = (timedelta(minutes=20), timedelta(hours=5), timedelta(days=1, hours=12))
    await open_store().save(ALL, [message(age) for age in ages])
    for _ in range(2):
        assert [(await open_store().statistics(ALL, range_)).messages for range_ in Range] == [1, 2, 3]
        await open_store().update_rollups(ALL)


async def test_the_rate_covers_the_last_minute(open_store: OpenStore) -> None:
    fast = [message(timedelta(seconds=10), milliseconds=20) for _ in range(90)]
    slow = [message(timedelta(seconds=20), milliseconds=1_000) for _ in range(30)]
    await open_store().save(ALL, [*fast, *slow])
    statistics = await open_store().statistics(ALL, Range.HOUR)
    assert statistics.per_second == 2
    assert statistics.p50 == pytest.approx(20, rel=0.1)
    assert statistics.p95 == pytest.approx(1_000, rel=0.1)


async def test_figures_are_cached_for_a_moment(open_store: OpenStore) -> None:
    store = open_store()
    first = await store.statistics(ALL, Range.DAY)
    await open_store().save(ALL, [message(timedelta(seconds=1))])
    assert await store.statistics(ALL, Range.DAY) is first
    assert (await store.statistics(Scope.of(ACME), Range.DAY)).messages == 1


async def test_an_empty_history_has_no_figures(open_store: OpenStore) -> None:
    await open_store().update_rollups(ALL)
    statistics = await open_store().statistics(ALL, Range.WEEK)
    assert (statistics.messages, statistics.p50, statistics.p95, statistics.tags) == (0, None, None, ())
    assert len(statistics.buckets) == 42


@pytest.mark.parametrize("milliseconds", [1, 7, 333, 4_000, 60_000])
async def test_a_duration_is_accurate_to_nine_percent(open_store: OpenStore, milliseconds: float) -> None:
    await open_store().save(ALL, [message(timedelta(minutes=2), milliseconds=milliseconds)])
    assert (await open_store().statistics(ALL, Range.DAY)).p50 == pytest.approx(milliseconds, rel=0.09)


def attack(
    recipients: tuple[str, ...],
    sender: str = "mallory@evil.example",
    verdict: Verdict = Verdict.PHISHING,
    tenant: UUID = ACME,
    age: timedelta = timedelta(hours=2),
) -> FinishedRequest:
    base = message(age, tenant)
    return msgspec.structs.replace(
        base,
        envelope=msgspec.structs.replace(base.envelope, recipients=recipients),
        summary=msgspec.structs.replace(base.summary, from_address=sender),
        judgement=msgspec.structs.replace(base.judgement, verdict=verdict),
    )


async def test_attacks_are_counted_by_recipient_and_by_the_domain_of_the_sender(open_store: OpenStore) -> None:
    ann, bob = "ann@corp.example", "bob@corp.example"
    await open_store().save(
        ALL,
        [
            attack((ann, bob)),
            attack(("Ann@corp.example", ann), verdict=Verdict.FRAUD),  # one message to one person
            attack((ann,), "eve@mail.other.example", Verdict.MALWARE),
            attack((bob,), verdict=Verdict.CLEAN),
            attack((bob,), verdict=Verdict.SPAM),
            attack((bob,), age=timedelta(days=2)),
        ],
    )
    attacked = await open_store().attacked(ALL, Range.DAY)
    assert attacked.recipients == ((ann, 3), (bob, 1))
    assert attacked.senders == (("evil.example", 2), ("mail.other.example", 1))
    assert attacked.complete
    assert (await open_store().attacked(ALL, Range.WEEK)).recipients == ((ann, 3), (bob, 2))


async def test_attacks_on_other_tenants_are_not_counted(open_store: OpenStore) -> None:
    await open_store().save(
        ALL, [attack(("ann@corp.example",)), attack(("zoe@other.example",), "x@x.example", tenant=OTHER)]
    )
    assert (await open_store().attacked(Scope.of(ACME), Range.DAY)).recipients == (("ann@corp.example", 1),)
    assert (await open_store().attacked(Scope.of(OTHER), Range.DAY)).senders == (("x.example", 1),)
    for nobody in (Scope.of(uuid4()), Scope.of(), Scope.of(UUID(int=0))):
        assert not (await open_store().attacked(nobody, Range.DAY)).recipients


async def test_of_very_many_attacks_the_newest_are_counted(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attacked_module, "_ATTACKED", attacked_module._ATTACKED.replace("20000", "2"))
    for module in (attacked_module, figures):
        monkeypatch.setattr(module, "MOST_ATTACKS", 2)
    old = [attack((f"{number}@corp.example",), age=timedelta(hours=5)) for number in range(3)]
    await open_store().save(ALL, [*old, *(attack(("ann@corp.example",)) for _ in range(2))])
    attacked = await open_store().attacked(ALL, Range.DAY)
    assert attacked.recipients == (("ann@corp.example", 2),)
    assert not attacked.complete
