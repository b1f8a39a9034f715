"""Runs a product whose processes record their calls, and reads what they recorded."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from msgspec import Struct

from workshop.rig.engines import Engines
from workshop.rig.product import Overrides, Product, install_product

RECORDER = Path(__file__).parent / "recorder"
_MARK = "story: "
PATIENCE = 30.0


class Call(Struct, frozen=True):
    """A call of a function: when, by which function, and the message it was about."""

    moment: float
    name: str  # file:function
    caller: str
    scan: str


@contextmanager
def recorded_product(
    folder: Path, engines: Engines, name: str, *, guards: tuple[Overrides, ...] = ({},), one_process: bool = False
) -> Iterator[Product]:
    """Start a product that can record."""
    url = engines.postgresql.create_database(name)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(RECORDER)
    try:
        product = install_product(folder, engines, url, guards=guards, one_process=one_process)
        product.start()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    with product:
        yield product


def record(product: Product, act: Callable[[], object]) -> list[Call]:
    """Return what the processes of the product call during an act, in order of time."""
    processes = {service.pid for service in product.services}
    logs = {service.log for service in product.services}
    before = {log: log.stat().st_size for log in logs}
    _signal(processes, signal.SIGUSR1)
    time.sleep(0.2)
    act()
    time.sleep(1.0)  # the row of history is written a moment after the answer
    _signal(processes, signal.SIGUSR2)
    end, calls = time.monotonic() + PATIENCE, list[Call]()
    while True:
        lines = [line for log in logs for line in _lines(log, before[log])]
        if lines.count("end") == len(processes):
            break
        if time.monotonic() > end:
            raise TimeoutError(f"{lines.count('end')} of {len(processes)} processes wrote what they recorded")
        time.sleep(0.1)
    calls = [Call(*json.loads(line)) for line in lines if line != "end"]
    return sorted(calls, key=lambda call: call.moment)


def recorded_here(act: Callable[[], object]) -> list[Call]:
    """Return what an act calls in this process, such as the steps of a worker."""
    spec = spec_from_file_location("recorder", RECORDER / "sitecustomize.py")
    assert spec is not None
    assert spec.loader is not None
    recorder = module_from_spec(spec)
    spec.loader.exec_module(recorder)
    recorder.begin()
    try:
        act()
    finally:
        calls = recorder.end()
    return [Call(*call) for call in calls]


def _signal(processes: set[int], number: signal.Signals) -> None:
    for pid in processes:
        os.kill(pid, number)


def _lines(log: Path, start: int) -> list[str]:
    with log.open("rb") as file:
        file.seek(start)
        text = file.read().decode("utf-8", "replace")
    return [line.removeprefix(_MARK) for line in text.splitlines() if line.startswith(_MARK)]
