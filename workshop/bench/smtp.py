"""Postfix with guard before its queue, compared with Postfix with Rspamd's milter, in one run."""

import argparse
import asyncio
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from workshop.bench.clients import ENVELOPE
from workshop.bench.cpu import Processes, Round, run_counted, show_cpu
from workshop.bench.load import run_load
from workshop.bench.messages import read_messages
from workshop.bench.variation import Variation
from workshop.rig.engines import start_engines
from workshop.rig.folders import remove_folder, temporary_folder
from workshop.rig.postfix import Postfix
from workshop.rig.product import start_product
from workshop.rig.rspamd import Rspamd
from workshop.rig.signatures import REALISTIC

CONCURRENCY = 20
DOMAINS = ("corp.example",)


class SmtpClient:
    """Sends every message in its own session, as unknown senders do; any reply to the data counts."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answers: Counter[str] = Counter()

    async def ask(self, message: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await _reply(reader)
            for command in (
                f"XCLIENT ADDR={ENVELOPE.remote_address} NAME={ENVELOPE.helo} HELO={ENVELOPE.helo}",
                f"EHLO {ENVELOPE.helo}",
            ):
                writer.write(command.encode("ascii") + b"\r\n")
                await _reply(reader)
            writer.write(
                f"MAIL FROM:<{ENVELOPE.sender}>\r\nRCPT TO:<{ENVELOPE.recipients[0]}>\r\nDATA\r\n".encode("ascii")
            )
            for _ in range(3):
                await _reply(reader)
            writer.write(message + b".\r\n")
            self.answers[await _reply(reader)] += 1
        finally:
            writer.transport.abort()


async def _reply(reader: asyncio.StreamReader) -> str:
    while (line := await reader.readline())[3:4] == b"-":
        pass
    if not line:
        raise RuntimeError("Postfix hung up")
    return line[:3].decode("ascii")


@dataclass(slots=True)
class Series:
    """The rounds of one message size, both ways."""

    milter: list[Round] = field(default_factory=list)
    guard: list[Round] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Compare adjacent rounds, so that other load of the machine affects both."""
        return statistics.median(self.each)

    @property
    def each(self) -> list[float]:
        return [guard.load.rate / milter.load.rate for milter, guard in zip(self.milter, self.guard, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.smtp --messages FOLDER"
    )
    parser.add_argument("--messages", type=Path, help="folder with 5k_*.eml and 50k_*.eml (default: made here)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each kind (default: %(default)s)")
    parser.add_argument("--count", type=int, default=400, help="messages a round (default: %(default)s)")
    arguments = parser.parse_args()
    messages = read_messages(arguments.messages)
    place = temporary_folder()
    with tempfile.TemporaryDirectory() as folder, start_engines(signature_set=REALISTIC) as engines:
        rspamd = Rspamd(place / "rspamd", redis=engines.redis.address, dns=engines.dns.address, milter=True)
        plain = Postfix(place / "milter", "milter", DOMAINS, None, milter_port=rspamd.milter_port)
        ours = Postfix(place / "guard", "before-queue", DOMAINS, None)
        smtp = {"listen": {"port": ours.guard_port}, "nextHop": f"127.0.0.1:{ours.back_port}"}
        overrides = {
            "maxGuardRequestsInProcessing": 64,
            "guardRequestThrottleThreshold": 64,
            "log": {"level": "warning"},
            "scanSources": {"smtp": smtp},
        }
        url = engines.postgresql.create_database("bench")
        try:
            with start_product(Path(folder), engines, url, guards=[overrides]) as product:
                for server in (rspamd, plain, ours):
                    server.start()
                roots = {
                    "client": os.getpid(),
                    "guard": product.guards[0].pid,
                    "abby": product.abby.pid,
                    "redis": engines.redis.pid,
                    "dns": engines.dns.pid,
                    "rspamd of guard": engines.rspamd.pid,
                    "clamd": engines.clamd.pid,
                    "postgresql": engines.postgresql.pid,
                    "postfix with guard": ours.pid,
                    "rspamd milter": rspamd.pid,
                    "postfix with milter": plain.pid,
                }
                processes = Processes(roots, {"guard": "workers"})
                uvloop.run(measure(plain.port, ours.port, messages, arguments.rounds, arguments.count, processes))
        finally:
            for server in (ours, plain, rspamd):
                server.stop()
            remove_folder(place)


async def measure(
    milter_port: int,
    guard_port: int,
    messages: Mapping[str, Sequence[bytes]],
    rounds: int,
    count: int,
    processes: Processes,
) -> None:
    milter, guard = SmtpClient(milter_port), SmtpClient(guard_port)
    print(f"{CONCURRENCY} at once, {rounds} rounds of {count} messages each, all different, {os.cpu_count()} cores")
    series = {name: Series() for name in messages}
    varied = {name: Variation(kind) for name, kind in messages.items()}
    askers = [[milter.ask] * CONCURRENCY, [guard.ask] * CONCURRENCY]
    for kind in varied.values():
        for side in askers:
            await run_load(side, _stuff(kind.take(count // 4)))  # warm up
    for turn in range(rounds):
        for name, one in series.items():
            for side, results in zip(askers, (one.milter, one.guard), strict=True):
                results.append(await run_counted(side, _stuff(varied[name].take(count)), processes))
            rates = f"milter {one.milter[-1].load.rate:6.1f}/s  guard {one.guard[-1].load.rate:6.1f}/s"
            print(f"round {turn + 1} {name:>4}: {rates}")
    columns = {f"{name} milter": one.milter for name, one in series.items()}
    columns |= {f"{name} guard": one.guard for name, one in series.items()}
    show_cpu(columns, {"guard and workers": ("guard", "workers")})
    print(f"\nanswers: milter {dict(milter.answers)}, guard {dict(guard.answers)}\n")
    for name, one in series.items():
        waits = f"milter {_p50(one.milter):.0f} ms, guard {_p50(one.guard):.0f} ms"
        print(f"{name:>4}: ratio {one.ratio:.2f} ({' '.join(f'{each:.2f}' for each in one.each)}), p50 {waits}")
    print("\nsmtp ratio " + " ".join(f"{name} {one.ratio:.2f}" for name, one in series.items()))


def _p50(rounds: Sequence[Round]) -> float:
    return statistics.median(each.load.p50 for each in rounds)


def _stuff(messages: Sequence[bytes]) -> list[bytes]:
    return [_stuffed(message) for message in messages]


def _stuffed(message: bytes) -> bytes:
    """Return a message as it is sent: lines end with CR LF, and a dot at the start of a line is doubled."""
    lines = message.replace(b"\r\n", b"\n").replace(b"\r", b"").rstrip(b"\n").split(b"\n")
    return b"".join((b"." if line.startswith(b".") else b"") + line + b"\r\n" for line in lines)


if __name__ == "__main__":
    main()
