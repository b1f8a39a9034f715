"""The settings of the SMTP listener and of its next hop."""

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mailwarden.settings.shared import LOOPBACK, PORTS, Count, Listen, Milliseconds, network_mistakes

Connections = Annotated[
    int, Meta(ge=1, le=100_000, description="Concurrent connections; guard asks further clients to retry.")
]


class SmtpListen(Listen, frozen=True, rename="camel", forbid_unknown_fields=True):
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 10025


class Smtp(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The scan source that stands beside Postfix; see docs/smtp.md."""

    mode: Annotated[
        Literal["beforeQueue", "afterQueue"],
        Meta(
            description="`beforeQueue`: Postfix asks while the sender waits (`smtpd_proxy_filter`), so that a bounce "
            "is an answer; `afterQueue`: Postfix has taken the message (`content_filter`), so that nothing bounces."
        ),
    ] = "beforeQueue"
    listen: Annotated[SmtpListen, Meta(description="Listener for Postfix.")] = SmtpListen()
    public: Annotated[bool, Meta(description="Allows a `listen.host` that is neither loopback nor private.")] = False
    clients: Annotated[
        tuple[str, ...], Meta(min_length=1, description="Networks that may connect; guard trusts their envelope data.")
    ] = LOOPBACK
    next_hop: Annotated[str, Meta(description="`host:port` of the Postfix that receives delivered messages.")] = (
        "127.0.0.1:10026"
    )
    next_hop_timeout: Annotated[
        Milliseconds, Meta(description="Longest wait for one reply of the next hop, in ms.")
    ] = 30_000
    max_connections: Annotated[Count, Meta(description="Concurrent sessions; further clients get 421.")] = 200
    max_message_size: Annotated[
        int, Meta(ge=65_536, le=52_428_800, description="Largest accepted message, in bytes.")
    ] = 52_428_800
    max_recipients: Annotated[int, Meta(ge=100, le=1_000, description="Recipients of one message.")] = 1_000
    command_timeout: Annotated[Milliseconds, Meta(description="Longest wait for a complete command, in ms.")] = 300_000
    data_timeout: Annotated[Milliseconds, Meta(description="Longest time to receive a message, in ms.")] = 60_000

    @property
    def next_hop_address(self) -> tuple[str, int]:
        host, _, port = self.next_hop.rpartition(":")
        return host.removeprefix("[").removesuffix("]"), int(port)

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not self.public and not is_inside(self.listen.host):
            problem = (
                f"`{self.listen.host}` is not a loopback or private address. guard trusts every client of this port, "
                "so it must not be reachable from outside; `public: true` allows it"
            )
            yield "listen", problem
        yield from network_mistakes("clients", self.clients)
        host, _, port = self.next_hop.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            yield "nextHop", f"`{self.next_hop}` is not host:port"
        elif host in ("127.0.0.1", "localhost", "[::1]", self.listen.host) and int(port) == self.listen.port:
            yield "nextHop", "is where guard itself listens: every message would come back"


def is_inside(host: str) -> bool:
    """Return whether an address is loopback or private; a host name other than localhost is not trusted."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return not address.is_unspecified and (address.is_loopback or address.is_private)
