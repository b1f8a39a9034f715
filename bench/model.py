"""`make bench-model`: predicts the messages a second of one and of two guards from CPU times, and measures them.

The model of `mailwarden size`: a message needs the sum of the CPU times of all processes. The cores of the machine
divide it, and no event loop can use more than one core. Each turn measures CPU times with one guard, predicts, and then
measures one and two guards with other messages, so that a change of the machine's speed affects all of it.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path

import uvloop

from bench.clients import ScanClient
from bench.cpu import Processes, run_counted, show_spread
from bench.load import run_load
from bench.messages import read_messages
from bench.variation import Variation
from mailwarden.serving.tls import client_context
from rig.engines import Engines, start_engines
from rig.product import Product, start_product
from rig.signatures import REALISTIC

DESCRIPTION = "Predict the messages a second of one and of two guards from CPU times, and measure them."
CONCURRENCY = 20
SPIN_SECONDS = 0.5
GOAL = 0.15
ABBY, GUARD = "abby", "guard"
LIMITS = {"maxGuardRequestsInProcessing": 64, "guardRequestThrottleThreshold": 64, "log": {"level": "warning"}}


def predict_rate(cores: float, cpu: Mapping[str, float], guards: int) -> float:
    """Return the messages a second; `cpu` has the milliseconds of each process a message."""
    by_cores = cores * 1_000 / sum(cpu.values())
    return min(by_cores, 1_000 / cpu[ABBY], guards * 1_000 / cpu[GUARD])


@dataclass(slots=True)
class Comparison:
    """Prediction and measurement of each turn for a number of guards."""

    predicted: list[float] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)

    @property
    def errors(self) -> list[float]:
        return [there / here - 1 for there, here in zip(self.predicted, self.measured, strict=True)]

    @property
    def error(self) -> float:
        return statistics.median(self.errors)


def _spin(seconds: float) -> float:
    """Return the CPU seconds that a busy process gets."""
    end = time.monotonic() + seconds
    began = time.process_time()
    while time.monotonic() < end:
        pass
    return time.process_time() - began


def available_cores(pool: Pool, count: int) -> float:
    """Return the cores that this machine gives to busy processes now; other work on it takes its share."""
    return sum(pool.map(_spin, [SPIN_SECONDS] * count, chunksize=1)) / SPIN_SECONDS


def count_processes(engines: Engines, one: Product, two: Product) -> Processes:
    """Name all servers, so that none of them counts as the client that started it."""
    roots = {"client": os.getpid(), **{server.name: server.pid for server in engines.servers}}
    roots |= {ABBY: one.abby.pid, GUARD: one.guards[0].pid, "abby of two": two.abby.pid}
    roots |= {f"guard {number} of two": guard.pid for number, guard in enumerate(two.guards, 1)}
    return Processes(roots, {GUARD: "workers", **{f"guard {n} of two": f"workers {n} of two" for n in (1, 2)}})


async def measure(
    engines: Engines, products: Sequence[Product], pool: Pool, rounds: int, count: int
) -> dict[tuple[str, int], Comparison]:
    one, two = products
    clients = {
        len(product.guards): [
            ScanClient("127.0.0.1", product.abby.port, client_context(product.ca), product.token)
            for _ in range(CONCURRENCY)
        ]
        for product in products
    }
    askers = {guards: [client.ask for client in each] for guards, each in clients.items()}
    processes, cores = count_processes(engines, one, two), os.cpu_count() or 1
    messages = {name: Variation(kind) for name, kind in read_messages(None).items()}
    for kind in messages.values():
        for each in askers.values():
            await run_load(each, kind.take(max(CONCURRENCY, count // 4)))  # warm up
    results = {(name, guards): Comparison() for name in messages for guards in askers}
    for turn in range(rounds):
        for name, kind in messages.items():
            available = available_cores(pool, cores)
            cpu = (await run_counted(askers[1], kind.take(count), processes)).cpu
            used = {process: milliseconds for process, milliseconds in cpu.items() if "of two" not in process}
            print(
                f"turn {turn + 1} {name:>4}: {available:.2f} cores, CPU {sum(used.values()):.1f} ms a message", end=""
            )
            for guards, each in askers.items():
                result = results[name, guards]
                result.predicted.append(predict_rate(available, used, guards))
                result.measured.append((await run_load(each, kind.take(count))).rate)
                figures = f"predicted {result.predicted[-1]:.1f}/s, measured {result.measured[-1]:.1f}/s"
                print(f"; guards: {guards}, {figures}", end="", flush=True)
            print()
    for client in (client for each in clients.values() for client in each):
        client.close()
    return results


def report(results: Mapping[tuple[str, int], Comparison]) -> None:
    print("\nMedian of the turns (lowest-highest), messages a second")
    for (name, guards), result in results.items():
        predicted, measured = show_spread(result.predicted, 1), show_spread(result.measured, 1)
        print(f"{name:>4}, guards: {guards}: predicted {predicted}, measured {measured}, error {result.error:+.1%}")
    worst = max(abs(result.error) for result in results.values())
    print(f"model error worst {worst:.1%} (goal: at most {GOAL:.0%})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=DESCRIPTION, epilog="Example: python -m bench.model --rounds 4 --count 300"
    )
    parser.add_argument("--rounds", type=int, default=4, help="turns of each size (default: %(default)s)")
    parser.add_argument("--count", type=int, default=300, help="messages of each part of a turn (default: %(default)s)")
    arguments = parser.parse_args()
    print(f"{CONCURRENCY} at once, {arguments.rounds} turns of {arguments.count} messages, {os.cpu_count()} cores")
    with (
        Pool(os.cpu_count() or 1) as pool,
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
        start_engines(signature_set=REALISTIC) as engines,
    ):
        urls = [engines.postgresql.create_database(name) for name in ("one", "two")]
        with (
            start_product(Path(first), engines, urls[0], guards=[LIMITS]) as one,
            start_product(Path(second), engines, urls[1], guards=[LIMITS, LIMITS]) as two,
        ):
            report(uvloop.run(measure(engines, (one, two), pool, arguments.rounds, arguments.count)))


if __name__ == "__main__":
    main()
