"""Every history store counts whole days for reports, and the attacks between two times, within a scope."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
import pytest

from mailwarden.history.clickhouse import figures
from mailwarden.history.postgresql import attacked as attacked_module
from mailwarden.history.postgresql import days as days_module
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import CampaignIds, FinishedRequest
from mailwarden.model.scope import Scope
from tests.contracts.conftest import OpenStore
from tests.contracts.test_history_statistics import ACME, ALL, OTHER, attack, message

TODAY = datetime.now(UTC).date()
DAY = timedelta(days=1)


def on_day(days: int, tenant: UUID = ACME, decision: Decision = Decision.DELIVER) -> FinishedRequest:
    """Return a message of the noon so many days ago."""
    noon = datetime.combine(TODAY - days * DAY, datetime.min.time(), UTC) + timedelta(hours=12)
    return message(datetime.now(UTC) - noon, tenant, decision)


async def test_a_day_is_counted_when_it_has_ended(open_store: OpenStore) -> None:
    store = open_store()
    await store.save(ALL, [on_day(1), on_day(1, decision=Decision.QUARANTINE), on_day(2, OTHER), message(timedelta(0))])
    await store.update_rollups(ALL)
    figures = await store.days(Scope.of(ACME), TODAY - 3 * DAY, TODAY + DAY)
    assert figures.counted == {TODAY - 3 * DAY, TODAY - 2 * DAY, TODAY - DAY}, "also days without a message"
    assert figures.days == {
        TODAY - DAY: {"decision:deliver": 1, "decision:quarantine": 1, "verdict:phishing": 2},
    }
    assert (await store.days(ALL, TODAY - 3 * DAY, TODAY)).total("verdict:phishing") == 3
    assert (await store.days(Scope.of(ACME), TODAY - 3 * DAY, TODAY - DAY)).days == {}, "the end is excluded"


async def test_days_of_other_tenants_are_not_shown(open_store: OpenStore) -> None:
    store = open_store()
    await store.save(ALL, [on_day(1), on_day(1, OTHER)])
    await store.update_rollups(ALL)
    for scope, messages in ((Scope.of(ACME), 1), (Scope.of(ACME, OTHER), 2), (ALL, 2)):
        assert (await store.days(scope, TODAY - DAY, TODAY)).total("decision:deliver") == messages
    for nobody in (Scope.of(), Scope.of(uuid4()), Scope.of(UUID(int=0))):
        assert (await store.days(nobody, TODAY - DAY, TODAY)).days == {}


async def test_a_late_message_is_counted_in_its_day(open_store: OpenStore) -> None:
    store = open_store()
    await store.save(ALL, [on_day(3)])
    await store.update_rollups(ALL)
    await store.save(ALL, [on_day(3), on_day(5)])
    for _ in range(2):
        await open_store().update_rollups(ALL)
        figures = await store.days(Scope.of(ACME), TODAY - 7 * DAY, TODAY)
        assert {day: counts["decision:deliver"] for day, counts in figures.days.items()} == {
            TODAY - 3 * DAY: 2,
            TODAY - 5 * DAY: 1,
        }


async def test_a_day_whose_hours_are_deleted_keeps_its_figures(open_store: OpenStore) -> None:
    store = open_store()
    await store.save(ALL, [on_day(7)])
    await store.update_rollups(ALL)
    await store.save(ALL, [on_day(8)])  # its midnight is older than the hours that are kept
    await store.update_rollups(ALL)
    figures = await store.days(Scope.of(ACME), TODAY - 9 * DAY, TODAY)
    assert list(figures.days) == [TODAY - 7 * DAY]
    assert TODAY - 8 * DAY not in figures.counted, "a part of a day is no figure"


async def test_old_days_are_forgotten(open_store: OpenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store()
    await store.save(ALL, [on_day(1), on_day(4)])
    await store.update_rollups(ALL)
    monkeypatch.setattr(days_module, "DAY_RETENTION", timedelta(days=3))
    await store.save(ALL, [on_day(2)])  # late, so that there is something to count
    await store.update_rollups(ALL)
    assert min((await store.days(ALL, TODAY - 7 * DAY, TODAY)).counted) == TODAY - 3 * DAY


def of_campaign(
    own: UUID, tenant: UUID = ACME, subject: str = "Invoice", age: timedelta = timedelta(hours=2)
) -> FinishedRequest:
    base = attack(("ann@corp.example",), tenant=tenant, age=age)
    summary = msgspec.structs.replace(base.summary, subject=subject)
    return msgspec.structs.replace(base, summary=summary, campaign=CampaignIds(own, UUID(int=9)))


async def test_the_largest_campaigns_of_attacks_have_the_newest_subject(open_store: OpenStore) -> None:
    large, small, single, foreign = (uuid4() for _ in range(4))
    now, hour = datetime.now(UTC), timedelta(hours=1)
    store = open_store()
    harmless = msgspec.structs.replace(of_campaign(single), judgement=msgspec.structs.replace(
        of_campaign(single).judgement, verdict=Verdict.CLEAN))  # fmt: skip
    await store.save(
        ALL,
        [
            *(of_campaign(large, subject=f"Invoice {number}", age=number * hour) for number in (4, 3, 2)),
            *(of_campaign(small) for _ in range(2)),
            of_campaign(single),
            harmless,
            *(of_campaign(foreign, OTHER) for _ in range(9)),
            *(of_campaign(small, age=timedelta(days=3)) for _ in range(9)),
        ],
    )
    found = await store.attacked_between(Scope.of(ACME), now - 24 * hour, now)
    assert [(each.campaign, each.subject, each.messages) for each in found.campaigns] == [
        (large, "Invoice 2", 3),
        (small, "Invoice", 2),
    ]
    assert found.recipients == (("ann@corp.example", 6),)
    assert (await store.attacked_between(Scope.of(ACME), now - 96 * hour, now - 48 * hour)).campaigns[0].messages == 9
    assert (await store.attacked_between(Scope.of(), now - 24 * hour, now)).campaigns == ()


async def test_attacks_that_cannot_be_counted_in_time_are_incomplete(
    open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_store().save(ALL, [attack(("ann@corp.example",))])
    slow = attacked_module._ATTACKED.replace("SELECT kind, value,", "SELECT pg_sleep(9)::text, kind, value,")
    assert slow != attacked_module._ATTACKED
    monkeypatch.setattr(attacked_module, "_ATTACKED", slow)
    monkeypatch.setattr(attacked_module, "SECONDS", 1)
    slow = figures._ATTACKED.replace("AND verdict", "AND sleepEachRow(2) = 0 AND verdict")
    assert slow != figures._ATTACKED
    monkeypatch.setattr(figures, "_ATTACKED", slow)
    monkeypatch.setattr(figures, "ATTACKED_SECONDS", 1)
    now = datetime.now(UTC)
    found = await open_store().attacked_between(ALL, now - DAY, now)
    assert (found.recipients, found.complete) == ((), False)


async def test_today_is_counted_up_to_now_within_the_scope(open_store: OpenStore) -> None:
    store = open_store()
    now = message(timedelta(0))
    await store.save(ALL, [now, message(timedelta(0), OTHER), on_day(1)])
    for _ in range(2):  # before and after the rollups
        assert await store.today(Scope.of(ACME)) == {"decision:deliver": 1, "verdict:phishing": 1}
        assert (await store.today(ALL))["decision:deliver"] == 2
        assert await store.today(Scope.of()) == {}
        await store.update_rollups(ALL)
