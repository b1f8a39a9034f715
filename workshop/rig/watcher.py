"""Ends the processes of a rig when the rig itself dies: a small process that reads commands from a pipe.

It runs as a plain script, so that it starts in milliseconds and does not depend on the rig's imports. A parent-death
signal is no alternative: it fires when the thread that started a server ends, and it does not reach workers.
"""

import contextlib
import os
import select
import shutil
import signal
import sys

POLL_SECONDS = 1.0


def start_time(pid: int) -> str | None:
    """Return the start time of a process, in clock ticks since boot; pid and start time identify a process."""
    status = _status(pid)
    return None if status is None else status[19]


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended; a zombie has ended."""
    status = _status(pid)
    return status is not None and status[0] not in {"Z", "X"}


def tree(pid: int) -> list[int]:
    """Return a process, its process group and all their descendants.

    The group has workers that a killed parent left behind, the tree has PostgreSQL's, which leave the group.
    """
    children: dict[int, list[int]] = {}
    found = [pid]
    for each in (int(name) for name in os.listdir("/proc") if name.isdigit()):  # noqa: PTH208 - starts twice as fast
        if (status := _status(each)) is not None:
            children.setdefault(int(status[1]), []).append(each)
            if int(status[2]) == pid and each != pid:
                found.append(each)
    for each in found:
        found.extend(child for child in children.get(each, ()) if child not in found)
    return found


def signal_tree(pid: int, number: signal.Signals) -> list[int]:
    """Send a signal to a process and all below it, and return them."""
    send(pid, signal.SIGSTOP)  # A stopped parent starts no worker between the listing and the signal.
    pids = tree(pid)
    for each in pids:
        send(each, number)
    return pids


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _status(pid: int) -> list[str] | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - see tree
            return file.read().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _watch() -> None:
    """Follow the rig's commands until its end: `watch PID TIME`, `forget PID TIME`, `remove FOLDER`, `keep FOLDER`."""
    rig = os.getppid()
    watched: dict[str, None] = {}
    folders: dict[str, None] = {}
    rest = b""
    # A child that the rig forked may hold the pipe open after the rig's death, so the parent is checked as well.
    while os.getppid() == rig:
        if not select.select([0], [], [], POLL_SECONDS)[0]:
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            order, _, subject = line.decode("utf-8", "surrogateescape").partition(" ")
            kept = watched if order in {"watch", "forget"} else folders
            if order in {"watch", "remove"}:
                kept[subject] = None
            else:
                kept.pop(subject, None)
    for subject in watched:
        pid, _, began = subject.partition(" ")
        if start_time(int(pid)) in {began, None}:  # With any other start time the pid belongs to another process.
            signal_tree(int(pid), signal.SIGKILL)
    for folder in folders:
        _unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unmount_below(folder: str) -> None:
    """Unmount the small file systems of the rig in a folder."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - see tree
        places = [line.split(" ")[1] for line in file]
    for place in places:
        if place.startswith(f"{folder}/"):
            os.spawnlp(os.P_WAIT, "umount", "umount", "-l", place)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _watch()
    sys.exit(0)
