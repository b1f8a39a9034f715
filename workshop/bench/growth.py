"""How CPU and memory grow with the size of a message, against Rspamd and clamd.

A message goes through one worker of Mailwarden, through Rspamd and through clamd, one after the other. Every message is
different, so that no cache answers.
"""

import argparse
import base64
import itertools
import os
import random
import statistics
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop

from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from mailwarden.serving.spool import Spooled
from workshop.bench.cpu import Processes, cpu_seconds
from workshop.bench.messages import make_paragraphs
from workshop.rig.engines import Engines, start_engines
from workshop.rig.signatures import REALISTIC

SIZES = {"5 KB": 5_000, "50 KB": 50_000, "1 MB": 1_000_000, "10 MB": 10_000_000, "50 MB": 49_000_000}
WORKER_MEMORY = 1_024  # MiB, the default of guard.yml
# CPU is counted in ticks of 10 ms: small messages are repeated until they use many of them.
BYTES_A_CELL = 2_000_000
MOST, LEAST = 60, 3
PARTS = ("workers", "rspamd", "clamd")
_HEAD = (
    b"From: Ann Example <ann@sender.example>\r\nTo: bob@corp.example\r\nSubject: Figures of the week\r\n"
    b"Date: Mon, 16 Nov 2026 09:00:00 +0000\r\nMessage-ID: <%d@sender.example>\r\nMIME-Version: 1.0\r\n"
)


@dataclass(frozen=True, slots=True)
class Cell:
    """The cost of one kind and size: CPU milliseconds a message by process, and the peak memory of a worker in MiB."""

    cpu: Mapping[str, float]
    peak: float


def make_attachment(number: int, size: int) -> bytes:
    """Make a message with a short text and a file that no reader knows."""
    content = random.Random(number).randbytes(size * 3 // 4)
    lines = base64.encodebytes(content).replace(b"\n", b"\r\n")
    text = b"--b\r\nContent-Type: text/plain\r\n\r\nDear Bob, the figures are attached.\r\n"
    head = b'--b\r\nContent-Type: application/octet-stream\r\nContent-Disposition: attachment; filename="week.dat"\r\n'
    kind = b"Content-Type: multipart/mixed; boundary=b\r\n\r\n"
    return b"".join(
        [_HEAD % number, kind, text, head, b"Content-Transfer-Encoding: base64\r\n\r\n", lines, b"--b--\r\n"]
    )


def make_text(number: int, size: int) -> bytes:
    text = "\r\n\r\n".join(make_paragraphs(number, size)).encode()
    return _HEAD % number + b"Content-Type: text/plain; charset=utf-8\r\n\r\n" + text + b"\r\n"


def make_html(number: int, size: int) -> bytes:
    parts = (
        f'<p>{text} <a href="https://www.sender.example/{number}/{place}">More</a></p>\r\n'
        for place, text in enumerate(make_paragraphs(number, size * 4 // 5))
    )
    page = f"<html><body>{''.join(parts)}</body></html>\r\n".encode()
    return _HEAD % number + b"Content-Type: text/html; charset=utf-8\r\n\r\n" + page


KINDS: Mapping[str, Callable[[int, int], bytes]] = {"attachment": make_attachment, "HTML": make_html, "text": make_text}


def worker_pids(processes: Processes) -> list[int]:
    """Return the workers: the children of this process that are no server of the rig."""
    servers = set(processes.roots.values())
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(child) for child in children if int(child) not in servers]


def peak_memory(pids: list[int]) -> float:
    """Return the largest resident memory of these processes since `forget_peak`, in MiB."""
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return max((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), default=0.0)


def forget_peak(pids: list[int]) -> None:
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


async def measure_cell(pool: WorkerPool, engines: Engines, processes: Processes, messages: list[bytes]) -> Cell:
    """Send messages that no process has seen before."""

    async def examine(message: bytes) -> None:
        await pool.run(Spooled.of(message), lambda _: None)

    async def ask_rspamd(message: bytes) -> None:
        engines.rspamd.scan(message, {"IP": "192.0.2.10", "From": "ann@sender.example"})

    async def ask_clamd(message: bytes) -> None:
        engines.clamd.scan(message)

    used: dict[str, float] = {}
    askers: Mapping[str, Callable[[bytes], Awaitable[None]]] = {
        "workers": examine, "rspamd": ask_rspamd, "clamd": ask_clamd,
    }  # fmt: skip
    forget_peak(worker_pids(processes))
    for name, ask in askers.items():
        before = cpu_seconds(processes)[name]
        for message in messages:
            await ask(message)
        used[name] = (cpu_seconds(processes)[name] - before) * 1000 / len(messages)
    return Cell(used, peak_memory(worker_pids(processes)))


async def measure(engines: Engines, rounds: int, sizes: Mapping[str, int]) -> None:
    servers = {server.name: server.pid for server in engines.servers}
    processes = Processes({"client": os.getpid(), **servers}, {"client": "workers"})
    pool = WorkerPool(1, WORKER_MEMORY, Timeouts())
    await pool.start()
    try:
        print(f"CPU ms a message: worker / Rspamd / clamd; peak of a worker. Medians of {rounds} rounds.")
        numbers = itertools.count()
        for kind, make in KINDS.items():
            for name, size in sizes.items():
                count = min(MOST, max(LEAST, BYTES_A_CELL // size))
                cells = []
                for _ in range(rounds):
                    messages = [make(number, size) for number in itertools.islice(numbers, count)]
                    cells.append(await measure_cell(pool, engines, processes, messages))
                show(kind, name, cells)
    finally:
        await pool.stop()


def show(kind: str, size: str, cells: list[Cell]) -> None:
    ours, rspamd, clamd = (statistics.median(cell.cpu[part] for cell in cells) for part in PARTS)
    ratio = f"{ours / rspamd:.2f} of Rspamd" if rspamd else "no time in Rspamd"
    peak = max(cell.peak for cell in cells)
    print(f"{kind:>10} {size:>6}: {ours:8.1f} / {rspamd:8.1f} / {clamd:8.1f} ms, {ratio}, {peak:5.0f} MiB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, epilog="Example: python -m workshop.bench.growth --rounds 3")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each kind and size (default: %(default)s)")
    parser.add_argument("--largest", type=int, default=max(SIZES.values()), help="leave larger sizes out, in bytes")
    options = parser.parse_args()
    sizes = {name: size for name, size in SIZES.items() if size <= options.largest}
    with start_engines(signature_set=REALISTIC) as engines:
        uvloop.run(measure(engines, options.rounds, sizes))


if __name__ == "__main__":
    main()
