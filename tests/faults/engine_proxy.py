"""A proxy in front of a real engine that changes, truncates or delays its answers."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

# Gets the answer of the engine and the connection to the product.
Tamper = Callable[[bytes, socket.socket], None]
PATIENCE = 30.0


def pass_on(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(answer)


class EngineProxy:
    """Listens on its own unix socket; `tamper` may be changed between two requests.

    Pings and versions always pass, so that the engine counts as running.
    """

    def __init__(self, place: Path, engine: Path) -> None:
        self.tamper: Tamper = pass_on
        self.tampered = 0
        self._engine = engine
        self.address = f"unix:{place}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        self._listener.listen(128)
        self._stopped = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def wait(self, seconds: float) -> None:
        """Wait, at most until the end of the test."""
        self._stopped.wait(seconds)

    def _accept(self) -> None:
        while not self._stopped.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, socket.socket(socket.AF_UNIX) as engine:
            connection.settimeout(PATIENCE)
            engine.settimeout(PATIENCE)
            try:
                request = read_request(connection)
                engine.connect(str(self._engine))
                engine.sendall(request)
                answer = read_to_end(engine)
                if request.startswith((b"POST", b"zINSTREAM")):
                    self.tampered += 1
                    self.tamper(answer, connection)
                else:
                    pass_on(answer, connection)
            except OSError:
                return  # The product disconnects after some of these answers.


def read_request(connection: socket.socket) -> bytes:
    """Read one whole request: an HTTP request, a clamd command, or a clamd stream."""
    request = connection.recv(1 << 20)
    while not _is_whole(request):
        more = connection.recv(1 << 20)
        if not more:
            raise OSError("the request was cut")
        request += more
    return request


def _is_whole(request: bytes) -> bool:
    if request.startswith(b"zINSTREAM\0"):
        place = len(b"zINSTREAM\0")
        while len(request) >= place + 4:
            length = int.from_bytes(request[place : place + 4])
            if length == 0:
                return True
            place += 4 + length
        return False
    if request.startswith(b"z"):
        return request.endswith(b"\0")
    head, end, body = request.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and len(body) >= (lengths or [0])[0]


def read_to_end(engine: socket.socket) -> bytes:
    answer = b""
    while more := engine.recv(1 << 20):
        answer += more
    return answer


def stay_silent(_: bytes, connection: socket.socket) -> None:
    """Keep the connection open without an answer until the client disconnects."""
    connection.settimeout(PATIENCE)
    connection.recv(1)


def close_at_once(_: bytes, connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def answer_half(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(answer[: len(answer) // 2])


def answer_garbage(_: bytes, connection: socket.socket) -> None:
    connection.sendall(bytes(range(256)) * 64)


def answer_byte_by_byte(answer: bytes, connection: socket.socket) -> None:
    """Send one byte at a time: only a deadline for the whole answer ends this."""
    for place in range(len(answer)):
        connection.sendall(answer[place : place + 1])
        time.sleep(1.0)
