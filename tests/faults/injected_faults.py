"""Faults on the path of a message: servers killed with SIGKILL and started again, disks full for a while."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from workshop.rig.disk import SmallDisk
from workshop.rig.process import RigError, ServerProcess

STARTS = 20  # attempts to start a killed server, as a service manager does


class Fault(Protocol):
    name: str

    def inject(self, chance: random.Random) -> None:
        """Inject the fault; return when the next fault may follow."""

    def end(self) -> None:
        """Repair the fault."""


class Kill:
    """Kill a server with all its workers, and start it again a moment later."""

    def __init__(self, server: ServerProcess) -> None:
        self.name = f"{server.name} killed"
        self.failed_starts = 0
        self._server = server

    def inject(self, chance: random.Random) -> None:
        self._server.kill()
        time.sleep(chance.choice((0.0, 0.0, chance.uniform(0.0, 1.5))))
        self.end()

    def end(self) -> None:
        for number in range(STARTS):
            if self._server.running:
                return
            try:
                self._server.start()
            except RigError:
                self.failed_starts += 1
                if number == STARTS - 1:
                    raise
                time.sleep(1.0)


class FullDisk:
    """Fill a disk for a few seconds while other faults follow."""

    def __init__(self, name: str, disk: SmallDisk) -> None:
        self.name = f"{name} full"
        self._disk = disk
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def inject(self, chance: random.Random) -> None:
        self.end()
        self._over.clear()
        self._thread = threading.Thread(target=self._fill, args=(chance.uniform(1.0, 4.0),), daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _fill(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._over.set)
        timer.start()
        self._disk.keep_full(self._over)
        timer.cancel()


@dataclass(frozen=True)
class FaultEvent:
    name: str
    moment: float


class FaultSchedule:
    """Injects faults in random order, each once per round."""

    def __init__(self, faults: Sequence[Fault], chance: random.Random) -> None:
        self.injected: list[FaultEvent] = []
        self._faults = faults
        self._chance = chance
        self._remaining: list[Fault] = []

    @property
    def rounds(self) -> int:
        """Return the number of complete rounds."""
        return len(self.injected) // len(self._faults)

    @property
    def counts(self) -> Counter[str]:
        return Counter(each.name for each in self.injected)

    def wait(self, least: float, most: float, meanwhile: Callable[[], None]) -> None:
        """Wait for a random time."""
        end = time.monotonic() + self._chance.uniform(least, most)
        meanwhile()
        time.sleep(max(end - time.monotonic(), 0.0))

    def inject_next(self) -> None:
        if not self._remaining:
            self._remaining = self._chance.sample(self._faults, len(self._faults))
        fault = self._remaining.pop()
        self.injected.append(FaultEvent(fault.name, time.time()))
        fault.inject(self._chance)

    @contextmanager
    def ended_on_exit(self) -> Iterator[None]:
        try:
            yield
        finally:
            for fault in self._faults:
                fault.end()
