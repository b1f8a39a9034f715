"""The simulation of many guards in its shortest form: the goals of abby's choice, and the same result for a seed."""

import asyncio
import functools
import itertools
import logging
import math
import random

import pytest
import structlog

from mailwarden.abby.guards import GuardWatch
from simulate import clock
from simulate.__main__ import conclude, ideal_p99
from simulate.goals import MAX_RECOVERY, Goal, goals_of, same_answers
from simulate.guards import GuardSize, KilledError, Processes, SimulatedGuard
from simulate.policies import ABBY, POLICIES, WITHOUT_BUDGET
from simulate.results import Answer, Message, Result, central_queue, percentile
from simulate.scenarios import (
    KILLED,
    LOSS,
    OVERLOAD,
    PARTITION,
    SLOW,
    STEADY,
    WARM_UP,
    Fleet,
    Scenario,
    make_messages,
    simulate,
)

TINY = Fleet(12, 3)
TINIEST = Fleet(6, 2)
SEED = 5


@pytest.fixture(autouse=True)
def without_logs():
    """Log nothing: an overloaded fleet logs each rejection."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)


def test_the_clock_jumps_to_the_next_timer():
    async def wait():
        seen: list[float] = []
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(later(seconds, seen) for seconds in (3_600.0, 10.0, 20.0)))
        return seen, loop.time()

    async def later(seconds, seen):
        await asyncio.sleep(seconds)
        seen.append(seconds)

    seen, now = clock.run(wait())
    assert seen == [10.0, 20.0, 3_600.0]
    assert now == pytest.approx(3_600.0)


def test_a_wait_without_end_is_an_error():
    async def wait():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="deadlock"):
        clock.run(wait())


def note_time(loop, moments):
    moments.append(loop.time())


def test_abbys_that_start_together_ask_for_the_status_at_different_moments():
    async def ask():
        asked: list[list[float]] = [[], []]
        loop = asyncio.get_running_loop()
        watches = [GuardWatch([], random.Random(number)) for number in range(2)]
        for watch, moments in zip(watches, asked, strict=True):
            await watch.start(functools.partial(note_time, loop, moments))
        await asyncio.sleep(20.0)
        for watch in watches:
            await watch.stop()
        return asked

    first, second = clock.run(ask())
    assert first[0] == second[0] == 0.0
    assert all(16 <= len(each) <= 26 for each in (first, second))
    assert all(0.0 < late - early <= 1.25 for each in (first, second) for early, late in itertools.pairwise(each))
    assert not set(first[1:]) & set(second[1:])


def test_the_central_queue_serves_in_the_order_of_arrival():
    messages = [Message(0.0, 0, 1.0), Message(0.0, 0, 2.0), Message(0.5, 0, 1.0)]
    assert [round(each.end, 3) for each in central_queue(messages, 2)] == [1.001, 2.001, 2.001]


def test_the_mean_work_gives_the_capacity():
    messages = make_messages(Fleet(50, 5), STEADY, SEED)
    assert sum(each.work for each in messages) / len(messages) == pytest.approx(0.1, rel=0.03)
    assert Fleet(50, 5, GuardSize(4, 8)).capacity == 2_000


@pytest.mark.parametrize("scenario", [STEADY, OVERLOAD, KILLED], ids=lambda each: each.name)
def test_abby_reaches_the_goals(scenario):
    short = Scenario(
        scenario.name, scenario.load, min(scenario.seconds, 4.0 if scenario is KILLED else 2.0), scenario.events
    )
    result = simulate(TINY, short, ABBY, SEED)
    goals = list(goals_of(scenario, result, ideal_p99(TINY, short, SEED)))
    assert [goal.line for goal in goals if not goal.reached] == []
    assert len(goals) > 2


def test_the_same_seed_gives_the_same_answers():
    short = Scenario("short", 0.8, 1.0)
    first, again, other = (simulate(TINY, short, ABBY, seed).digest for seed in (SEED, SEED, SEED + 1))
    assert first == again
    assert first != other


def test_every_policy_answers_every_message():
    short = Scenario("short", 1.2, 0.5)
    for policy in POLICIES:
        assert simulate(TINIEST, short, policy, SEED).unanswered == 0


def test_retries_without_a_budget_multiply_the_attempts():
    short = Scenario("short", 3.0, 0.5)
    limited, unlimited = (simulate(TINIEST, short, policy, SEED) for policy in (ABBY, WITHOUT_BUDGET))
    assert limited.attempts_per_message < 1.6
    assert unlimited.attempts_per_message > 2 * limited.attempts_per_message


def test_every_failed_message_has_a_reason():
    result = simulate(TINIEST, Scenario("short", 3.0, 0.5), ABBY, SEED)
    assert sum(result.reasons.values()) == result.failed > 0
    assert set(result.reasons) <= {"retry budget empty", "rejected by 8 guards", "overloaded"}
    assert 0.0 <= result.free_room < 0.5
    assert result.least_capacity == 1.0


def test_a_message_that_leaves_or_is_killed_gives_its_slot_to_the_next():
    async def work():
        processes = Processes(GuardSize(slots=1, maximum=4), random.Random(1))
        first, second, third = (asyncio.create_task(processes.process(lambda: 1.0)) for _ in range(3))
        await asyncio.sleep(0.5)
        second.cancel()
        await asyncio.wait([first, third])
        ended = asyncio.get_running_loop().time()
        fourth = asyncio.create_task(processes.process(lambda: 1.0))
        await asyncio.sleep(0.5)
        processes.kill()
        await asyncio.wait([fourth])
        await processes.process(lambda: 1.0)
        return ended, fourth.exception(), processes.admission.in_processing, asyncio.get_running_loop().time()

    ended, killed, left, now = clock.run(work())
    assert (ended, left, now) == (2.0, 0, 3.5)
    assert isinstance(killed, KilledError)


def test_a_second_run_that_differs_misses_its_goal():
    one, other = result_of(Answer(0.0, 0.1, "")), result_of(Answer(0.0, 0.2, ""))
    assert same_answers(one, one).reached
    assert not same_answers(one, other).reached
    assert not same_answers(one, result_of()).reached


@pytest.mark.parametrize(
    ("reached", "status", "line"), [([True], 0, "ok"), ([True, False], 1, "FAILED"), ([], 1, "FAILED")]
)
def test_the_last_line_says_whether_all_goals_are_reached(capsys, reached, status, line):
    assert conclude("a run", [Goal("a goal", 1.0, each) for each in reached]) == status
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"simulate {line}: a run, ")


def result_of(*answers):
    return Result(answers, len(answers), 0, 1.0, 0.0, 10.0, (), 1.0)


def test_recovery_ends_with_the_last_bad_second():
    good = [Answer(second + 0.5, second + 0.6, "") for second in range(10)]
    assert result_of(*good).recovery(2.0) == 0
    assert result_of(*good, Answer(5.2, 5.3, "overloaded")).recovery(2.0) == 4
    assert result_of(*good, Answer(5.2, 9.0, "")).recovery(2.0) == 4


def test_a_fleet_that_has_not_recovered_at_the_end_misses_the_goal():
    bad = [Answer(LOSS + second + 0.5, LOSS + second + 0.6, "core_unreachable") for second in range(5)]
    assert result_of(*bad).recovery(LOSS) == math.inf
    for scenario in (PARTITION, KILLED):
        assert WARM_UP + scenario.seconds > LOSS + MAX_RECOVERY  # the load goes on for longer than the goal
        assert not all(goal.reached for goal in goals_of(scenario, result_of(*bad), 1.0))


@pytest.mark.parametrize("scenario", [STEADY, SLOW], ids=lambda each: each.name)
def test_a_message_that_failed_misses_the_goal(scenario):
    answers = [Answer(1.0, 1.1, ""), Answer(2.0, 2.1, "overloaded")]
    missed = [goal.text for goal in goals_of(scenario, result_of(*answers), 1.0) if not goal.reached]
    assert "messages that failed, none" in missed


@pytest.mark.parametrize(("attempts", "at_one"), [([5.0], 10.0), ([1.0, 3.0, 5.0, 7.0, 9.0], 1.0)])
async def test_all_messages_at_one_guard_that_returns_are_a_herd_there(attempts, at_one):
    guards = [SimulatedGuard(f"g{n}", GuardSize(), random.Random(n)) for n in range(20)]
    for guard in guards[:10]:
        guard.returned.append(0.0)
    for place in attempts:
        guards[0].attempts += [place] * round(at_one * 10)
    result = Result([], 0, 0, 1.0, 0.0, 10.0, guards, offered=100.0)
    assert result.herd_at_one == at_one


def test_a_percentile_is_one_of_the_values():
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([], 0.5) == 0.0
