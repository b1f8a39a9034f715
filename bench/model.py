"""`make bench-model`: predicts the messages a second of one and of two guards from CPU times, and measures them.

The predictions are of the code of `mailwarden size`: a message needs the sum of the CPU times of all processes, and the
cores of the machine divide it. No event loop can use more than one core. Each turn measures CPU times with one guard,
predicts, and then measures one and two guards with other messages, so that a change of the machine's speed affects all
of it. A second prediction takes the shipped coefficients, and from the turn the CPU time of the client alone. The
command fails if the model with the CPU times of the turns misses its goal.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.pool import Pool
from pathlib import Path

import msgspec
import uvloop

from bench.clients import ScanClient
from bench.cpu import Processes, run_counted, show_spread
from bench.load import run_load
from bench.messages import read_messages
from bench.variation import Variation
from mailwarden.cli.capacity import (
    SECONDS_A_DAY,
    CapacityModel,
    CpuCost,
    CpuCosts,
    Demand,
    Prices,
    read_coefficients,
)
from mailwarden.serving.tls import client_context
from rig.engines import Engines, start_engines
from rig.product import Product, start_product
from rig.signatures import REALISTIC

DESCRIPTION = "Predict the messages a second of one and of two guards from CPU times, and measure them."
CONCURRENCY = 20
SPIN_SECONDS = 0.5
GOAL = 0.15
ABBY, GUARD, WORKERS, CLIENT, DATABASE = "abby", "guard", "workers", "client", "postgresql"
FRESH, SHIPPED = "fresh CPU times", "shipped coefficients"
FREE = Prices("EUR", 0, 0, 0, 0, 0)
LIMITS = {"maxGuardRequestsInProcessing": 64, "guardRequestThrottleThreshold": 64, "log": {"level": "warning"}}


def fresh_cpu(cpu: Mapping[str, float]) -> CpuCosts:
    """Return the costs of the model's roles from the milliseconds of each process; the client has no role."""
    engines = sum(cpu[name] for name in cpu.keys() - {ABBY, GUARD, WORKERS, CLIENT, DATABASE})
    return CpuCosts(
        abby=_cost(cpu[ABBY]),
        guard=_cost(cpu[GUARD] + cpu.get(WORKERS, 0.0)),
        engines=_cost(engines),
        database=_cost(cpu.get(DATABASE, 0.0)),
    )


def _cost(milliseconds: float) -> CpuCost:
    """Return a cost of this size of message; nothing measured counts as a microsecond."""
    value = max(milliseconds, 0.001)
    return CpuCost(at5k=value, at50k=value, source="this turn", date="2026-01", kind="measured")


def predict_rate(costs: CpuCosts, kilobytes: float, cores: float, cpu: Mapping[str, float], guards: int) -> float:
    """Return the messages a second by the capacity model with these costs and the client beside it.

    `cpu` has the milliseconds of each process: those of the client, and of the event loop of a guard without workers.
    """
    shipped = read_coefficients()
    demand = Demand(
        messages_per_day=SECONDS_A_DAY, average_kb=kilobytes, retention_days=1, quarantine_days=1, peak_factor=1,
        utilisation=1, quarantine_share=0, event_days=1, event_share=0,
    )  # fmt: skip
    model = CapacityModel(demand, msgspec.structs.replace(shipped, cpu=costs), FREE)
    all_costs = costs.abby, costs.guard, costs.engines, costs.database, _cost(cpu[CLIENT])
    loops = model.rate(1.0, costs.abby), guards * model.rate(1.0, _cost(cpu[GUARD]))
    return min(model.rate(cores, *all_costs), *loops)


@dataclass(slots=True)
class Comparison:
    """Both predictions and the measurement of each turn for a number of guards."""

    predicted: dict[str, list[float]] = field(default_factory=lambda: {FRESH: [], SHIPPED: []})
    measured: list[float] = field(default_factory=list)

    def errors(self, way: str) -> list[float]:
        return [there / here - 1 for there, here in zip(self.predicted[way], self.measured, strict=True)]

    def error(self, way: str) -> float:
        return statistics.median(self.errors(way))


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
    roots = {CLIENT: os.getpid(), **{server.name: server.pid for server in engines.servers}}
    roots |= {ABBY: one.abby.pid, GUARD: one.guards[0].pid, "abby of two": two.abby.pid}
    roots |= {f"guard {number} of two": guard.pid for number, guard in enumerate(two.guards, 1)}
    return Processes(roots, {GUARD: WORKERS, **{f"guard {n} of two": f"workers {n} of two" for n in (1, 2)}})


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
                for way, costs in {FRESH: fresh_cpu(used), SHIPPED: read_coefficients().cpu}.items():
                    kilobytes = float(name.removesuffix("k"))
                    result.predicted[way].append(predict_rate(costs, kilobytes, available, used, guards))
                result.measured.append((await run_load(each, kind.take(count))).rate)
                figures = f"predicted {result.predicted[FRESH][-1]:.1f}/s, measured {result.measured[-1]:.1f}/s"
                print(f"; guards: {guards}, {figures}", end="", flush=True)
            print()
    for client in (client for each in clients.values() for client in each):
        client.close()
    return results


def report(results: Mapping[tuple[str, int], Comparison]) -> bool:
    """Print both errors, and return whether the model with fresh CPU times reaches its goal."""
    print("\nMedian of the turns (lowest-highest), messages a second")
    for (name, guards), result in results.items():
        print(f"{name:>4}, guards: {guards}: measured {show_spread(result.measured, 1)}")
        for way, predicted in result.predicted.items():
            print(f"      {way}: predicted {show_spread(predicted, 1)}, error {result.error(way):+.1%}")
    worst = {way: max(abs(result.error(way)) for result in results.values()) for way in (FRESH, SHIPPED)}
    reached = worst[FRESH] <= GOAL
    goal = f"goal: at most {GOAL:.0%}" + ("" if reached else ", MISSED")
    print(f"model error worst {worst[FRESH]:.1%} with {FRESH} ({goal})")
    print(f"model error worst {worst[SHIPPED]:.1%} with {SHIPPED} (no goal: the cores may differ in speed)")
    return reached


def main() -> int:
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
            results = uvloop.run(measure(engines, (one, two), pool, arguments.rounds, arguments.count))
    return 0 if report(results) else 1


if __name__ == "__main__":
    sys.exit(main())
