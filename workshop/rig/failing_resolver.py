"""A DNS resolver that fails on demand: it forwards queries to the rig's resolver or fails them."""

import socket
import threading
import time
from types import TracebackType
from typing import Literal, Self

import dns.exception
import dns.flags
import dns.message
import dns.rcode

HOST = "127.0.0.1"
TIMEOUT_SECONDS = 2.0
SLOW_SECONDS = 4.0

ResolverState = Literal["steady", "silent", "servfail", "slow", "nxdomain", "lossy"]


class FailingResolver:
    """Answers UDP queries in threads; `state` may be changed at any time."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.rpartition(":")
        self.state: ResolverState = "steady"
        self._lost: set[bytes] = set()
        self._upstream = (host, int(port))
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((HOST, 0))
        self.address = f"{HOST}:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                query, caller = self._socket.recvfrom(4_096)
            except OSError:
                return
            threading.Thread(target=self._answer, args=(query, caller, self.state), daemon=True).start()

    def _answer(self, query: bytes, caller: tuple[str, int], state: ResolverState) -> None:
        if state == "silent" or (state == "lossy" and self._loses(query)):
            return
        if state == "slow":
            time.sleep(SLOW_SECONDS)
        try:
            reply = _failure(query, state) if state in ("servfail", "nxdomain") else self._ask(query)
            self._socket.sendto(reply, caller)
        except (OSError, dns.exception.DNSException):
            return  # the client retries or gives up

    def _loses(self, query: bytes) -> bool:
        """Return whether the first packet of this question is lost; the id in front of it may change."""
        question = query[2:]
        first = question not in self._lost
        self._lost.add(question)
        return first

    def _ask(self, query: bytes) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.settimeout(TIMEOUT_SECONDS)
            way.sendto(query, self._upstream)
            return way.recv(65_535)


def _failure(query: bytes, state: ResolverState) -> bytes:
    reply = dns.message.make_response(dns.message.from_wire(query), recursion_available=True)
    reply.set_rcode(dns.rcode.SERVFAIL if state == "servfail" else dns.rcode.NXDOMAIN)
    return reply.to_wire()
