"""`make check-long ONLY=fleet`: 2 abbys, 4 guards, their databases in network namespaces, load and faults by seed."""

import argparse
import os
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from tests.faults.delivery_check import CopySink
from tests.fleet.checks import Result, check, check_again, drain, figures
from tests.fleet.faults import Injected, inject
from tests.fleet.loads import FleetLoad, Rate, make_writer
from tests.fleet.namespaces import contain, run
from tests.fleet.schedule import Planned, plan, short_plan
from tests.fleet.start import running_fleet, say
from tests.fleet.topology import Fleet, Size
from tests.fleet.totals import Totals, describe
from workshop.rig.process import RigError

INSIDE = "MAILWARDEN_FLEET_INSIDE"
DELAY = 20.0  # milliseconds of every frame between two hosts
WARM_SECONDS = 2.0
SHORT_SIZE, SHORT_RATE = Size(guards=2, redis=0, clickhouse=0), Rate(patience=5.0)
DROPPED = "mailwarden_history_dropped_total"


def main() -> int:
    arguments = _arguments()
    if os.environ.get(INSIDE) != "1":
        try:
            contain([sys.executable, "-m", "tests.fleet", *sys.argv[1:]], {INSIDE: "1"})
        except RigError as error:
            say(f"make check-long ONLY=fleet: {error}")
            return 1
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run("ip", "link", "set", "lo", "up")
    seeds = deque((1,) if arguments.short else _seeds(arguments.seeds))
    totals = Totals()
    while seeds:
        run_fleet(seeds, totals, short=arguments.short)
    late = [each.failures for each in totals.ends if each.failures]
    if late:
        say(f"FAILED at the end, after all schedules: {late}")
    say(str(totals))
    return 1 if totals.failed or late else 0


def run_fleet(seeds: deque[int], totals: Totals, *, short: bool) -> None:
    """Start a fleet and run schedules on it, to the last one or to one that leaves the fleet in an unknown state."""
    size, rate = (SHORT_SIZE, SHORT_RATE) if short else (Size(), Rate())
    seed = seeds[0]
    try:
        with CopySink("0.0.0.0") as sink, running_fleet(size, DELAY, sink.port) as fleet:
            key, names = make_writer(fleet), tuple(fleet.components)
            loads: list[FleetLoad] = []
            while seeds:
                seed = seeds[0]
                planned = short_plan(names) if short else plan(seed, names)
                loads.append(FleetLoad(fleet, key, sink, seed, rate))
                totals.add(seed, *run_seed(fleet, loads[-1], seed, planned))
                seeds.popleft()
            totals.add_end(check_again(fleet, loads))
    except Exception:
        say(f"seed {seed} FAILED, and was not compared: {traceback.format_exc()}")
        totals.stopped.append(seed)
        if seeds and seeds[0] == seed:
            seeds.popleft()


def run_seed(fleet: Fleet, load: FleetLoad, seed: int, planned: Sequence[Planned]) -> tuple[Result, list[Injected]]:
    """Run one schedule under load, check everything, and print a line."""
    began, since = time.monotonic(), datetime.now(UTC).replace(microsecond=0)
    before = sum(figures(fleet, DROPPED))
    with load.running():
        time.sleep(WARM_SECONDS)
        injected = [inject(fleet, each, load) for each in planned]
        time.sleep(WARM_SECONDS)
    drained = drain(fleet)
    dropped = int(sum(figures(fleet, DROPPED)) - before)
    result = check(fleet, load, since, max(0, dropped))
    faulty = ", ".join(map(str, injected)) or "no fault"
    took = f"queues and journals empty after {drained:.1f} s; {time.monotonic() - began:.0f} s"
    say(f"seed {seed}: {faulty}; {describe(result)}; {took}")
    for name, value in result.failures.items():
        say(f"seed {seed} FAILED: {name}: {value}")
    for each in injected:
        if not each.in_time:
            say(f"seed {seed} FAILED: too long without scans, list changes or rows of history: {each}")
    return result, injected


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("--seeds", default="1-30", help="seeds, such as 1-30 or 4,9 (default: %(default)s)")
    parser.add_argument("--short", action="store_true", help="a small fleet and one fault of each kind, for CI")
    return parser.parse_args()


def _seeds(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


if __name__ == "__main__":
    sys.exit(main())
