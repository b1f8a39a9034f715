"""A server process: started in its own session, awaited, paused, killed and stopped by its process id."""

import contextlib
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from workshop.rig import watcher

POLL_SECONDS = 0.02
KILL_SECONDS = 10.0
TAIL_LINES = 25

_lock = threading.Lock()


class RigError(Exception):
    """A server could not be started, or failed at a request of the rig."""


class ServerProcess:
    """One program with its log file; `ready` is polled until it returns true or the deadline passes."""

    address: str  # The address for clients; each kind of server sets its own.

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        ready: Callable[[], bool],
        *,
        deadline: float = 30.0,
        grace: float = 10.0,
        stop_signal: signal.Signals = signal.SIGTERM,
        user: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._ready = ready
        self._deadline = deadline
        self._grace = grace
        self._stop_signal = stop_signal
        self._user = user
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._began: str | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RigError(f"{self.name} has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of a program that ended by itself; None while it runs or after `stop`."""
        return None if self._process is None else self._process.poll()

    def launch(self) -> None:
        """Start the program without waiting until it is ready."""
        if self.running:
            raise RigError(f"{self.name} is already running as process {self.pid}")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=self._user,
                group=self._user,
                extra_groups=None if self._user is None else [],
                env=os.environ | self._environment,
                cwd=self.log.parent,
            )
        self._began = watcher.start_time(self.pid)
        tell_watcher(f"watch {self.pid} {self._began}")

    def wait_until_ready(self) -> None:
        end = time.monotonic() + self._deadline
        while True:
            if not self.running:
                code = None if self._process is None else self._process.returncode
                raise RigError(f"{self.name} ended with code {code} before it was ready\n{self.log_tail()}")
            with contextlib.suppress(OSError):
                if self._ready():
                    return
            if time.monotonic() > end:
                raise RigError(f"{self.name} was not ready within {self._deadline:.0f} s\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def start(self) -> None:
        """Start the program and wait until it is ready; if it does not become ready, end it."""
        self.launch()
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Ask the program to end, and kill it and its workers after the grace period."""
        if self._process is None:
            return
        pids = watcher.tree(self.pid)
        if self.running:
            watcher.send(self.pid, self._stop_signal)
            # A paused process handles its signal only after it continues.
            for pid in pids:
                watcher.send(pid, signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(self._grace)
        self._end(pids)

    def kill(self) -> None:
        """Kill the program and all its workers at once, as a power failure would."""
        if self._process is None:
            return
        self._end(watcher.signal_tree(self.pid, signal.SIGKILL) if self.running else watcher.tree(self.pid))

    def pause(self) -> None:
        """Pause the program and its workers; they keep their connections and answer nothing."""
        watcher.signal_tree(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        watcher.signal_tree(self.pid, signal.SIGCONT)

    def restart(self) -> None:
        """Stop the program if it runs, and start it again at the same address."""
        self.stop()
        self.start()

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self.log.read_text("utf-8", "replace").splitlines()[-TAIL_LINES:]
        except FileNotFoundError:
            lines = []
        return "\n".join([f"--- the end of {self.log}", *lines])

    def _end(self, pids: Sequence[int]) -> None:
        """Make sure that the program and its workers are gone, and forget them."""
        process = self._process
        if process is None:  # Another thread was faster, for example when a start is cancelled.
            return
        if process.poll() is None:
            pids = [*pids, *watcher.signal_tree(process.pid, signal.SIGKILL)]
        process.wait(KILL_SECONDS)
        end = time.monotonic() + KILL_SECONDS
        # Workers end by themselves after their parent; slow ones are killed.
        while left := [pid for pid in pids if pid != process.pid and watcher.is_running(pid)]:
            for pid in left:
                watcher.send(pid, signal.SIGKILL)
            if time.monotonic() > end:
                raise RigError(f"{self.name} left processes {left} that do not end")
            time.sleep(POLL_SECONDS)
        tell_watcher(f"forget {process.pid} {self._began}")
        self._process = None


def tell_watcher(order: str) -> None:
    """Send a command to the watcher process, which cleans up if this process dies."""
    with _lock:
        pipe = _watcher_of(os.getpid())
        os.write(pipe, order.encode("utf-8", "surrogateescape") + b"\n")


@functools.cache
def _watcher_of(_rig: int) -> int:
    """Start the watcher of this process and return the pipe to it; a forked rig gets its own watcher."""
    read, write = os.pipe()
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-S", watcher.__file__],
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, read, 0), (os.POSIX_SPAWN_CLOSE, write)],
        setsid=True,
    )
    os.close(read)
    return write
