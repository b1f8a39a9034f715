"""A go-between that stands in an engine's place: it asks the real one, and gives back less, more or other than that."""

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

# Gets what the engine answered, and the connection to answer on.
Meddling = Callable[[bytes, socket.socket], None]
PATIENCE = 30.0


def honest(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(answer)


class Meddler:
    """Listens on a unix socket of its own; `meddling` may be changed between two questions.

    Pings and versions always pass, so that an engine that lies is not mistaken for one that is away.
    """

    def __init__(self, place: Path, engine: Path) -> None:
        self.meddling: Meddling = honest
        self.meddled = 0
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
        """Wait on behalf of a meddling, but not beyond the end of the test."""
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
                question = read_question(connection)
                engine.connect(str(self._engine))
                engine.sendall(question)
                answer = read_to_end(engine)
                if question.startswith((b"POST", b"zINSTREAM")):
                    self.meddled += 1
                    self.meddling(answer, connection)
                else:
                    honest(answer, connection)
            except OSError:
                return  # The product hung up, as it should on some of these answers.


def read_question(connection: socket.socket) -> bytes:
    """Read one whole question: an HTTP request, a clamd command, or a clamd stream."""
    question = connection.recv(1 << 20)
    while not _is_whole(question):
        more = connection.recv(1 << 20)
        if not more:
            raise OSError("the question was cut")
        question += more
    return question


def _is_whole(question: bytes) -> bool:
    if question.startswith(b"zINSTREAM\0"):
        place = len(b"zINSTREAM\0")
        while len(question) >= place + 4:
            length = int.from_bytes(question[place : place + 4])
            if length == 0:
                return True
            place += 4 + length
        return False
    if question.startswith(b"z"):
        return question.endswith(b"\0")
    head, end, body = question.partition(b"\r\n\r\n")
    lengths = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and len(body) >= (lengths or [0])[0]


def read_to_end(engine: socket.socket) -> bytes:
    answer = b""
    while more := engine.recv(1 << 20):
        answer += more
    return answer


def stay_silent(_: bytes, connection: socket.socket) -> None:
    """Keep the connection open without a word until the other side gives up."""
    connection.settimeout(PATIENCE)
    connection.recv(1)


def close_at_once(_: bytes, connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_RDWR)


def answer_half(answer: bytes, connection: socket.socket) -> None:
    connection.sendall(answer[: len(answer) // 2])


def answer_garbage(_: bytes, connection: socket.socket) -> None:
    connection.sendall(bytes(range(256)) * 64)


def answer_drop_by_drop(answer: bytes, connection: socket.socket) -> None:
    """Send a byte at a time, so that the wait for the next byte never ends and only a deadline for all helps."""
    for place in range(len(answer)):
        connection.sendall(answer[place : place + 1])
        time.sleep(0.2)
