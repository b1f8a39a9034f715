"""A component of the fleet: a host with its servers and its disk, which is killed, paused, cut off or filled whole."""

import contextlib
import functools
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.fleet.namespaces import Host
from tests.waiting import wait_until
from workshop.rig.disk import SmallDisk
from workshop.rig.engines import start_together
from workshop.rig.folders import make_folder
from workshop.rig.process import RigError, ServerProcess

STARTS = 8  # attempts to start a killed server, as a service manager does
RETRY_SECONDS = 1.0
POLL_SECONDS = 0.2
FILL_SECONDS = 10.0


@dataclass
class Component:
    """Servers start stage by stage; `well` says whether the component does its work, as other hosts see it."""

    host: Host
    folder: Path
    disk: SmallDisk
    stages: list[list[ServerProcess]] = field(default_factory=list)
    well: Callable[[], bool] = lambda: True
    _over: threading.Event = field(default_factory=threading.Event)
    _filling: threading.Thread | None = None

    @classmethod
    def create(cls, host: Host, root: Path, mebibytes: int) -> "Component":
        """Create the namespace and the disk; the switch and the servers come later."""
        host.create()
        folder = make_folder(root / host.name)
        disk = SmallDisk(folder / "disk", mebibytes)
        disk.mount()
        return cls(host, folder, disk)

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def servers(self) -> list[ServerProcess]:
        return [server for stage in self.stages for server in stage]

    def start(self) -> None:
        """Start what does not run, stage by stage."""
        for stage in self.stages:
            waiting = [server for server in stage if not server.running]
            if waiting:
                self.host.run(functools.partial(start_together, [_again(each) for each in waiting], waiting))

    def kill(self) -> None:
        """Kill every process of the host at once, as a power failure would."""
        self.host.signal(signal.SIGKILL)
        for server in self.servers:
            server.kill()

    def pause(self) -> None:
        """Stop every process of the host; connections stay open and nothing is answered."""
        self.host.signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.host.signal(signal.SIGCONT)

    def fill(self) -> None:
        """Keep the disk full until `empty`."""
        self._over.clear()
        self._filling = threading.Thread(target=self.disk.keep_full, args=(self._over,), daemon=True)
        self._filling.start()
        if not wait_until(self.disk.is_full, FILL_SECONDS, 0.05):
            raise RigError(f"the disk of {self.name} does not become full")

    def empty(self) -> None:
        self._over.set()
        if self._filling is not None:
            self._filling.join()
            self._filling = None

    def is_well(self) -> bool:
        """Return whether every server runs and the component answers other hosts."""
        try:
            return all(server.running for server in self.servers) and self.well()
        except (OSError, RigError):
            return False


def _again(server: ServerProcess) -> Callable[[], None]:
    """Return a start that is repeated: a server may not start while another one is still down."""

    def start() -> None:
        for number in range(STARTS):
            try:
                server.start()
            except RigError:
                if number == STARTS - 1:
                    raise
                time.sleep(RETRY_SECONDS)
            else:
                return

    return start


def wait_until_well(components: Sequence[Component], seconds: float) -> None:
    """Wait until all components are well; start servers that ended, as a service manager does."""
    began = time.monotonic()
    while ill := [each for each in components if not each.is_well()]:
        if time.monotonic() - began > seconds:
            names = ", ".join(each.name for each in ill)
            tails = "\n".join(server.log_tail() for each in ill for server in each.servers)
            raise RigError(f"not well again within {seconds:.0f} s: {names}\n{tails}")
        for each in ill:
            with contextlib.suppress(RigError):
                each.start()
        time.sleep(POLL_SECONDS)
