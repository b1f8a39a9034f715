"""Network namespaces as hosts: run code and servers inside, list and signal their processes, cut them off.

`contain` runs a command in fresh namespaces for network, mounts and processes. The kernel removes all of them, and
everything inside, when that command ends, however it ends.
"""

import contextlib
import ctypes
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from workshop.rig.process import RigError
from workshop.rig.programs import find_program

NAMES = Path("/run/netns")
HERE = "-"  # the namespace of the test itself
COMMAND_SECONDS = 20.0
T = TypeVar("T")
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

# A host that is cut off still reaches itself. At the device, because keepalived announces its address in raw frames.
_CUT = """
table netdev cut {
    chain incoming { type filter hook ingress device "eth0" priority 0; policy drop; }
    chain outgoing { type filter hook egress device "eth0" priority 0; policy drop; }
}
"""
_HEAL = "delete table netdev cut\n"


def enter(namespace: str) -> None:
    """Move the calling thread into a network namespace."""
    path = Path("/proc/1/ns/net") if namespace == HERE else NAMES / namespace
    file = os.open(path, os.O_RDONLY)
    try:
        if _libc.setns(file, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter the network namespace {namespace}")
    finally:
        os.close(file)


def run(*words: str, given: str = "") -> str:
    """Run a command and return its output."""
    command = [find_program(words[0]), *words[1:]]
    done = subprocess.run(command, input=given, check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    if done.returncode != 0:
        raise RigError(f"`{' '.join(words)}` failed: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Host:
    """A network namespace with one address."""

    name: str
    address: str

    @functools.cached_property
    def _inode(self) -> int:
        return (NAMES / self.name).stat().st_ino

    def create(self) -> None:
        run("ip", "netns", "add", self.name)
        run("ip", "-n", self.name, "link", "set", "lo", "up")

    def connect(self, device: str, bits: int, mtu: int) -> None:
        """Set the address of the device that the switch made."""
        run("ip", "-n", self.name, "link", "set", device, "mtu", str(mtu), "up")
        run("ip", "-n", self.name, "addr", "add", f"{self.address}/{bits}", "dev", device)

    def run(self, action: Callable[[], T]) -> T:
        """Run code in a thread inside the namespace; processes that it starts stay inside."""
        with ThreadPoolExecutor(1, initializer=enter, initargs=(self.name,)) as thread:
            return thread.submit(action).result()

    def pids(self) -> list[int]:
        """Return the processes inside."""
        found = []
        for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes several times as long
            if name.isdigit():
                with contextlib.suppress(OSError):
                    if os.stat(f"/proc/{name}/ns/net").st_ino == self._inode:  # noqa: PTH116 - see above
                        found.append(int(name))
        return [pid for pid in found if pid != os.getpid()]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process inside, also to those that are started meanwhile."""
        seen: set[int] = set()
        while new := set(self.pids()) - seen:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            seen |= new

    def cut(self) -> None:
        """Drop every packet from and to other hosts."""
        self.run(lambda: run("nft", "-f", "-", given=_CUT))

    def heal(self) -> None:
        self.run(lambda: run("nft", "-f", "-", given=_HEAL))


def contain(command: Sequence[str], environment: dict[str, str]) -> NoReturn:
    """Replace this process by a command in namespaces of its own; they end with it. The caller must be root."""
    if os.geteuid() != 0:
        raise RigError("The fleet needs root: it makes network namespaces, mounts and tap devices.")
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    probe = subprocess.run([*words, "true"], check=False, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    if probe.returncode != 0:
        raise RigError(f"This machine does not permit namespaces: {probe.stderr.strip()}")
    first = [sys.executable, "-m", "tests.fleet.first_process", *command]
    # No process stays between the caller and `unshare`: SIGKILL of this process ends everything.
    os.execvpe(find_program(words[0]), [*words, *first], os.environ | environment)
