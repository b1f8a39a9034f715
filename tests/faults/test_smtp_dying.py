"""Whatever mail runs through killed meanwhile: what was accepted arrives, byte for byte, at least once."""

import os
import smtplib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from rig.engines import Engines
from rig.folders import remove_folder, temporary_folder
from rig.postfix import Postfix, Way
from rig.process import ServerProcess
from rig.samples import plain_message
from tests.acceptance.post import Sink, send
from tests.faults.conftest import GUARD, Note, Start

pytestmark = pytest.mark.slow

FULL = os.environ.get("MAILWARDEN_FULL") == "1"
MESSAGES = 10_000 if FULL else 150
KILLS = 60 if FULL else 5
SENDERS = 4
PATIENCE = 7_200.0 if FULL else 180.0


class Load:
    """Sends numbered messages until each was accepted, whatever dies meanwhile."""

    def __init__(self, engines: Engines, port: int) -> None:
        self.messages = [self._make(engines, number) for number in range(MESSAGES)]
        self.accepted: set[int] = set()
        self.tries = 0
        self._port = port
        self._numbers = iter(range(MESSAGES))
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(SENDERS)]

    def _make(self, engines: Engines, number: int) -> bytes:
        text = b"".join(b"Line %d of the minutes, number %d.\r\n" % (line, number) for line in range(1 + number % 400))
        return engines.dns.sign(plain_message() + text, "pass.example")

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        yield
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive(), "a sender hangs"

    @property
    def done(self) -> bool:
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self) -> None:
        while True:
            with self._lock:
                number = next(self._numbers, None)
            if number is None:
                return
            while not self._send(number):
                time.sleep(0.2)

    def _send(self, number: int) -> bool:
        self.tries += 1
        with suppress(OSError, smtplib.SMTPException, AssertionError):
            reply = send(self._port, self.messages[number])
            if reply.startswith("250"):
                self.accepted.add(number)
                return True
            assert reply[0] == "4", reply
        return False


def meddle(load: Load, sink: Sink, victims: list[ServerProcess]) -> Counter[str]:
    """Kill one after the other in mid-flight and start it again, while there is mail on its way."""
    killed: Counter[str] = Counter()
    for number in range(KILLS):
        time.sleep(0.7)
        if load.done and len(sink.since(0)) >= MESSAGES:
            break
        victim = victims[number % len(victims)]
        victim.kill()
        killed[victim.name] += 1
        victim.start()
    return killed


@pytest.mark.parametrize(("way", "mode"), [("before-queue", "beforeQueue"), ("after-queue", "afterQueue")])
def test_nothing_that_was_accepted_is_lost_whatever_dies(
    start_product_of: Start, note: Note, whole_engines: Engines, way: Way, mode: str
) -> None:
    folder = temporary_folder()
    with Sink() as sink:
        postfix = Postfix(Path(folder), way, ("company.example",), sink.port, retry=1)
        smtp = {"mode": mode, "listen": {"port": postfix.guard_port}, "nextHop": f"127.0.0.1:{postfix.back_port}"}
        product = start_product_of({**GUARD, "scanSources": {"smtp": smtp}})
        try:
            postfix.start()
            load = Load(whole_engines, postfix.port)
            with load.running():
                engines = whole_engines
                victims = [product.guards[0], postfix, engines.postgresql, engines.rspamd]
                killed = meddle(load, sink, victims)
            assert load.accepted == set(range(MESSAGES))
            arrived = wait_for_all(sink, load.messages)
        finally:
            postfix.stop()
            remove_folder(folder)
    assert killed, "nothing was killed: this run shows nothing"
    twice = sum(arrived.values()) - len(arrived)
    assert twice <= sum(killed.values()) * 8 * SENDERS, arrived.most_common(5)
    note(
        f"{way}: {MESSAGES} messages accepted in {load.tries} tries, {dict(killed)} killed: "
        f"all arrived byte for byte, {twice} of them twice"
    )


def wait_for_all(sink: Sink, messages: list[bytes]) -> Counter[int]:
    """Wait until every message is at the sink, unchanged, and return how often each came."""
    end = time.monotonic() + PATIENCE
    ends = {message[-2_000:] if len(message) > 2_000 else message: number for number, message in enumerate(messages)}
    sizes = {len(key) for key in ends}
    arrived: Counter[int] = Counter()
    seen = 0
    while len(arrived) < len(messages):
        assert time.monotonic() < end, f"{len(messages) - len(arrived)} are missing"
        time.sleep(0.2)
        new = sink.since(seen)
        seen += len(new)
        for each in new:
            number = next(ends[each.content[-size:]] for size in sizes if each.content[-size:] in ends)
            assert each.content.endswith(messages[number])
            arrived[number] += 1
    return arrived
