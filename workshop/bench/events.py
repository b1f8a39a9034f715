"""The cost of events in a scan, and 1,000 events per second through one abby to one client.

`--only-beside` measures scanning with and without those events through the same abby, see `bench.events_beside_scans`.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

import msgspec
import uvloop

from mailwarden.database.pool import Database
from mailwarden.event_delivery.requests import EventPage
from mailwarden.events.catalogue import KeyRevoked
from mailwarden.events.outbox import new_event, record
from mailwarden.serving.tls import client_context
from workshop.bench import events_beside_scans
from workshop.bench.clients import ScanClient
from workshop.bench.cpu import Processes, Round, cpu_seconds, run_counted, show_spread
from workshop.bench.load import run_load
from workshop.bench.messages import read_messages
from workshop.bench.variation import Variation
from workshop.rig.caller import Caller, caller_context
from workshop.rig.engines import Engines, start_engines
from workshop.rig.product import Overrides, Product, start_product
from workshop.rig.signatures import REALISTIC

CONCURRENCY = 20
BATCH = 10  # events of one transaction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m workshop.bench.events --rounds 5")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--count", type=int, default=400, help="messages a round (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=1_000, help="events per second (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="seconds of events (default: %(default)s)")
    parser.add_argument("--only-beside", action="store_true", help="scan with and without a flow of events")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of phases of --only-beside (default: %(default)s)")
    parser.add_argument("--phase", type=int, default=600, help="messages of such a phase (default: %(default)s)")
    parser.add_argument(
        "--batch",
        type=int,
        default=50,
        help="events of one transaction; guard writes every 50 ms (default: %(default)s)",
    )
    arguments = parser.parse_args()
    if arguments.only_beside:
        _beside(events_beside_scans.Settings(arguments.pairs, arguments.phase, arguments.rate, arguments.batch))
        return
    with tempfile.TemporaryDirectory() as folder, start_engines(signature_set=REALISTIC) as engines:
        urls = {name: engines.postgresql.create_database(f"bench_{name}") for name in ("none", "all")}
        with (
            start_product(Path(folder, "none"), engines, urls["none"], guards=[_guard("none")]) as without,
            start_product(Path(folder, "all"), engines, urls["all"], guards=[_guard("all")]) as product,
        ):
            uvloop.run(_compare(engines, without, product, arguments.rounds, arguments.count))
            uvloop.run(_flow(engines, product, urls["all"], arguments.rate, arguments.seconds))


def _beside(settings: events_beside_scans.Settings) -> None:
    """Measure with the setup of `workshop.bench.scan`: abby and guard as one process."""
    with tempfile.TemporaryDirectory() as folder, start_engines(signature_set=REALISTIC) as engines:
        url = engines.postgresql.create_database("bench")
        with start_product(Path(folder), engines, url, guards=[_guard("all")], one_process=True) as product:
            uvloop.run(events_beside_scans.measure(engines, product, url, settings))


def _guard(judged: str) -> Overrides:
    return {
        "events": {"scanned": judged},
        "maxGuardRequestsInProcessing": 64,
        "guardRequestThrottleThreshold": 64,
        "log": {"level": "warning"},
    }


def _processes(engines: Engines, product: Product) -> Processes:
    ours = {"abby": product.abby.pid, "guard": product.guards[0].pid}
    return Processes({"client": os.getpid(), **ours, "postgresql": engines.postgresql.pid}, {"guard": "workers"})


async def _compare(engines: Engines, without: Product, product: Product, rounds: int, count: int) -> None:
    """Scan with and without an event for each message, alternating; print the ratio of the rates and of the CPU."""
    products = {"without": without, "with": product}
    askers = {
        name: [
            ScanClient("127.0.0.1", each.abby.port, client_context(each.ca), each.token).ask for _ in range(CONCURRENCY)
        ]
        for name, each in products.items()
    }
    messages = Variation(read_messages(None)["5k"])
    found: dict[str, list[Round]] = {name: [] for name in products}
    for name in products:
        await run_load(askers[name], messages.take(count // 4))  # warm up
    for turn in range(rounds):
        for name in sorted(products, reverse=bool(turn % 2)):
            counted = _processes(engines, products[name])
            found[name].append(await run_counted(askers[name], messages.take(count), counted))
    rates = [b.load.rate / a.load.rate for a, b in zip(found["without"], found["with"], strict=True)]
    cpu = [sum(b.cpu.values()) / sum(a.cpu.values()) for a, b in zip(found["without"], found["with"], strict=True)]
    for name, each in found.items():
        print(f"{name:>7}: {show_spread([one.load.rate for one in each], 1)} messages/s")
    print(f"scan with events: rate {show_spread(rates, 3)}, CPU {show_spread(cpu, 3)} of scan without events")


async def _flow(engines: Engines, product: Product, url: str, rate: int, seconds: int) -> None:
    """Write events at a rate and read them through abby; print the delay and the CPU of each process."""
    database, delays, total = Database(url, 2), list[float](), rate * seconds
    processes = _processes(engines, product)
    async with Caller(product.abby.port, caller_context(product.ca), product.token) as caller:
        cursor = msgspec.json.decode((await caller.call("GET", "/v1/events?after=latest")).body, type=EventPage).next
        before, began = cpu_seconds(processes), time.monotonic()
        writing = asyncio.create_task(_write(database, rate, total))
        while len(delays) < total:
            answer = await caller.call("GET", f"/v1/events?limit=1000&wait=5&types=key.revoked&after={cursor}")
            page, now = msgspec.json.decode(answer.body, type=EventPage), time.time()
            delays += [now - event.time.timestamp() for event in page.events]
            cursor = page.next
        took = time.monotonic() - began
        await writing
    used = {name: after - before[name] for name, after in cpu_seconds(processes).items()}
    await database.close()
    delays.sort()
    cpu = ", ".join(f"{name} {used[name] * 1000 / total:.3f} ms" for name in ("abby", "postgresql", "client"))
    print(f"{total} events in {took:.1f} s: {total / took:.0f}/s, CPU an event: {cpu}")
    print(f"delay p50 {statistics.median(delays) * 1000:.0f} ms, p99 {delays[int(len(delays) * 0.99)] * 1000:.0f} ms")


async def _write(database: Database, rate: int, total: int) -> None:
    began = time.monotonic()
    for number in range(0, total, BATCH):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        async with database.connection() as connection:
            await record(connection, [new_event(KeyRevoked("x", "bench", "bench"), None, "x") for _ in range(BATCH)])


if __name__ == "__main__":
    main()
