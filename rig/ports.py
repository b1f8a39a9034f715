"""Free loopback ports for servers."""

import contextlib
import random
import socket
from pathlib import Path

LOWEST = 20_000
_given: set[int] = set()


def free_port(preferred: int | None = None) -> int:
    """Find a port that is free for TCP and UDP, below those the kernel hands to outgoing connections.

    A client that knocks at a dead server's port could otherwise be given that very port and reach itself.
    """
    if preferred is not None and _is_free(preferred):
        _given.add(preferred)
        return preferred
    highest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    candidates = range(LOWEST, highest) if highest > LOWEST + 1_000 else range(61_000, 65_536)
    for _ in range(1_000):
        port = random.choice(candidates)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port
    raise OSError("no free loopback port")


def _is_free(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with contextlib.closing(socket.socket(socket.AF_INET, kind)) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
