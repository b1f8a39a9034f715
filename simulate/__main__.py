"""`make simulate`: abby's choice of guards with the real code on a simulated clock, compared with other ways."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence

import structlog

from simulate.goals import Goal, goals_of, same_answers
from simulate.policies import ABBY, POLICIES
from simulate.results import Result, central_queue, percentile
from simulate.scenarios import (
    ALL,
    KILLED,
    MEAN_WORK,
    OVERLOAD,
    ROLLING,
    SLOW,
    STEADY,
    WARM_UP,
    Fleet,
    Scenario,
    make_messages,
    simulate,
)

SHORT, FULL = Fleet(40, 8), Fleet(350, 20)
COMPARED = (STEADY, OVERLOAD, ROLLING, SLOW, KILLED)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m simulate --full --seed 7")
    parser.add_argument("--full", action="store_true", help="350 guards and 20 abbys (default: 40 and 8)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same result (default: 1)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only scenarios whose name has this text")
    parser.add_argument("--no-comparison", action="store_true", help="only abby's own choice")
    parser.add_argument("--no-repeat", action="store_true", help="do not run each scenario a second time")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    fleet, seed = FULL if arguments.full else SHORT, arguments.seed
    size = fleet.size
    print(
        f"{fleet.guards} guards, {fleet.abbys} abbys, seed {seed}; a guard has {size.slots} slots and "
        f"rejects at {size.maximum} messages; mean work {MEAN_WORK * 1000:.0f} ms; capacity "
        f"{fleet.capacity:,.0f} messages/s"
    )
    chosen = [each for each in ALL if arguments.only in each.name]
    goals: list[Goal] = []
    figures: dict[str, str] = {}
    for scenario in chosen:
        reached, figures[scenario.name] = _run_abby(fleet, scenario, seed, again=not arguments.no_repeat)
        goals += reached
    for scenario in () if arguments.no_comparison else COMPARED:
        if scenario in chosen:
            _compare(fleet, scenario, seed, figures[scenario.name])
    return conclude(f"{fleet.guards} guards, seed {seed}, {len(chosen)} scenarios", goals)


def conclude(run: str, goals: Sequence[Goal]) -> int:
    """Print the last line, and return the exit status: 0 only if there were goals and all were reached."""
    missed = [goal for goal in goals if not goal.reached]
    if missed or not goals:
        print(f"\nsimulate FAILED: {run}, {len(missed)} of {len(goals)} goals missed")
        return 1
    print(f"\nsimulate ok: {run}, all {len(goals)} goals reached")
    return 0


def _run_abby(fleet: Fleet, scenario: Scenario, seed: int, *, again: bool) -> tuple[Sequence[Goal], str]:
    """Run a scenario with abby's choice; print and return its goals and figures."""
    started = time.perf_counter()
    result = simulate(fleet, scenario, ABBY, seed)
    goals = list(goals_of(scenario, result, ideal_p99(fleet, scenario, seed)))
    if again:
        goals.append(same_answers(result, simulate(fleet, scenario, ABBY, seed)))
    print(f"\n{scenario.name}: {result.messages:,} messages, {time.perf_counter() - started:.0f} s, {result.digest}")
    print(f"  {_figures(result)}")
    print(f"  least capacity {result.least_capacity:.2f}, load {scenario.load:.2f}")
    if result.failed:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in result.reasons.items())
        print(f"  {result.failed:,} failed: {reasons}; {result.free_room:.0%} of all places were free meanwhile")
    for goal in goals:
        print(f"  {goal.line}", flush=True)
    return goals, _figures(result)


def ideal_p99(fleet: Fleet, scenario: Scenario, seed: int) -> float:
    """Return the 99th percentile of one central queue for the same messages."""
    answers = central_queue(make_messages(fleet, scenario, seed), fleet.guards * fleet.size.slots)
    return percentile([each.seconds for each in answers if each.arrival >= WARM_UP], 0.99)


def _compare(fleet: Fleet, scenario: Scenario, seed: int, own: str) -> None:
    ideal = ideal_p99(fleet, scenario, seed)
    print(f"\n{scenario.name}, the same messages; p99 of a central queue {ideal * 1000:.0f} ms")
    for policy in POLICIES:
        figures = own if policy is ABBY else _figures(simulate(fleet, scenario, policy, seed))
        print(f"  {policy.name:<34}{figures}", flush=True)


def _figures(result: Result) -> str:
    failed = result.failed / max(1, len(result.counted))
    herd = f"  herd {result.herd:.2f} ({result.herd_at_one:.2f})" if result.herd else ""
    p50, p99 = (result.latency(share) * 1000 for share in (0.5, 0.99))
    return (
        f"goodput {result.goodput:.3f}  p50 {p50:4.0f} ms  p99 {p99:5.0f} ms  "
        f"failed {failed:6.2%}  attempts {result.attempts_per_message:.2f}{herd}"
    )


if __name__ == "__main__":
    sys.exit(main())
