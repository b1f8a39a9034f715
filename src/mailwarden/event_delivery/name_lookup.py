"""Looks up the names of receivers in threads of its own: one thread for each name, all within a deadline.

asyncio looks names up in the threads that uploads and scans use, so one receiver with a slow DNS server could hold them
all. The threads here are daemons: a lookup that hangs delays no shutdown.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from threading import Thread

DEADLINE = 10.0  # seconds for one answer
MAX_LOOKUPS = 100  # names at once: one for each receiver, so that none waits for another

Lookup = Callable[[str], Awaitable[Sequence[str]]]


class LookupFailed(OSError):
    """A name was not looked up to its end; `strerror` says why."""


def resolve(host: str) -> Sequence[str]:
    """Return the addresses of a name by the system's resolver."""
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class NameLookup:
    """A `Lookup`. Callers that need the same name at the same time share one thread and its answer."""

    def __init__(self, system: Callable[[str], Sequence[str]] = resolve) -> None:
        self._system = system
        self._running: dict[str, asyncio.Future[Sequence[str]]] = {}

    async def __call__(self, host: str) -> Sequence[str]:
        """Return the addresses of a name, or raise OSError."""
        answer = self._running.get(host) or self._start(host)
        try:
            async with asyncio.timeout(DEADLINE):
                return await asyncio.shield(answer)  # the other callers still need it
        except TimeoutError:
            sentence = f"its name did not resolve within {DEADLINE:.0f} seconds"
            raise LookupFailed(errno.ETIMEDOUT, sentence) from None

    def _start(self, host: str) -> asyncio.Future[Sequence[str]]:
        if len(self._running) >= MAX_LOOKUPS:
            raise LookupFailed(errno.EAGAIN, f"{MAX_LOOKUPS} other names are being looked up")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()
        Thread(target=self._run, args=(host, loop, answer), name="event name lookup", daemon=True).start()
        self._running[host] = answer
        answer.add_done_callback(lambda _: self._running.pop(host))
        return answer

    def _run(self, host: str, loop: asyncio.AbstractEventLoop, answer: asyncio.Future[Sequence[str]]) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile, and with it the callers
            try:
                found = self._system(host)
            except Exception as error:  # the callers get it
                loop.call_soon_threadsafe(answer.set_exception, error)
            else:
                loop.call_soon_threadsafe(answer.set_result, found)
