"""A tenant moves between two cells under scans, list changes and held mail: 0 lost; then its old cell dies."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import requests

from rig.cells import Cell, Fleet, install_fleet
from rig.clickhouse import EmbeddedClickhouse
from rig.engines import Engines
from rig.ports import free_port
from rig.samples import plain_message, spam_message
from tests.acceptance.client import Client, envelope
from tests.acceptance.list_client import ListClient
from tests.acceptance.smtp import Sink, send
from tests.faults.conftest import Note
from tests.waiting import wait_until

SECONDS = float(os.environ.get("SECONDS", "4"))  # of load before and after the move
ANN = "ann@alpha.example"
LIST = "url-allow"
PATIENCE = 60.0  # for one change, with all its retries
GOAL_SECONDS = 5.0
FINISH_SECONDS = 240.0  # with ClickHouse the end of a move waits for a minute

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@dataclass(slots=True)
class Load:
    """What callers were told, and the longest time that one waited."""

    stopped: threading.Event = field(default_factory=threading.Event)
    entries: list[str] = field(default_factory=list)
    subjects: list[str] = field(default_factory=list)
    scans: list[str] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)
    longest: dict[str, float] = field(default_factory=dict)

    def repeat(self, kind: str, attempt: Callable[[str], str | None], told: list[str]) -> None:
        """Make one change after the other, each again until it is accepted."""
        number = 0
        while not self.stopped.is_set():
            number += 1
            name = f"{kind}{threading.get_ident()}x{number}"
            began = time.monotonic()
            while (answer := self._try(attempt, name)) is None:
                if time.monotonic() - began > PATIENCE:
                    self.unanswered.append(name)
                    break
                time.sleep(0.05)
            else:
                told.append(answer)
            self.longest[kind] = max(self.longest.get(kind, 0.0), time.monotonic() - began)

    @staticmethod
    def _try(attempt: Callable[[str], str | None], name: str) -> str | None:
        try:
            return attempt(name)
        except (requests.RequestException, OSError):
            return None


@pytest.fixture
def sink() -> Iterator[Sink]:
    with Sink() as running:
        yield running


IN_FULL = pytest.mark.skipif(os.environ.get("MAILWARDEN_FULL") != "1", reason="make test-cells runs it")


@pytest.fixture(params=["postgresql", pytest.param("clickhouse", marks=IN_FULL)])
def store(request: pytest.FixtureRequest) -> str:
    """Where both cells have their history."""
    return str(request.param)


@pytest.fixture
def fleet(
    engines: Engines,
    database_template: str,
    sink: Sink,
    tmp_path: Path,
    store: str,
    request: pytest.FixtureRequest,
) -> Iterator[Fleet]:
    ports = {"a": free_port(), "b": free_port()}
    tenants = {"a": ["alpha", "gamma"], "b": ["beta"]}
    installed = install_fleet(
        tmp_path, engines, database_template, tenants, next_hop=sink.port, smtp_ports=ports, prefix=f"moving_{store}"
    )
    if store == "clickhouse":
        server: EmbeddedClickhouse = request.getfixturevalue("clickhouse_server")
        for cell in installed.cells.values():
            use_clickhouse(cell, server)
    with installed as running:
        running.start()
        yield running


def use_clickhouse(cell: Cell, server: EmbeddedClickhouse) -> None:
    """Give the cell a database of its own for its history."""
    there = {"urls": [server.address], "database": f"cell_{cell.name}"}
    for service in (cell.product.abby, *cell.product.guards):
        service.configure({"history": {"store": "clickhouse", "clickhouse": there}})
    cell.run("history", "prepare")


def client(cell: Cell, token: str | None = None) -> Client:
    return Client(cell.product.url, cell.product.ca, token or cell.product.token)


def alpha_lists(fleet: Fleet, at: str) -> ListClient:
    home = fleet.cells["a"]
    return ListClient(client(fleet.cells[at]).using(None), home.keys["alpha"], home.tenants["alpha"])


def scan_at(cell: Cell, message: bytes, recipient: str) -> str | None:
    answer = client(cell).submit(message, envelope(envelopeRecipients=[recipient]))
    assert answer.status in (200, 503, 502), answer.body
    return str(answer.json["ggrid"]) if answer.status == 200 else None


def change_at(fleet: Fleet, at: str, name: str) -> str | None:
    entry = f"{name}.example"
    status = alpha_lists(fleet, at).add(LIST, entry).status
    assert status != 401, "the key is known at each time"
    return entry if status == 200 else None


def hold_at(fleet: Fleet, message: bytes, name: str) -> str | None:
    """Send to the first cell, and to the second one if that has no room for it now, as an MTA does."""
    marked = message.replace(b"Subject: ", f"Subject: {name} ".encode(), 1)
    replies = (send(cell.smtp_port, marked, ANN, forward=True) for cell in fleet.cells.values())
    return name if any(reply.startswith("250") for reply in replies) else None


def held_subjects(cell: Cell) -> list[str]:
    found: list[dict[str, str]] = []
    while True:
        after = f"&after={found[-1]['uid']}" if found else ""
        page = client(cell).call("GET", f"/v1/quarantine?limit=100{after}").json["messages"]
        found += page
        if len(page) < 100:
            return [message["subject"].split()[0] for message in found]


def move_words(fleet: Fleet) -> list[str]:
    a, b = fleet.cells["a"], fleet.cells["b"]
    return ["tenants", "move", "alpha", "--to", "b", "--target", str(b.config), "--config", str(a.config)]


def kill_a_move(fleet: Fleet) -> None:
    """Begin a move, and kill the command in the middle."""
    words = [sys.executable, "-m", "mailwarden", *move_words(fleet)]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as command:
        assert command.stderr is not None
        assert command.stderr.readline(), "it reports its progress"
        command.kill()


def test_a_tenant_moves_under_load_and_nothing_is_lost(fleet: Fleet, store: str, note: Note) -> None:
    a, b = fleet.cells["a"], fleet.cells["b"]
    assert wait_until(lambda: scan_at(b, plain_message(), ANN) is not None)
    assert wait_until(lambda: alpha_lists(fleet, "b").available().status == 200)
    load = Load()
    with ThreadPoolExecutor(5) as threads:
        try:
            running = [
                threads.submit(load.repeat, "scan", lambda _: scan_at(a, plain_message(), ANN), load.scans),
                threads.submit(load.repeat, "scan", lambda _: scan_at(b, plain_message(), ANN), load.scans),
                threads.submit(load.repeat, "list", lambda name: change_at(fleet, "a", name), load.entries),
                threads.submit(load.repeat, "list", lambda name: change_at(fleet, "b", name), load.entries),
                threads.submit(load.repeat, "held", lambda name: hold_at(fleet, spam_message(), name), load.subjects),
            ]
            time.sleep(SECONDS)
            kill_a_move(fleet)
            time.sleep(0.5)
            printed = a.run(*move_words(fleet)[:-2])
            time.sleep(SECONDS)
        finally:
            load.stopped.set()
        for each in running:
            each.result()
    assert "changes paused for" in printed

    stored = set(alpha_lists(fleet, "b").names(LIST))
    lost = [entry for entry in load.entries if entry not in stored]
    in_a, in_b = held_subjects(a), held_subjects(b)
    lost += [subject for subject in load.subjects if in_b.count(subject) != 1 or subject in in_a]
    assert wait_until(lambda: "0 rows of history" in a.run(*move_words(fleet)[:-2], "--finish"), FINISH_SECONDS)
    lost += [ggrid for ggrid in load.scans if client(b).call("GET", f"/v1/messages/{ggrid}").status != 200]
    assert len(load.scans) > 5
    assert len(load.entries) > 5
    assert load.subjects

    a.product.kill()
    answered = [scan_at(b, plain_message(), each) is not None for each in [ANN, "ben@beta.example"] * 10]
    refused = client(b).submit(plain_message(), envelope(envelopeRecipients=["cay@gamma.example"]))
    assert (refused.status, refused.error) == (503, "cell_unreachable")

    pause = max(load.longest["list"], load.longest["held"])
    figures = (
        f"cells, history in {store}: {len(load.scans)} scans, {len(load.entries)} list changes and "
        f"{len(load.subjects)} held messages while a tenant moved, {len(lost) + len(load.unanswered)} lost; "
        f"longest pause {pause:.2f} s, longest scan {load.longest['scan']:.2f} s; "
        f"{printed.partition(': ')[2].partition(',')[0]}; "
        f"with a dead cell {sum(answered)} of {len(answered)} answered"
    )
    note(figures)
    assert lost == []
    assert load.unanswered == []
    assert all(answered)
    assert pause < GOAL_SECONDS
