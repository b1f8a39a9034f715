"""`make simulate`: abby's choice of guards with the real code on a simulated clock, compared with other ways."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence

import structlog

from simulate.goals import Goal, goals_of
from simulate.policies import ABBY, POLICIES
from simulate.results import Result, central_queue, percentile
from simulate.scenarios import (
    ALL,
    MEAN_WORK,
    OVERLOAD,
    ROLLING,
    STEADY,
    WARM_UP,
    Fleet,
    Scenario,
    make_messages,
    simulate,
)

SHORT, FULL = Fleet(40, 8), Fleet(350, 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m simulate --full --seed 7")
    parser.add_argument("--full", action="store_true", help="350 guards and 20 abbys (default: 40 and 8)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same result (default: 1)")
    parser.add_argument("--only", metavar="TEXT", default="", help="only scenarios whose name has this text")
    parser.add_argument(
        "--no-comparison",
        action="store_true",
        help="only abby's own choice; the comparison of --full has the load of 0.8 alone",
    )
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    fleet = FULL if arguments.full else SHORT
    size = fleet.size
    print(
        f"{fleet.guards} guards, {fleet.abbys} abbys, seed {arguments.seed}; a guard has {size.slots} slots and "
        f"rejects at {size.maximum} messages; mean work {MEAN_WORK * 1000:.0f} ms; capacity "
        f"{fleet.capacity:,.0f} messages/s"
    )
    chosen = [each for each in ALL if arguments.only in each.name]
    missed = [goal for each in chosen for goal in _run_abby(fleet, each, arguments.seed) if not goal.reached]
    if not arguments.no_comparison:
        compared = (STEADY,) if arguments.full else (STEADY, OVERLOAD, ROLLING)
        for scenario in compared:
            if scenario in chosen:
                _compare(fleet, scenario, arguments.seed)
    print(f"simulate {len(chosen)} scenarios, {len(missed)} goals missed")
    return 1 if missed else 0


def _run_abby(fleet: Fleet, scenario: Scenario, seed: int) -> Sequence[Goal]:
    started = time.perf_counter()
    result = simulate(fleet, scenario, ABBY, seed)
    goals = list(goals_of(scenario, result, ideal_p99(fleet, scenario, seed)))
    print(f"\n{scenario.name}: {result.messages:,} messages, {time.perf_counter() - started:.0f} s, {result.digest}")
    print(f"  {_figures(result)}")
    for goal in goals:
        print(f"  {goal.line}", flush=True)
    return goals


def ideal_p99(fleet: Fleet, scenario: Scenario, seed: int) -> float:
    """Return the 99th percentile of one central queue for the same messages."""
    answers = central_queue(make_messages(fleet, scenario, seed), fleet.guards * fleet.size.slots)
    return percentile([each.seconds for each in answers if each.arrival >= WARM_UP], 0.99)


def _compare(fleet: Fleet, scenario: Scenario, seed: int) -> None:
    ideal = ideal_p99(fleet, scenario, seed)
    print(f"\n{scenario.name}, the same messages; p99 of a central queue {ideal * 1000:.0f} ms")
    for policy in POLICIES:
        print(f"  {policy.name:<34}{_figures(simulate(fleet, scenario, policy, seed))}", flush=True)


def _figures(result: Result) -> str:
    failed = sum(result.errors.values()) / max(1, len(result.counted))
    herd = f"  herd {result.herd:.2f}" if result.herd else ""
    p50, p99 = (result.latency(share) * 1000 for share in (0.5, 0.99))
    return (
        f"goodput {result.goodput:.3f}  p50 {p50:4.0f} ms  p99 {p99:5.0f} ms  "
        f"failed {failed:6.2%}  attempts {result.attempts_per_message:.2f}{herd}"
    )


if __name__ == "__main__":
    sys.exit(main())
