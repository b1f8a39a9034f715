"""A resolver that fails on demand: it forwards queries to the rig's, or fails them in a chosen way."""

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
PATIENCE = 2.0
SLOW_SECONDS = 4.0

Mood = Literal["steady", "silent", "servfail", "slow", "nxdomain"]


class UnsteadyDns:
    """Answers UDP queries in its own threads; `mood` may be changed at any time."""

    def __init__(self, behind: str) -> None:
        host, _, port = behind.rpartition(":")
        self.mood: Mood = "steady"
        self._behind = (host, int(port))
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
                question, caller = self._socket.recvfrom(4_096)
            except OSError:
                return
            threading.Thread(target=self._answer, args=(question, caller, self.mood), daemon=True).start()

    def _answer(self, question: bytes, caller: tuple[str, int], mood: Mood) -> None:
        if mood == "silent":
            return
        if mood == "slow":
            time.sleep(SLOW_SECONDS)
        try:
            reply = _failure(question, mood) if mood in ("servfail", "nxdomain") else self._ask(question)
            self._socket.sendto(reply, caller)
        except (OSError, dns.exception.DNSException):
            return  # the client retries, or gives up

    def _ask(self, question: bytes) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.settimeout(PATIENCE)
            way.sendto(question, self._behind)
            return way.recv(65_535)


def _failure(question: bytes, mood: Mood) -> bytes:
    reply = dns.message.make_response(dns.message.from_wire(question), recursion_available=True)
    reply.set_rcode(dns.rcode.SERVFAIL if mood == "servfail" else dns.rcode.NXDOMAIN)
    return reply.to_wire()
