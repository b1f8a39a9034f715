"""Free space of the file systems below a process's folders, measured in the background."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from mailwarden.telemetry.metrics import Metrics, Samples
from mailwarden.telemetry.periodic_task import PeriodicTask

INTERVAL = 15.0


class Space(Struct, frozen=True):
    free: int
    size: int


class DiskMetrics:
    """Measures in a thread: a scrape must not wait for a network file system that hangs."""

    def __init__(self, metrics: Metrics, folders: Mapping[str, Path]) -> None:
        self._folders = dict(folders)
        self._spaces: dict[str, Space] = {}
        self._task = PeriodicTask("disk metrics", self.measure, INTERVAL)
        metrics.read_gauge(
            "disk_free_bytes",
            "Bytes free for this user on the file system of a folder.",
            lambda: self._samples(lambda space: space.free),
            "folder",
        )
        metrics.read_gauge(
            "disk_size_bytes",
            "Size of the file system of a folder.",
            lambda: self._samples(lambda space: space.size),
            "folder",
        )

    def start(self) -> None:
        self._task.start(at_once=True)

    async def stop(self) -> None:
        await self._task.stop()

    async def measure(self) -> None:
        """Measure each folder; a folder that does not exist yet or cannot be read has no sample."""
        self._spaces = await asyncio.to_thread(lambda: dict(self._measured()))

    def _measured(self) -> Iterator[tuple[str, Space]]:
        for name, folder in self._folders.items():
            if (space := space_of(folder)) is not None:
                yield name, space

    def _samples(self, value: Callable[[Space], int]) -> Samples:
        return [((name,), value(space)) for name, space in self._spaces.items()]


def space_of(folder: Path) -> Space | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)
