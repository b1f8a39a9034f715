"""Scanning through abby and guard, compared with direct engine calls, alternating in one run."""

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from mailwarden.serving.tls import client_context
from workshop.bench.clients import DirectClient, ScanClient
from workshop.bench.cpu import Processes, Round, run_counted, show_cpu, show_spread
from workshop.bench.load import Load, run_load, run_paced
from workshop.bench.messages import read_messages
from workshop.bench.variation import Variation
from workshop.rig.engines import Engines, start_engines
from workshop.rig.product import Product, start_product
from workshop.rig.signatures import REALISTIC

CONCURRENCY = 20
BOTH = "abby and guard"


@dataclass(slots=True)
class Series:
    """The rounds of one message size."""

    bare: list[Round] = field(default_factory=list)
    scan: list[Round] = field(default_factory=list)
    half: list[tuple[Load, Load]] = field(default_factory=list)  # bare and scan, at half the rate of scan

    @property
    def each(self) -> list[float]:
        """Compare adjacent rounds, so that other load of the machine affects both."""
        return [scan.load.rate / bare.load.rate for bare, scan in zip(self.bare, self.scan, strict=True)]

    @property
    def ratio(self) -> float:
        return statistics.median(self.each)

    @property
    def half_rate(self) -> float:
        return statistics.median(each.load.rate for each in self.scan) / 2

    @property
    def added(self) -> float:
        """Return the milliseconds that we add to the median duration at half load."""
        return statistics.median(scan.p50 - bare.p50 for bare, scan in self.half)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.scan --messages FOLDER"
    )
    parser.add_argument("--messages", type=Path, help="folder with 5k_*.eml and 50k_*.eml (default: made here)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--count", type=int, default=500, help="messages a round (default: %(default)s)")
    parser.add_argument("--separate", action="store_true", help="abby and guard as two processes (default: one)")
    arguments = parser.parse_args()
    messages = read_messages(arguments.messages)
    with tempfile.TemporaryDirectory() as folder, start_engines(signature_set=REALISTIC) as engines:
        url = engines.postgresql.create_database("bench")
        overrides = {
            "maxGuardRequestsInProcessing": 64,
            "guardRequestThrottleThreshold": 64,
            "log": {"level": "warning"},
        }
        one = not arguments.separate
        with start_product(Path(folder), engines, url, guards=[overrides], one_process=one) as product:
            uvloop.run(measure(engines, product, messages, arguments.rounds, arguments.count))


async def measure(
    engines: Engines, product: Product, messages: Mapping[str, Sequence[bytes]], rounds: int, count: int
) -> None:
    direct = [DirectClient(engines.rspamd.address, engines.clamd.address) for _ in range(CONCURRENCY)]
    context = client_context(product.ca)
    clients = [ScanClient("127.0.0.1", product.abby.port, context, product.token) for _ in range(CONCURRENCY)]
    bare, scan = [client.ask for client in direct], [client.ask for client in clients]
    processes = count_processes(engines, product)
    print(f"{CONCURRENCY} at once, {rounds} rounds of {count} messages each, all different, {os.cpu_count()} cores")
    series = {name: Series() for name in messages}
    varied = {name: Variation(kind) for name, kind in messages.items()}
    for kind in varied.values():
        for askers in (bare, scan):
            await run_load(askers, kind.take(count // 4))  # warm up
    for turn in range(rounds):
        for name, one in series.items():
            one.bare.append(await run_counted(bare, varied[name].take(count), processes))
            one.scan.append(await run_counted(scan, varied[name].take(count), processes))
            rates = f"bare {one.bare[-1].load.rate:6.1f}/s  scan {one.scan[-1].load.rate:6.1f}/s"
            print(f"round {turn + 1} {name:>4}: {rates}")
    for name, one in series.items():
        for _ in range(rounds):
            calm = [await run_paced(askers, varied[name].take(count // 2), one.half_rate) for askers in (bare, scan)]
            one.half.append((calm[0], calm[1]))
    for client in clients:
        client.close()
    report(series)


def count_processes(engines: Engines, product: Product) -> Processes:
    """Name all servers, so that none of them counts as the client that started it."""
    servers = {server.name: server.pid for server in engines.servers}
    abby, guard = product.abby.pid, product.guards[0].pid
    ours = {BOTH: abby} if abby == guard else {"abby": abby, "guard": guard}
    return Processes({"client": os.getpid(), **ours, **servers}, {next(reversed(ours)): "workers"})


def report(series: Mapping[str, Series]) -> None:
    columns = {f"{name} bare": one.bare for name, one in series.items()}
    columns |= {f"{name} scan": one.scan for name, one in series.items()}
    names = next(iter(series.values())).scan[0].cpu
    ours = [name for name in ("abby", "guard", BOTH) if name in names]
    show_cpu(columns, {"abby, guard and workers": [*ours, "workers"]})
    print("\nMedian of the rounds (lowest-highest)")
    for name, one in series.items():
        for side, rounds in (("bare", one.bare), ("scan", one.scan)):
            loads = [each.load for each in rounds]
            p50, p99 = show_spread([load.p50 for load in loads], 1), show_spread([load.p99 for load in loads], 1)
            rate = show_spread([load.rate for load in loads], 1)
            print(f"{name:>4} {side}: {rate} messages/s, p50 {p50} ms, p99 {p99} ms")
        both = zip(("bare", "scan"), zip(*one.half, strict=True), strict=True)
        calm = ", ".join(f"{side} p50 {show_spread([load.p50 for load in loads], 1)} ms" for side, loads in both)
        print(f"{name:>4} at half load ({one.half_rate:.1f} messages/s): {calm}")
        print(f"{name:>4} ratio: {show_spread(one.each, 2)}, each: {' '.join(f'{each:.2f}' for each in one.each)}")
    added = max(one.added for one in series.values())
    print(f"\nscan ratio 5k {series['5k'].ratio:.2f} 50k {series['50k'].ratio:.2f} added p50 {added:.1f} ms")


if __name__ == "__main__":
    main()
