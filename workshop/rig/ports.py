"""Free loopback ports for servers."""

import atexit
import contextlib
import functools
import random
import socket
from pathlib import Path

LOWEST = 20_000
STRETCH = 2_000
_given: set[int] = set()


def free_port(preferred: int | None = None) -> int:
    """Find a port that is free for TCP and UDP, below the kernel's range for outgoing connections.

    Otherwise a client that connects to a stopped server's port could get that port as its own and reach itself.
    """
    if preferred is not None and is_free(preferred):
        _given.add(preferred)
        return preferred
    for _ in range(1_000):
        port = random.choice(_stretch())
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OSError("No loopback port is free. Stop other programs that listen on 127.0.0.1.")


@functools.cache
def _stretch() -> range:
    """Reserve ports while this process lives, so that no other rig takes those of a server that is down."""
    highest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text("ascii").split()[0])
    candidates = range(LOWEST, highest) if highest > LOWEST + 1_000 else range(61_000, 65_536)
    starts = list(candidates[: 1 - STRETCH : STRETCH])
    for start in random.sample(starts, len(starts)):
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0mailwarden-rig-ports-{start}")
        except OSError:
            claim.close()
            continue
        atexit.register(claim.close)
        return range(start, start + STRETCH)
    return candidates  # there are too many rigs: they share ports


def is_free(port: int) -> bool:
    """Return whether a server may listen on this port, for TCP and for UDP."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with contextlib.closing(socket.socket(socket.AF_INET, kind)) as probe:
            if kind == socket.SOCK_STREAM:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
