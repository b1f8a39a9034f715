"""systemd's protocols for services: readiness and watchdog (sd_notify(3)), sockets that it opens (sd_listen_fds(3)).

Without systemd every function here does nothing.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from mailwarden.telemetry.logs import get_logger

_FIRST_INHERITED_SOCKET = 3
_SEND_SECONDS = 0.5  # if the service manager reads nothing and its queue is full
_PINGS_PER_TIMEOUT = 3  # systemd kills the process after one timeout without a ping

log = get_logger(__name__)


def notify(state: str) -> None:
    """Send a state such as `READY=1` to the service manager, if it waits for one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    target = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.settimeout(_SEND_SECONDS)
        try:
            sender.sendto(state.encode(), target)
        except OSError as error:
            log.warning("service_manager_not_notified", state=state, reason=str(error))


def notify_reloading() -> None:
    """Announce a reload; `READY=1` ends it (Type=notify-reload needs the time of its start)."""
    notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")


@asynccontextmanager
async def running() -> AsyncIterator[None]:
    """Announce readiness, answer the watchdog from the event loop, and announce the stop."""
    notify("READY=1")
    watchdog = asyncio.create_task(_ping(watchdog_seconds() / _PINGS_PER_TIMEOUT))
    try:
        yield
    finally:
        notify("STOPPING=1")
        watchdog.cancel()
        with suppress(asyncio.CancelledError):
            await watchdog


def watchdog_seconds() -> float:
    """Return after how many seconds without a ping systemd kills this process; 0 if it does not watch it."""
    timeout = os.environ.get("WATCHDOG_USEC", "")
    watched = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(timeout) / 1_000_000 if watched and timeout.isascii() and timeout.isdigit() else 0.0


async def _ping(pause: float) -> None:
    while pause:
        notify("WATCHDOG=1")
        await asyncio.sleep(pause)


def inherited_socket(unit: str = "") -> socket.socket | None:
    """Return the listening socket that systemd opened for this process, if any.

    A process with several listeners names the socket unit of each (`LISTEN_FDNAMES`); one with a single listener takes
    the only socket.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    if unit:
        names = os.environ.get("LISTEN_FDNAMES", "").split(":")
        number = names.index(unit) if unit in names else -1
    else:
        number = 0 if os.environ.get("LISTEN_FDS") == "1" else -1
    if number < 0:
        return None
    inherited = socket.socket(fileno=_FIRST_INHERITED_SOCKET + number)
    inherited.setblocking(False)
    return inherited
