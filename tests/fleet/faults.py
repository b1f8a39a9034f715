"""Injects one fault, waits until the fleet serves in spite of it, repairs it, and measures both."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.fleet.checks import oldest_waiting
from tests.fleet.component import Component, wait_until_well
from tests.fleet.loads import FleetLoad, longest_gap
from tests.fleet.schedule import Planned
from tests.fleet.topology import Fleet
from tests.waiting import wait_until
from workshop.rig.caller import NoAnswerError
from workshop.rig.patroni import primary_of
from workshop.rig.process import RigError, ServerProcess

SERVE_SECONDS = 60.0  # until scans and list changes succeed again while the fault lasts
WELL_SECONDS = 120.0  # until every component is well again after the repair
WRITTEN_SECONDS = 120.0  # until history has every row from before the repair
# The longest times without a success that a fault may cause, and that history may take to catch up.
MAX_WITHOUT_SCANS = 30.0
MAX_WITHOUT_LISTS = 75.0
MAX_UNWRITTEN = 60.0


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that is over; the times are in seconds."""

    name: str
    without_scans: float
    without_lists: float
    repaired: float
    written: float  # from the repair until the journals had no row from before it

    @property
    def in_time(self) -> bool:
        served = self.without_scans <= MAX_WITHOUT_SCANS and self.without_lists <= MAX_WITHOUT_LISTS
        return served and self.written <= MAX_UNWRITTEN

    def __str__(self) -> str:
        without = f"scans {self.without_scans:.1f}, lists {self.without_lists:.1f}"
        return f"{self.name} ({without}, well {self.repaired:.1f}, history {self.written:.1f} s)"


def inject(fleet: Fleet, planned: Planned, load: FleetLoad) -> Injected:
    """Inject a fault for its time and until the fleet serves; return when all components are well again."""
    part = _target(fleet, planned)
    name = f"{planned.kind} {part.name}" + (f" {planned.server}" if planned.server else "")
    name += "*" if planned.primary else ""
    began = time.monotonic()
    begin, repair = _server_fault(part, planned) if planned.server else _fault(part, planned)
    begin()
    try:
        time.sleep(planned.seconds)
        serving = wait_until(lambda: _serves(load, began), SERVE_SECONDS, 0.1)
    finally:
        over = time.monotonic()
        repair()
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(_wait_until_written, fleet, over)
        wait_until_well(list(fleet.components.values()), WELL_SECONDS)
        took = time.monotonic() - over
        written = writing.result()
    if not serving and not wait_until(lambda: _serves(load, began), SERVE_SECONDS, 0.1):
        raise RigError(f"{name}: scans or list changes did not come back")
    return Injected(name, longest_gap(load.scanned(), began), longest_gap(load.written(), began), took, written)


def _wait_until_written(fleet: Fleet, since: float) -> float:
    """Return the seconds until history has every row from before a moment."""

    def is_written() -> bool:
        try:
            return oldest_waiting(fleet) < time.monotonic() - since
        except (OSError, AssertionError, NoAnswerError):  # a guard that starts has no figures yet
            return False

    if not wait_until(is_written, WRITTEN_SECONDS, 0.5):
        raise RigError(f"rows that waited in a journal {WRITTEN_SECONDS:.0f} s ago are not written")
    return time.monotonic() - since


def _serves(load: FleetLoad, since: float) -> bool:
    """Return whether a scan and a list change began and succeeded in the last seconds of the fault."""
    recent = max(since, time.monotonic() - 3.0)
    return any(began > recent for began in load.scans_begun()) and any(each > recent for each in load.written())


def _target(fleet: Fleet, planned: Planned) -> Component:
    if planned.primary and (primary := primary_of(fleet.databases)):
        return fleet.components[primary.name]
    return fleet.components[planned.component]


def _fault(part: Component, planned: Planned) -> tuple[Callable[[], None], Callable[[], None]]:
    match planned.kind:
        case "cut":
            return part.host.cut, part.host.heal
        case "kill":
            return part.kill, part.start
        case "pause":
            return part.pause, part.resume
        case "full":
            return part.fill, part.empty


def _server_fault(part: Component, planned: Planned) -> tuple[Callable[[], None], Callable[[], None]]:
    server = _server(part, planned.server)
    return (server.kill, part.start) if planned.kind == "kill" else (server.pause, server.resume)


def _server(part: Component, name: str) -> ServerProcess:
    return next(server for server in part.servers if server.name == name)
