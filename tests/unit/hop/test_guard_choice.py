"""Which guard gets a message: the less loaded of two, none that fails, little for one that returns."""

import random
from collections import Counter
from typing import Any, cast

import pytest

from mailwarden.errors import CoreError, CoreUnreachable, EngineUnavailable, MailwardenError, Overloaded
from mailwarden.hop import guard_health
from mailwarden.hop.client import GuardClient
from mailwarden.hop.guard_choice import MAX_REJECTIONS, LeastLoadedOfTwo, RetryBudget
from mailwarden.hop.guards import Guard, GuardWatch
from mailwarden.hop.records import GuardStatus
from mailwarden.hop.transport import Died, Refused
from mailwarden.telemetry.metrics import Metrics


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def guard(number, busy=0, **changes):
    one = Guard(f"https://g{number}.example:9785", cast("Any", None))
    one.take_status(GuardStatus(f"g{number}", "1", busy, 10, (), database_up=True, scanning_enabled=True, **changes))
    return one


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def chooser(clock):
    return LeastLoadedOfTwo(random.Random(1), clock)


def first_choices(chooser, guards, count=1_000):
    return Counter(guards.index(next(chooser.order(guards))) for _ in range(count))


def test_the_less_loaded_of_two_guards_is_first(chooser):
    guards = [guard(0, 5), guard(1, 2)]
    assert first_choices(chooser, guards) == {1: 1_000}


def test_every_guard_is_asked_once(chooser):
    guards = [guard(n) for n in range(30)]
    order = list(chooser.order(guards))
    assert len(order) == 30
    assert set(map(id, order)) == set(map(id, guards))


def test_an_idle_guard_gets_at_most_twice_its_share(chooser):
    guards = [guard(0, 0), *(guard(n, 9) for n in range(1, 50))]
    assert first_choices(chooser, guards, 10_000)[0] <= 10_000 * 2 / 50 * 1.2


def test_a_guard_that_cannot_be_used_comes_last(chooser):
    guards = [guard(0, stopping=True), guard(1, 9), guard(2, 9)]
    assert all(list(chooser.order(guards))[-1] is guards[0] for _ in range(50))


def test_an_unreachable_guard_is_ejected_and_returns_slowly(chooser, clock):
    guards = [guard(n) for n in range(10)]
    chooser.note_failure(guards, guards[3], accepted=False)
    assert first_choices(chooser, guards)[3] == 0
    clock.now += guard_health.FIRST_EJECTION * 1.25
    assert 0 < first_choices(chooser, guards)[3] < 60
    clock.now += guard_health.SLOW_START_SECONDS
    assert first_choices(chooser, guards)[3] > 60


def test_of_two_guards_the_one_that_returns_gets_little(chooser, clock):
    guards = [guard(0, 9), guard(1)]
    guards[1].health.return_at(clock.now)
    assert first_choices(chooser, guards)[1] < 200, "though it has no load"


def test_a_guard_that_answers_while_ejected_returns_slowly_after_its_ejection():
    health = guard_health.Health()
    seconds = max(health.eject(0.0, 1.0) for _ in range(8))
    health.return_at(seconds / 3)
    assert health.share(seconds) == guard_health.FIRST_SHARE


def test_a_rejected_message_uses_guards_that_return_like_others(chooser, clock):
    guards = [*(guard(n, 9) for n in range(6)), *(guard(n) for n in range(6, 10))]
    for each in guards[6:]:
        each.health.return_at(clock.now)
    first: Counter[bool] = Counter()
    second: Counter[bool] = Counter()
    for _ in range(1_000):
        order = chooser.order(guards)
        first[guards.index(next(order)) >= 6] += 1
        second[guards.index(next(order)) >= 6] += 1
    assert first[True] < 200
    assert second[True] > 500, "they have room, while the others are full"


def test_messages_that_fail_together_are_one_failure(chooser, clock):
    guards = [guard(n) for n in range(4)]
    for _ in range(2_000):
        chooser.note_failure(guards, guards[0], accepted=False)
    assert guards[0].health.is_ejected(clock.now)
    clock.now += guard_health.FIRST_EJECTION * 1.25
    assert not guards[0].health.is_ejected(clock.now)


