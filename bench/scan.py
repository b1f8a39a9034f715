"""`make bench-scan`: scanning through abby and guard, compared with direct engine calls, alternating in one run."""

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.clients import DirectClient, ScanClient
from bench.cpu import children_of, run_counted, show_cpu
from bench.load import Load, run_load
from bench.messages import read_messages
from mailwarden.serving.tls import client_context
from rig.engines import Engines, start_engines
from rig.product import Product, start_product

CONCURRENCY = 20


@dataclass(slots=True)
class Series:
    """The rounds of one message size."""

    bare: list[Load] = field(default_factory=list)
    scan: list[Load] = field(default_factory=list)
    bare_cpu: dict[str, float] = field(default_factory=dict)
    scan_cpu: dict[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """Compare adjacent rounds, so that other load of the machine affects both."""
        return statistics.median(scan.rate / bare.rate for bare, scan in zip(self.bare, self.scan, strict=True))

    @property
    def added(self) -> float:
        return statistics.median(scan.p50 - bare.p50 for bare, scan in zip(self.bare, self.scan, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m bench.scan --messages FOLDER")
    parser.add_argument("--messages", type=Path, help="folder with 5k_*.eml and 50k_*.eml (default: made here)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--count", type=int, default=500, help="messages a round (default: %(default)s)")
    arguments = parser.parse_args()
    messages = read_messages(arguments.messages)
    with tempfile.TemporaryDirectory() as folder, start_engines() as engines:
        url = engines.postgresql.create_database("bench")
        overrides = {
            "maxGuardRequestsInProcessing": 64,
            "guardRequestThrottleThreshold": 64,
            "log": {"level": "warning"},
        }
        with start_product(Path(folder), engines, url, guards=[overrides]) as product:
            uvloop.run(measure(engines, product, messages, arguments.rounds, arguments.count))


async def measure(
    engines: Engines, product: Product, messages: Mapping[str, Sequence[bytes]], rounds: int, count: int
) -> None:
    bare = [DirectClient(engines.rspamd.address, engines.clamd.address) for _ in range(CONCURRENCY)]
    context = client_context(product.ca)
    scan = [ScanClient("127.0.0.1", product.abby.port, context, product.token) for _ in range(CONCURRENCY)]
    roots = {
        "client": os.getpid(),
        "abby": product.abby.pid,
        "guard": product.guards[0].pid,
        **{f"worker {n}": pid for n, pid in enumerate(children_of(product.guards[0].pid), 1)},
        "rspamd": engines.rspamd.pid,
        "clamd": engines.clamd.pid,
        "postgresql": engines.postgresql.pid,
    }
    print(f"{CONCURRENCY} at once, {rounds} rounds of {count} messages each, {os.cpu_count()} cores")
    series = {name: Series() for name in messages}
    for kind in messages.values():
        for askers in ([client.ask for client in bare], [client.ask for client in scan]):
            await run_load(askers, kind, count // 4)  # warm up
    for turn in range(rounds):
        for name, kind in messages.items():
            one = series[name]
            one.bare.append(await run_counted([c.ask for c in bare], kind, count, roots, one.bare_cpu))
            one.scan.append(await run_counted([c.ask for c in scan], kind, count, roots, one.scan_cpu))
            print(f"round {turn + 1} {name:>4}: bare {one.bare[-1].rate:6.1f}/s  scan {one.scan[-1].rate:6.1f}/s")
    for client in scan:
        client.close()
    report(series, rounds * count)


def report(series: Mapping[str, Series], total: int) -> None:
    columns = {f"{name} bare": one.bare_cpu for name, one in series.items()}
    columns |= {f"{name} scan": one.scan_cpu for name, one in series.items()}
    show_cpu(columns, total)
    print("\n      bare p50/p99 ms     scan p50/p99 ms     ratio (each round)")
    for name, one in series.items():
        bare50, bare99 = _median(one.bare, "p50"), _median(one.bare, "p99")
        scan50, scan99 = _median(one.scan, "p50"), _median(one.scan, "p99")
        each = " ".join(f"{s.rate / b.rate:.2f}" for b, s in zip(one.bare, one.scan, strict=True))
        print(f"{name:>4}  {bare50:7.1f} {bare99:7.1f}     {scan50:7.1f} {scan99:7.1f}     {one.ratio:.2f} ({each})")
    added = max(one.added for one in series.values())
    print(f"\nscan ratio 5k {series['5k'].ratio:.2f} 50k {series['50k'].ratio:.2f} added p50 {added:.1f} ms")


def _median(loads: Sequence[Load], name: str) -> float:
    return statistics.median(float(getattr(load, name)) for load in loads)


if __name__ == "__main__":
    main()
