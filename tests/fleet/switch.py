"""The switch of the fleet: joins the hosts' network namespaces and delivers every frame after the same delay.

The kernel's netem is not everywhere, so this process holds one tap device a namespace: a frame is read from one, waits,
and is written to the other. `python -m tests.fleet.switch MILLISECONDS NAMESPACE...` runs until it is killed.
"""

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque
from collections.abc import Iterable

from tests.fleet.namespaces import HERE, enter

DEVICE = "eth0"
BURST = 64  # frames of one host before the others are looked at
MAX_WAITING = 50_000  # frames; further ones are lost, as in a real switch
MAX_FRAME = 65_536
IDLE_SECONDS = 0.5
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


def open_tap(namespace: str) -> int:
    """Create the device in a namespace; it lives as long as this process."""
    enter(namespace)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode("ascii"), _IFF_TAP | _IFF_NO_PI))
    return tap


class Switch:
    """Learns which address is behind which device; frames for all, and for unknown addresses, go to every other one."""

    def __init__(self, taps: Iterable[int], delay: float) -> None:
        self._taps = tuple(taps)
        self._delay = delay
        self._waiting: deque[tuple[float, int, bytes]] = deque()
        self._places: dict[bytes, int] = {}
        self._stopped = False

    def run(self) -> None:
        """Pass frames on until `stop`."""
        with select.epoll() as poll:
            for tap in self._taps:
                poll.register(tap, select.EPOLLIN)
            while not self._stopped:
                left = self._waiting[0][0] - time.monotonic() if self._waiting else IDLE_SECONDS
                for tap, _ in poll.poll(max(left, 0.0)):
                    self._receive(tap)
                self._deliver(time.monotonic())

    def stop(self) -> None:
        self._stopped = True

    def _receive(self, tap: int) -> None:
        due = time.monotonic() + self._delay
        for _ in range(BURST):
            try:
                frame = os.read(tap, MAX_FRAME)
            except OSError:  # nothing more, or the device is down
                return
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append((due, tap, frame))

    def _deliver(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, source, frame = self._waiting.popleft()
            self._places[frame[6:12]] = source
            target = None if frame[0] & 1 else self._places.get(frame[:6])
            for tap in (target,) if target is not None else self._taps:
                if tap != source:
                    _write(tap, frame)


def _write(tap: int, frame: bytes) -> None:
    try:
        os.write(tap, frame)
    except OSError:
        return  # the host takes no frames now: this one is lost


def main() -> None:
    milliseconds, *namespaces = sys.argv[1:]
    os.nice(-15)  # a busy machine must not stretch the delay
    taps = [open_tap(namespace) for namespace in namespaces]
    enter(HERE)  # a fault of a host hits every process in its namespace
    Switch(taps, float(milliseconds) / 1000).run()


if __name__ == "__main__":
    main()
