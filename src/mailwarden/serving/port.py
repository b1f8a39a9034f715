"""Opens the port that a process listens on, or says in a sentence why it cannot."""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable

from mailwarden.errors import ConfigurationError
from mailwarden.settings.shared import Listen

BACKLOG = 1_024
EVERY_ADDRESS = "::"  # every address of this host, IPv4 and IPv6 on one socket (RFC 3493, section 5.3)
_REMEDIES = {
    errno.EADDRINUSE: "Another process has this port: end it, or choose another in `listen.port`.",
    errno.EADDRNOTAVAIL: "This host has no such address: set `listen.host`.",
    errno.EACCES: "This user may not take this port: choose one from 1024 on in `listen.port`.",
}


async def open_port(
    make: Callable[[], asyncio.BaseProtocol],
    listen: Listen,
    ssl_context: ssl.SSLContext | None = None,
    handshake_timeout: float | None = None,
) -> asyncio.Server:
    """Listen where the configuration says; a port that cannot be had is the operator's to mend."""
    loop = asyncio.get_running_loop()
    try:
        if listen.host == EVERY_ADDRESS and socket.has_dualstack_ipv6():
            both = socket.create_server((listen.host, listen.port), family=socket.AF_INET6, dualstack_ipv6=True)
            both.setblocking(False)
            return await loop.create_server(
                make, sock=both, ssl=ssl_context, ssl_handshake_timeout=handshake_timeout, backlog=BACKLOG
            )
        return await loop.create_server(
            make, listen.host, listen.port, ssl=ssl_context, ssl_handshake_timeout=handshake_timeout, backlog=BACKLOG
        )
    except socket.gaierror as error:
        reason, remedy = error.strerror, "Set `listen.host` to an address of this host."
    except OSError as error:
        # The loop puts words of its own around what the system said.
        reason = os.strerror(error.errno) if error.errno else str(error)
        remedy = _REMEDIES.get(error.errno or 0, "Set `listen.host` and `listen.port`.")
    raise ConfigurationError(f"Cannot listen on {listen.host} port {listen.port}: {reason}. {remedy}")