def test_each_ejection_in_a_row_is_longer_up_to_a_limit():
    health = guard_health.Health()
    seconds = [health.eject(0.0, 1.0) for _ in range(8)]
    assert seconds == [1, 2, 4, 8, 16, 30, 30, 30]
    assert max(health.eject(0.0, 1.0) for _ in range(2_000)) == 30, "no overflow in a long outage"
    health.succeed()
    assert health.eject(0.0, 1.0) == 1


def test_a_guard_that_accepted_is_ejected_after_three_failures_in_a_row(chooser, clock):
    guards = [guard(n) for n in range(4)]
    for _ in range(2):
        chooser.note_failure(guards, guards[0], accepted=True)
    chooser.note_success(guards[0])
    for _ in range(2):
        chooser.note_failure(guards, guards[0], accepted=True)
    assert not guards[0].health.is_ejected(clock.now)
    chooser.note_failure(guards, guards[0], accepted=True)
    assert guards[0].health.is_ejected(clock.now)


@pytest.mark.parametrize(("count", "ejected"), [(1, 0), (2, 1), (3, 1), (10, 5)])
def test_at_most_half_of_the_guards_are_ejected(chooser, clock, count, ejected):
    guards = [guard(n) for n in range(count)]
    for each in guards:
        chooser.note_failure(guards, each, accepted=False)
    assert sum(each.health.is_ejected(clock.now) for each in guards) == ejected
    assert len(list(chooser.order(guards))) == count


def test_the_budget_allows_a_part_of_an_attempt_for_each_message():
    budget = RetryBudget(per_message=0.25, reserve=2.0)
    assert [budget.take(1) for _ in range(3)] == [True, True, False]
    for _ in range(3):
        budget.add_message()
    assert not budget.take(1)
    budget.add_message()
    assert budget.take(1)


class Stub:
    """An attempt that fails with one error, and counts its calls."""

    def __init__(self, error):
        self.error = error
        self.calls = 0

    async def attempt(self):
        self.calls += 1
        raise self.error


async def ask_all(stubs, budget=None):
    guards = [guard(n) for n in range(len(stubs))]
    client = GuardClient(GuardWatch(guards), Metrics(), budget=budget)
    with pytest.raises(MailwardenError) as caught:
        await client._try_guards(lambda each: stubs[guards.index(each)].attempt())
    return caught.value, guards


async def test_a_rejected_message_asks_few_of_many_guards():
    stubs = [Stub(Refused(Overloaded("full", retry_after=3))) for _ in range(30)]
    error, _ = await ask_all(stubs)
    assert isinstance(error, Overloaded)
    assert sum(stub.calls for stub in stubs) == MAX_REJECTIONS


async def test_a_rejected_message_asks_no_other_without_a_budget():
    stubs = [Stub(Refused(Overloaded("full", retry_after=3))) for _ in range(5)]
    await ask_all(stubs, RetryBudget(per_message=0.0, reserve=1.0))
    assert sum(stub.calls for stub in stubs) == 2


async def test_unreachable_guards_need_no_budget():
    stubs = [Stub(Refused(CoreUnreachable("down"))) for _ in range(20)]
    error, _ = await ask_all(stubs, RetryBudget(per_message=0.0, reserve=0.0))
    assert isinstance(error, CoreUnreachable)
    assert sum(stub.calls for stub in stubs) == 20


async def test_two_guards_at_most_see_a_message_that_fails():
    stubs = [Stub(Died(CoreError("?"), "wrong result")) for _ in range(20)]
    await ask_all(stubs)
    assert sum(stub.calls for stub in stubs) == 2


async def test_few_of_many_guards_analyze_a_message_that_none_can_finish():
    stubs = [Stub(Refused(EngineUnavailable("?"))) for _ in range(20)]
    _, guards = await ask_all(stubs)
    assert sum(stub.calls for stub in stubs) == MAX_REJECTIONS
    assert not any(each.health.is_ejected(0.0) for each in guards)
