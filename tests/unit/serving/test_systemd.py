"""systemd learns when a process is ready, alive, reloading and stopping."""

import asyncio
import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from mailwarden.serving import systemd

FREE = 700  # descriptors from this number on are in use by nothing else


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listening


def received(manager: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(manager.recv(4096).decode())
        except BlockingIOError:
            return found


async def test_ready_pings_and_stopping(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "75000")
    async with systemd.running():
        await asyncio.sleep(0.1)  # four pings; a socket holds few datagrams that nobody has read
    states = received(manager)
    assert (states[0], states[-1]) == ("READY=1", "STOPPING=1")
    assert len(states) >= 4
    assert set(states[1:-1]) == {"WATCHDOG=1"}


async def test_without_a_watchdog_nothing_is_pinged(manager: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "30000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid() + 1))
    async with systemd.running():
        await asyncio.sleep(0)
    assert received(manager) == ["READY=1", "STOPPING=1"]


def test_a_reload_states_its_time(manager: socket.socket) -> None:
    systemd.notify_reloading()
    (state,) = received(manager)
    first, second = state.splitlines()
    assert first == "RELOADING=1"
    assert second.removeprefix("MONOTONIC_USEC=").isdigit()


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket", "@no-such-socket"])
def test_a_missing_service_manager_is_no_failure(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd.notify("READY=1")


def test_an_abstract_socket_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0mailwarden-test-{os.getpid()}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@mailwarden-test-{os.getpid()}")
        systemd.notify("READY=1")
        assert listening.recv(100) == b"READY=1"


@pytest.fixture
def inherited(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[socket.socket]]:
    """Two sockets as systemd passes them, numbered from the first of them instead of 3."""
    with socket.socket() as first, socket.socket() as second:
        for each in (first, second):
            each.bind(("127.0.0.1", 0))
        # Both above the descriptors of other tests, so that the second follows the first.
        numbers = [fcntl.fcntl(first, fcntl.F_DUPFD, FREE)]
        numbers.append(fcntl.fcntl(second, fcntl.F_DUPFD, numbers[0] + 1))
        assert numbers[1] == numbers[0] + 1
        monkeypatch.setattr(systemd, "_FIRST_INHERITED_SOCKET", numbers[0])
        monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
        yield [first, second]
        for number in numbers:
            with contextlib.suppress(OSError):  # the test has closed it
                os.close(number)


def taken(unit: str = "") -> int | None:
    found = systemd.inherited_socket(unit)
    if found is None:
        return None
    with found:
        return int(found.getsockname()[1])


def test_one_listener_takes_the_only_socket(inherited: list[socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_FDS", "2")
    assert taken() is None
    monkeypatch.setenv("LISTEN_FDS", "1")
    assert taken() == inherited[0].getsockname()[1]


def test_two_listeners_take_the_sockets_of_their_units(
    inherited: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LISTEN_FDS", "2")
    monkeypatch.setenv("LISTEN_FDNAMES", "mailwarden-abby.socket:mailwarden-guard.socket")
    assert taken("mailwarden-guard.socket") == inherited[1].getsockname()[1]
    assert taken("mailwarden-abby.socket") == inherited[0].getsockname()[1]
    assert taken("mailwarden-other.socket") is None
