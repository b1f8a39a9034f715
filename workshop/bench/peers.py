"""The same messages through Mailwarden, plain Rspamd and SpamAssassin's spamd, in one run.

Rspamd has the settings that Mailwarden requires, spamd its own rules without network tests and learning. Neither asks a
virus scanner; Mailwarden asks Rspamd and ClamAV.
"""

import argparse
import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import uvloop

from mailwarden.model.envelope import Envelope
from mailwarden.serving.tls import client_context
from workshop.bench.clients import ENVELOPE, ScanClient
from workshop.bench.cpu import Processes, Round, run_counted, show_cpu, show_spread
from workshop.bench.load import Ask, run_load
from workshop.bench.messages import read_messages
from workshop.bench.variation import Variation
from workshop.evaluate.rivals import PlainRspamd, Score, SpamAssassin, has_spamassassin
from workshop.rig.engines import Engines, start_engines
from workshop.rig.product import Product, start_product
from workshop.rig.signatures import REALISTIC

CONCURRENCY = 20
OURS = "mailwarden"
RSPAMD, SPAMD = "rspamd", "spamd"
MISSING = "spamd is not installed: run `apt-get install spamassassin spamd spamc`, or call with --without-spamd"


class Message(NamedTuple):
    """A message with the envelope of all of them."""

    raw: bytes
    envelope: Envelope = ENVELOPE


@dataclass(slots=True)
class Series:
    """The rounds of one message size, by product."""

    rounds: dict[str, list[Round]] = field(default_factory=dict)

    def factors(self, peer: str) -> list[float]:
        """Return our rate divided by the peer's, round by round, so that other load of the machine affects both."""
        pairs = zip(self.rounds[OURS], self.rounds[peer], strict=True)
        return [ours.load.rate / other.load.rate for ours, other in pairs]

    def cpu_factors(self, peer: str) -> list[float]:
        """Return the peer's CPU time a message divided by ours, which other load of the machine changes least."""
        return [_cpu(other) / _cpu(ours) for ours, other in zip(self.rounds[OURS], self.rounds[peer], strict=True)]


def _cpu(one: Round) -> float:
    """Return the milliseconds of all processes without the client."""
    return sum(one.cpu.values()) - one.cpu["client"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="Example: python -m workshop.bench.peers --messages FOLDER"
    )
    parser.add_argument("--messages", type=Path, help="folder with 5k_*.eml and 50k_*.eml (default: made here)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each product (default: %(default)s)")
    parser.add_argument("--count", type=int, default=200, help="messages a round (default: %(default)s)")
    parser.add_argument("--without-spamd", action="store_true", help="compare with Rspamd alone")
    arguments = parser.parse_args()
    if not arguments.without_spamd and not has_spamassassin():
        parser.error(MISSING)
    messages = read_messages(arguments.messages)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines = stack.enter_context(start_engines(signature_set=REALISTIC))
        overrides = {
            "maxGuardRequestsInProcessing": 64,
            "guardRequestThrottleThreshold": 64,
            "log": {"level": "warning"},
        }
        url = engines.postgresql.create_database("bench")
        product = stack.enter_context(start_product(folder, engines, url, guards=[overrides], one_process=True))
        spamd = None
        if not arguments.without_spamd:
            spamd = SpamAssassin(folder)
            stack.callback(spamd.stop)
            spamd.start()
        uvloop.run(measure(engines, product, spamd, messages, arguments.rounds, arguments.count))


async def measure(
    engines: Engines,
    product: Product,
    spamd: SpamAssassin | None,
    messages: Mapping[str, Sequence[bytes]],
    rounds: int,
    count: int,
) -> None:
    context = client_context(product.ca)
    clients = [ScanClient("127.0.0.1", product.abby.port, context, product.token) for _ in range(CONCURRENCY)]
    sides: dict[str, list[Ask]] = {OURS: [client.ask for client in clients]}
    sides[RSPAMD] = [asker(PlainRspamd(engines.rspamd.address).score)] * CONCURRENCY
    if spamd is not None:
        sides[SPAMD] = [asker(spamd.score)] * CONCURRENCY
    processes = count_processes(engines, product, spamd)
    print(f"{CONCURRENCY} at once, {rounds} rounds of {count} messages each, all different, {os.cpu_count()} cores")
    series = {name: Series({side: [] for side in sides}) for name in messages}
    varied = {name: Variation(kind) for name, kind in messages.items()}
    for kind in varied.values():
        for askers in sides.values():
            await run_load(askers, kind.take(count // 4))  # warm up
    for turn in range(rounds):
        for name, one in series.items():
            sent = varied[name].take(count)
            for side, askers in sides.items():
                one.rounds[side].append(await run_counted(askers, sent, processes))
            rates = "  ".join(f"{side} {done[-1].load.rate:6.1f}/s" for side, done in one.rounds.items())
            print(f"round {turn + 1} {name:>4}: {rates}", flush=True)
    for client in clients:
        client.close()
    report(series)


def asker(score: Score) -> Ask:
    """Return what sends a message to a product, and fails if there is no score."""

    async def ask(message: bytes) -> None:
        if await score(Message(message)) is None:
            raise RuntimeError("no score for a message")

    return ask


def count_processes(engines: Engines, product: Product, spamd: SpamAssassin | None) -> Processes:
    servers = {server.name: server.pid for server in (*engines.servers, *([spamd] if spamd else []))}
    return Processes(
        {"client": os.getpid(), "abby and guard": product.abby.pid, **servers}, {"abby and guard": "workers"}
    )


def report(series: Mapping[str, Series]) -> None:
    """Print the processor time of each process, the rates, and the factors as the last line."""
    columns = {f"{name} {side}": done for name, one in series.items() for side, done in one.rounds.items()}
    show_cpu(columns, {})
    print("\nMedian of the rounds (lowest-highest)")
    for name, one in series.items():
        for side, done in one.rounds.items():
            total = show_spread([_cpu(each) for each in done], 1)
            rate = show_spread([each.load.rate for each in done], 1)
            print(f"{name:>4} {side:<10} {rate} messages/s, {total} ms of CPU a message without the client")
        for peer in one.rounds:
            if peer != OURS:
                factors = f"rate {show_spread(one.factors(peer), 2)}, CPU {show_spread(one.cpu_factors(peer), 2)}"
                print(f"{name:>4} factor against {peer}: {factors}")
    print("\n" + last_line(series))


def last_line(series: Mapping[str, Series]) -> str:
    parts = []
    for name, one in series.items():
        factors = (f"{peer} {statistics.median(one.factors(peer)):.2f}" for peer in one.rounds if peer != OURS)
        parts.append(f"{name} {' '.join(factors)}")
    return f"peers factor {' '.join(parts)}"


if __name__ == "__main__":
    main()
