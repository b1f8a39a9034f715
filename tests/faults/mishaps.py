"""What befalls the way of a message: servers killed with -9 and started again, disks without room for a while."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rig.disk import SmallDisk
from rig.process import RigError, ServerProcess

STARTS = 20  # tries to start what was killed, as whatever watches over services does


class Mishap(Protocol):
    name: str

    def happen(self, chance: random.Random) -> None:
        """Let it happen; return once something else may."""

    def end(self) -> None:
        """Make it good."""


class Kill:
    """Kill a server with all its workers, and start it again a moment later."""

    def __init__(self, server: ServerProcess) -> None:
        self.name = f"{server.name} killed"
        self.failed_starts = 0
        self._server = server

    def happen(self, chance: random.Random) -> None:
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


class Full:
    """Leave no room on a disk for a few seconds; other things happen meanwhile."""

    def __init__(self, name: str, disk: SmallDisk) -> None:
        self.name = f"{name} full"
        self._disk = disk
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def happen(self, chance: random.Random) -> None:
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
class Happened:
    name: str
    moment: float


class Fate:
    """Draws mishaps like cards: at random, and each once before any comes again."""

    def __init__(self, mishaps: Sequence[Mishap], chance: random.Random) -> None:
        self.happened: list[Happened] = []
        self._mishaps = mishaps
        self._chance = chance
        self._deck: list[Mishap] = []

    @property
    def rounds(self) -> int:
        """Tell how often each of them has happened at least."""
        return len(self.happened) // len(self._mishaps)

    @property
    def counts(self) -> Counter[str]:
        return Counter(each.name for each in self.happened)

    def wait(self, least: float, most: float, meanwhile: Callable[[], None]) -> None:
        """Let a moment of random length pass."""
        end = time.monotonic() + self._chance.uniform(least, most)
        meanwhile()
        time.sleep(max(end - time.monotonic(), 0.0))

    def strike(self) -> None:
        if not self._deck:
            self._deck = self._chance.sample(self._mishaps, len(self._mishaps))
        mishap = self._deck.pop()
        self.happened.append(Happened(mishap.name, time.time()))
        mishap.happen(self._chance)

    @contextmanager
    def over_at_the_end(self) -> Iterator[None]:
        try:
            yield
        finally:
            for mishap in self._mishaps:
                mishap.end()
