"""Measures the cost of the worker sandbox: start time of a worker, and processor time per message."""

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from mailwarden.pipeline.sandbox import DISABLED, REQUIRED, SandboxMode
from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from mailwarden.serving.spool import Spooled
from workshop.bench.cpu import Processes, cpu_seconds

MODES: tuple[SandboxMode, ...] = (REQUIRED, DISABLED)
FOLDER = Path("tests/good_mail")


ENTER = """
import time
from mailwarden.pipeline.sandbox import enter_sandbox
began = time.perf_counter()
enter_sandbox()
print((time.perf_counter() - began) * 1000)
"""


def time_entering() -> float:
    """Return the milliseconds that a process needs to enter the sandbox, without its imports."""
    return float(subprocess.run([sys.executable, "-c", ENTER], capture_output=True, check=True, text=True).stdout)


async def time_start(mode: SandboxMode) -> float:
    """Return the milliseconds until a new worker is ready."""
    pool = WorkerPool(1, 1_024, Timeouts(), sandbox=mode)
    began = time.perf_counter()
    await pool.start()
    took = (time.perf_counter() - began) * 1000
    await pool.stop()
    return took


async def measure_cpu(pool: WorkerPool, pid: int, messages: list[bytes]) -> float:
    """Return the processor milliseconds of the worker for each message."""
    worker = Processes({"worker": pid}, {})
    before = cpu_seconds(worker)["worker"]
    for raw in messages:
        await pool.run(Spooled.of(raw), lambda _: None)
    return (cpu_seconds(worker)["worker"] - before) / len(messages) * 1000


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def measure(messages: list[bytes], starts: int, rounds: int) -> None:
    took: dict[SandboxMode, list[float]] = {mode: [] for mode in MODES}
    for _ in range(starts):
        for mode in MODES:
            took[mode].append(await time_start(mode))
    pools = {mode: WorkerPool(1, 1_024, Timeouts(), sandbox=mode) for mode in MODES}
    pids = {}
    known: set[int] = set()
    for mode, pool in pools.items():
        await pool.start()
        (pids[mode],) = set(children_of(os.getpid())) - known
        known.add(pids[mode])
    cpu: dict[SandboxMode, list[float]] = {mode: [] for mode in MODES}
    try:
        for _ in range(rounds):
            for mode, pool in pools.items():
                cpu[mode].append(await measure_cpu(pool, pids[mode], messages))
    finally:
        layers = ", ".join(pools[REQUIRED].layers)
        for pool in pools.values():
            await pool.stop()
    show(layers, took, cpu, len(messages))


def show(layers: str, took: dict[SandboxMode, list[float]], cpu: dict[SandboxMode, list[float]], messages: int) -> None:
    rounds = len(cpu[REQUIRED])
    print(f"layers: {layers}")
    print(f"{messages} messages, {rounds} rounds each, {len(took[REQUIRED])} starts each, alternated; medians")
    print(f"{'':<26}{'sandboxed':>12}{'disabled':>12}{'ratio':>8}")
    for name, figures in (("start, ms", took), ("CPU a message, ms", cpu)):
        with_it, without = (statistics.median(figures[mode]) for mode in MODES)
        print(f"{name:<26}{with_it:12.2f}{without:12.2f}{with_it / without:8.3f}")
    ratio = statistics.median(on / off for on, off in zip(cpu[REQUIRED], cpu[DISABLED], strict=True))
    entering = statistics.median(time_entering() for _ in took[REQUIRED])
    print(f"sandbox entered in {entering:.1f} ms, CPU ratio {ratio:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=Path, default=FOLDER, help="folder of .eml files (%(default)s)")
    parser.add_argument("--starts", type=int, default=7, help="starts of a worker of each kind (%(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="rounds of each kind (%(default)s)")
    options = parser.parse_args()
    messages = [path.read_bytes() for path in sorted(options.messages.glob("*.eml"))]
    asyncio.run(measure(messages, options.starts, options.rounds))


if __name__ == "__main__":
    main()
