"""`make test-fleet`: 2 abbys, 4 guards and their databases in network namespaces, under load and faults by seed."""

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence

from rig.process import RigError
from tests.faults.delivery_check import CopySink
from tests.fleet.checks import Result, check, drain, figures
from tests.fleet.faults import Injected, inject
from tests.fleet.loads import FleetLoad, Rate, make_writer
from tests.fleet.namespaces import contain, run
from tests.fleet.schedule import Planned, plan, short_plan
from tests.fleet.start import running_fleet, say
from tests.fleet.topology import Fleet, Size

INSIDE = "MAILWARDEN_FLEET_INSIDE"
DELAY = 20.0  # milliseconds of every frame between two hosts
WARM_SECONDS = 2.0
SHORT_SIZE, SHORT_RATE = Size(guards=2, redis=0), Rate(patience=5.0)
DROPPED = "mailwarden_history_dropped_total"


def main() -> int:
    arguments = _arguments()
    if os.environ.get(INSIDE) != "1":
        try:
            contain([sys.executable, "-m", "tests.fleet", *sys.argv[1:]], {INSIDE: "1"})
        except RigError as error:
            say(f"make test-fleet: {error}")
            return 1
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run("ip", "link", "set", "lo", "up")
    size, rate = (SHORT_SIZE, SHORT_RATE) if arguments.short else (Size(), Rate())
    results: list[Result] = []
    times: list[Injected] = []
    with CopySink("0.0.0.0") as sink, running_fleet(size, DELAY, sink.port) as fleet:
        key, names = make_writer(fleet), tuple(fleet.components)
        for seed in (1,) if arguments.short else _seeds(arguments.seeds):
            planned = short_plan(names) if arguments.short else plan(seed, names)
            result, injected = run_seed(fleet, FleetLoad(fleet, key, sink, seed, rate), seed, planned)
            results.append(result)
            times += injected
    late = [each for each in times if not each.in_time]
    for each in late:
        say(f"too long without scans or list changes: {each}")
    say(_total(results, times))
    return 1 if late or any(result.failures for result in results) else 0


def run_seed(fleet: Fleet, load: FleetLoad, seed: int, planned: Sequence[Planned]) -> tuple[Result, list[Injected]]:
    """Run one schedule under load, check everything, and print a line."""
    began = time.monotonic()
    before = sum(figures(fleet, DROPPED))
    with load.running():
        time.sleep(WARM_SECONDS)
        injected = [inject(fleet, each, load) for each in planned]
        time.sleep(WARM_SECONDS)
    drain(fleet)
    dropped = int(sum(figures(fleet, DROPPED)) - before)
    result = check(fleet, load, max(0, dropped))
    faulty = ", ".join(map(str, injected)) or "no fault"
    say(f"seed {seed}: {faulty}; {describe(result)}; {time.monotonic() - began:.0f} s")
    for name, value in result.failures.items():
        say(f"seed {seed} FAILED: {name}: {value}")
    return result, injected


def describe(result: Result) -> str:
    return (
        f"{result.scans} scans, {result.lists} list changes, {result.mails} mails ({result.mail_repeated} repeated), "
        f"{result.rows} rows ({result.rows_dropped} dropped and counted); {result.lost} lost, "
        f"{result.rows_doubled} duplicated, {len(result.unfinished_clean)} clean without analysis"
    )


def _total(results: list[Result], times: list[Injected]) -> str:
    longest = (
        f"longest without scans {max(each.without_scans for each in times):.1f} s, "
        f"without list changes {max(each.without_lists for each in times):.1f} s, "
        f"until all is well {max(each.repaired for each in times):.1f} s; "
        if times
        else ""
    )
    return (
        f"{len(results)} schedules, {len(times)} faults, {sum(each.scans for each in results)} scans, "
        f"{sum(each.lists for each in results)} list changes, {sum(each.mails for each in results)} mails, "
        f"{sum(each.rows for each in results)} rows: {longest}"
        f"{sum(each.rows_doubled for each in results)} duplicated, "
        f"{sum(len(each.unfinished_clean) for each in results)} clean without analysis, "
        f"{sum(each.lost for each in results)} lost"
    )


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
