"""Starts the whole fleet, and removes it: every process is killed, and namespaces and mounts end with the container."""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.fleet.component import Component, wait_until_well
from tests.fleet.history import add_clickhouse, prepare_history
from tests.fleet.namespaces import run
from tests.fleet.topology import (
    VAULT_MEBIBYTES,
    Fleet,
    Size,
    add_abbys,
    add_databases,
    add_edges,
    add_engines,
    add_guards,
    add_postfix,
    add_redis,
    create_hosts,
    initialise,
)
from workshop.rig.disk import SmallDisk
from workshop.rig.folders import make_folder
from workshop.rig.patroni import wait_until_protected

ROOT = Path("/mnt/fleet")  # on a file system of the container alone
START_SECONDS = 180.0


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def running_fleet(size: Size, milliseconds: float, sink_port: int) -> Iterator[Fleet]:
    """Start all hosts and servers; kill them on the way out, and remove everything so that another fleet can follow."""
    began = time.monotonic()
    run("mount", "-t", "tmpfs", "-o", "mode=755,size=8g", "tmpfs", "/mnt")
    fleet, switch = create_hosts(make_folder(ROOT), size, milliseconds)
    try:
        add_databases(fleet)
        if size.redis:
            add_redis(fleet)
        if size.clickhouse:
            add_clickhouse(fleet)
        add_engines(fleet)
        start_all([part for part in fleet.components.values() if part.stages])
        wait_until_protected(fleet.databases)
        say(f"databases and engines answer after {time.monotonic() - began:.0f} s")
        initialise(fleet)
        if size.clickhouse:
            prepare_history(fleet)
        SmallDisk(fleet.vault, VAULT_MEBIBYTES).mount()
        add_postfix(fleet, sink_port)
        add_abbys(fleet)
        add_guards(fleet)
        add_edges(fleet)
        start_all([*fleet.of_kind("guard"), *fleet.of_kind("mx")])
        start_all([*fleet.of_kind("abby"), *fleet.of_kind("lb")])
        wait_until_well(list(fleet.components.values()), START_SECONDS)
        say(f"the fleet answers after {time.monotonic() - began:.0f} s: {' '.join(fleet.components)}")
        yield fleet
    finally:
        fleet.kill()
        switch.kill()
        for folder in ("/mnt", "/run"):
            run("umount", "--lazy", "--recursive", folder)


def start_all(parts: Sequence[Component]) -> None:
    with ThreadPoolExecutor(max(1, len(parts))) as threads:
        for starting in [threads.submit(part.start) for part in parts]:
            starting.result()
