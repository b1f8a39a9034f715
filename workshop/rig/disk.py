"""A small file system for a server, which a test can fill to its last byte and empty again.

It is a tmpfs, so it needs root and the right to mount; without them `mount` raises an error with the reason.
"""

import os
import subprocess
import threading
from pathlib import Path

from workshop.rig.folders import make_folder
from workshop.rig.process import RigError

FILLER = ".filler"
MEBIBYTE = 1_048_576
_STEPS = (MEBIBYTE, 65_536, 4_096)  # a full tmpfs rejects a large piece but may accept a small one
_TOP_UP_SECONDS = 0.02


class SmallDisk:
    """A folder with its own file system of so many mebibytes."""

    def __init__(self, folder: Path, mebibytes: int) -> None:
        self.folder = make_folder(folder)
        self._mebibytes = mebibytes
        self._mounted = False

    def mount(self) -> None:
        words = ["mount", "-t", "tmpfs", "-o", f"size={self._mebibytes}m,mode=755", "tmpfs", str(self.folder)]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=30)
        if done.returncode != 0:
            raise RigError(f"a small disk cannot be mounted: {done.stderr.strip()}")
        self._mounted = True

    def unmount(self) -> None:
        """Unmount the file system, even if a process still has a file open on it."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True, capture_output=True, timeout=30)
            self._mounted = False

    def is_full(self) -> bool:
        return os.statvfs(self.folder).f_bavail == 0

    def keep_full(self, until: threading.Event) -> None:
        """Keep the file system full until the event: space that other processes free is filled at once."""
        if not self._mounted:
            raise RigError(f"{self.folder} has no file system of its own, and is not filled")
        path = self.folder / FILLER
        with path.open("wb") as file:
            while True:
                _fill(file.fileno())
                if until.wait(_TOP_UP_SECONDS):
                    break
        path.unlink()


def _fill(file: int) -> None:
    for step in _STEPS:
        while True:
            try:
                os.posix_fallocate(file, os.fstat(file).st_size, step)
            except OSError:
                break
