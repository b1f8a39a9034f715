"""Scanning with and without a flow of events through the same abby, alternating in one run.

Both kinds of phases saturate the machine. The generator and the reader of the events are one process of their own
(`bench.event_flow`); it shares the cores with everything else, so the rate is shown raw and corrected for its CPU:

    corrected = rate ratio / ((cores * seconds - load with events) / (cores * seconds - load without events))

`load` is the CPU of that process during the phase. PostgreSQL's work for writing and reading the events is not
corrected: it belongs to the product.
"""

import asyncio
import os
import random
import statistics
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import msgspec

from mailwarden.serving.tls import client_context
from workshop.bench import event_flow
from workshop.bench.clients import ScanClient
from workshop.bench.cpu import Processes, Round, run_counted, show_cpu
from workshop.bench.load import run_load
from workshop.bench.messages import read_messages
from workshop.bench.scan import CONCURRENCY, count_processes
from workshop.bench.variation import Variation
from workshop.rig.engines import Engines
from workshop.rig.product import Product

LOAD = "event load"
SETTLE = 0.5  # seconds of events before a phase with them is measured
ANSWER = 60.0  # seconds for an answer of the event process
RESAMPLES = 10_000
CLIENTS = ("client", LOAD)


@dataclass(frozen=True, slots=True)
class Settings:
    pairs: int
    count: int  # messages a phase
    rate: int  # events per second
    batch: int  # events of one transaction


@dataclass(frozen=True, slots=True)
class Pair:
    """Two adjacent phases."""

    without: Round
    beside: Round

    @property
    def rate(self) -> float:
        return self.beside.load.rate / self.without.load.rate

    @property
    def corrected(self) -> float:
        return self.rate / (_share_left(self.beside) / _share_left(self.without))

    def cpu(self, names: Sequence[str]) -> float:
        """Return the ratio of the CPU a message of these processes."""
        return sum(self.beside.cpu[name] for name in names) / sum(self.without.cpu[name] for name in names)


def _share_left(phase: Round) -> float:
    """Return the share of the cores that the event process left to the others."""
    seconds = phase.cpu[LOAD] / 1000 * len(phase.load.latencies)
    return 1 - seconds / ((os.cpu_count() or 1) * phase.load.seconds)


class FlowProcess:
    """The event process: `switch` starts or stops the events."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.pid = process.pid
        self._process = process

    async def switch(self, word: str) -> bytes:
        """Send a command; return the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n".encode("ascii"))
        async with asyncio.timeout(ANSWER):
            answer = await self._process.stdout.readline()
        if not answer:
            raise RuntimeError("the event process has ended; its error is above")
        return answer


@asynccontextmanager
async def _flow(product: Product, database_url: str, settings: Settings) -> AsyncIterator[FlowProcess]:
    options = {"--port": product.abby.port, "--ca": product.ca, "--rate": settings.rate, "--batch": settings.batch}
    process = await asyncio.create_subprocess_exec(
        *(product.abby.command[0], "-m", event_flow.__name__),
        *(str(word) for pair in options.items() for word in pair),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, event_flow.TOKEN: product.token, event_flow.DATABASE: database_url},
    )
    try:
        yield FlowProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def measure(engines: Engines, product: Product, database_url: str, settings: Settings) -> None:
    context, pairs = client_context(product.ca), list[Pair]()
    clients = [ScanClient("127.0.0.1", product.abby.port, context, product.token) for _ in range(CONCURRENCY)]
    askers, messages = [client.ask for client in clients], Variation(read_messages(None)["5k"])
    async with _flow(product, database_url, settings) as flow:
        counted = count_processes(engines, product)
        processes = replace(counted, roots={**counted.roots, LOAD: flow.pid})
        print(
            f"{settings.pairs} pairs of phases, {settings.count} messages of 5 KB each, {CONCURRENCY} at once, "
            f"{settings.rate} events/s in transactions of {settings.batch}, {os.cpu_count()} cores"
        )
        for word in ("on", "off"):  # warm up with and without events
            await flow.switch(word)
            await run_load(askers, messages.take(settings.count // 4))
        for turn in range(settings.pairs):
            found: dict[bool, Round] = {}
            for beside in (False, True) if turn % 2 else (True, False):
                taken = messages.take(settings.count)
                if beside:
                    await flow.switch("on")
                    await asyncio.sleep(SETTLE)
                found[beside] = await run_counted(askers, taken, processes)
                if beside:
                    await flow.switch("off")
            pairs.append(Pair(found[False], found[True]))
            print(f"pair {turn + 1}: rate {pairs[-1].rate:.3f}, corrected {pairs[-1].corrected:.3f}", flush=True)
        summary = msgspec.json.decode(await flow.switch("end"), type=event_flow.Summary)
    for client in clients:
        client.close()
    _report(processes, pairs, summary)


def _report(processes: Processes, pairs: Sequence[Pair], summary: event_flow.Summary) -> None:
    servers = [name for name in processes.names if name not in CLIENTS]
    show_cpu(
        {"without events": [pair.without for pair in pairs], "with events": [pair.beside for pair in pairs]},
        {"all servers": servers},
    )
    print(
        f"\n{summary.events} events in {summary.seconds:.1f} s: {summary.rate:.0f}/s arrived, "
        f"delay p50 {summary.p50:.0f} ms, p99 {summary.p99:.0f} ms"
    )
    load = statistics.median(1 - _share_left(pair.beside) for pair in pairs)
    print(f"CPU of the event load itself: {load:.1%} of the cores")
    print("with / without events, median of the pairs (95 % by bootstrap)")
    print(f"  scan rate raw                       {_interval([pair.rate for pair in pairs])}")
    print(f"  scan rate corrected for event load  {_interval([pair.corrected for pair in pairs])}")
    print(f"  CPU a message of all servers        {_interval([pair.cpu(servers) for pair in pairs])}")
    without = [name for name in servers if name != "postgresql"]
    print(f"  the same without PostgreSQL         {_interval([pair.cpu(without) for pair in pairs])}")


def _interval(values: Sequence[float]) -> str:
    """Return the median and the interval that holds 95 % of the medians of resamples."""
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    low, high = medians[int(RESAMPLES * 0.025)], medians[int(RESAMPLES * 0.975)]
    return f"{statistics.median(values):.3f} ({low:.3f}-{high:.3f})"
