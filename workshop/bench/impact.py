"""`python -m workshop.bench.impact`: the estimated impact of an entry on 30 days of 5 million messages."""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import uvloop

from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.store import ListScope
from mailwarden.policy.impact import ImpactEstimator
from mailwarden.policy.rules import load_policy
from workshop.bench import history as made
from workshop.bench.made_database import made_database
from workshop.bench.search import ROWS, frequent, p95, rare

RUNS = 20
LARGE = next(iter(made.TENANTS))

Draw = Callable[[random.Random], str]


def entries() -> Mapping[str, tuple[str, Draw]]:
    """Return the cases by name: the list and a random entry."""
    seldom = rare(made.SENDERS)
    return {
        "sender, frequent": ("sender-block", lambda chosen: made.sender(frequent(chosen))[0]),
        "sender, rare": ("sender-allow", lambda chosen: made.sender(seldom(chosen))[0]),
        "domain of senders, frequent": ("sender-block", lambda chosen: made.sender(frequent(chosen))[1]),
        "network /16": ("ip-block", lambda chosen: f"10.{chosen.randrange(256)}.0.0/16"),
        "network /8": ("ip-block", lambda _: "10.0.0.0/8"),
        "recipients, 60 %": ("recipient-exempt", lambda _: "tenant0.example"),
        "host": ("url-block", lambda chosen: f"www{chosen.randrange(made.HOSTS)}.site.example"),
        "file": ("file-hash-block", lambda chosen: f"{chosen.getrandbits(256):064x}"),
        "subject, one word": ("subject-block", lambda chosen: chosen.choice(made.WORDS)),
        "subject, pattern": ("subject-block", lambda chosen: f"/{chosen.choice(made.WORDS)} [0-9]+/i"),
        "attachment": ("attachment-block", lambda _: ".exe"),
        "protected domain": ("protected-domains", lambda chosen: f"north{chosen.randrange(9)}.example"),
    }


async def measure(
    estimator: ImpactEstimator, scope: ListScope, name: str, draw: Draw, runs: int
) -> tuple[list[float], str]:
    """Return the milliseconds of each run, and the number of messages that the last one read."""
    chosen = random.Random(1)
    times, note = [], ""
    for _ in range(runs):
        entry = find_list(name).normalise(draw(chosen))
        began = time.perf_counter()
        impact = await estimator.estimate(scope, name, [entry])
        times.append((time.perf_counter() - began) * 1000)
        note = f"looked at {impact.looked_at:,} of {impact.total:,}" + (" sampled" if impact.is_sampled else "")
    return times, note


async def run(url: str, runs: int) -> Sequence[float]:
    database = Database(url)
    estimator = ImpactEstimator(open_history(database), EntryStore(database), load_policy())
    every: list[float] = []
    try:
        for place, scope in {"deployment": ListScope(), "tenant of 60 %": ListScope(LARGE)}.items():
            for what, (name, draw) in entries().items():
                times, note = await measure(estimator, scope, name, draw, runs)
                every += times
                p50 = statistics.median(times)
                print(f"{place:15} {what:28} p50 {p50:6.0f} ms  p95 {p95(times):6.0f} ms  {note}", flush=True)
    finally:
        await database.close()
    return every


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.impact --rows 200000"
    )
    parser.add_argument("--rows", type=int, default=ROWS, help="messages in history (%(default)s)")
    parser.add_argument("--runs", type=int, default=RUNS, help="previews of each kind (%(default)s)")
    arguments = parser.parse_args()
    with made_database(arguments.rows) as url:
        times = uvloop.run(run(url, arguments.runs))
    print(f"impact {arguments.rows / 1e6:g}M p95 {p95(times):.0f} ms, longest {max(times):.0f} ms")


if __name__ == "__main__":
    main()
