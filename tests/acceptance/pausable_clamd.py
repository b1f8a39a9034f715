"""A proxy in front of the real clamd: while it is paused, scans wait and health checks pass.

It keeps guard requests in processing for as long as a test needs, while the engine still looks healthy.
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


class PausableClamd:
    def __init__(self, clamd: Path) -> None:
        self.waiting = 0
        self.clamd = clamd
        self._resumed = threading.Event()
        self._resumed.set()
        self.lock = threading.Lock()
        proxy = self

        class Connection(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError):
                    proxy.forward(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection)
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        self._server.socket.listen(128)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.address = f"tcp:127.0.0.1:{self._server.server_address[1]}"

    def pause(self) -> None:
        self._resumed.clear()

    def resume(self) -> None:
        self._resumed.set()

    def forward(self, client: socket.socket) -> None:
        """Forward one conversation to clamd; a scan waits while paused."""
        request = client.recv(PIECE)
        if request.startswith(b"zINSTREAM"):
            self._hold()
        with socket.socket(socket.AF_UNIX) as clamd:
            clamd.connect(str(self.clamd))
            clamd.sendall(request)
            answers = threading.Thread(target=_pump, args=(clamd, client), daemon=True)
            answers.start()
            _pump(client, clamd)
            answers.join(LONGEST_WAIT)

    def _hold(self) -> None:
        with self.lock:
            self.waiting += 1
        try:
            self._resumed.wait(LONGEST_WAIT)
        finally:
            with self.lock:
                self.waiting -= 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resumed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5.0)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while piece := source.recv(PIECE):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
