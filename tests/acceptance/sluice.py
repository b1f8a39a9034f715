"""A sluice in front of the real clamd: while it is shut, scans wait; whether clamd is there can still be asked.

It keeps guard requests in processing for as long as a test needs them there, without an engine that looks dead.
"""

import contextlib
import socket
import socketserver
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

LONGEST_WAIT = 60.0
PIECE = 65_536


class Sluice:
    def __init__(self, clamd: Path) -> None:
        self.waiting = 0
        self.clamd = clamd
        self.gate = threading.Event()
        self.gate.set()
        self.lock = threading.Lock()
        sluice = self

        class Passage(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    sluice.lead_through(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Passage)
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        self._server.socket.listen(128)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.address = f"tcp:127.0.0.1:{self._server.server_address[1]}"

    def shut(self) -> None:
        self.gate.clear()

    def open(self) -> None:
        self.gate.set()

    def lead_through(self, caller: socket.socket) -> None:
        """Pass one conversation on to clamd, a scan only while the gate is open."""
        question = caller.recv(PIECE)
        if question.startswith(b"zINSTREAM"):
            self._hold()
        with socket.socket(socket.AF_UNIX) as clamd:
            clamd.connect(str(self.clamd))
            clamd.sendall(question)
            answers = threading.Thread(target=_pump, args=(clamd, caller), daemon=True)
            answers.start()
            _pump(caller, clamd)
            answers.join(LONGEST_WAIT)

    def _hold(self) -> None:
        with self.lock:
            self.waiting += 1
        try:
            self.gate.wait(LONGEST_WAIT)
        finally:
            with self.lock:
                self.waiting -= 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gate.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
