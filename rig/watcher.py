"""Ends what a rig started when the rig itself dies: a small process of its own that reads what to end from a pipe.

It is run as a plain script, so that it starts in milliseconds and does not depend on the rig's own imports.
A parent-death signal would not do: it fires when the thread that started a server ends, and it reaches no workers.
"""

import contextlib
import os
import select
import shutil
import signal
import sys

POLL_SECONDS = 1.0


def start_time(pid: int) -> str | None:
    """Tell when a process began, in clock ticks since boot; with the pid it names one process for good."""
    status = _status(pid)
    return None if status is None else status[19]


def is_running(pid: int) -> bool:
    """Tell whether a process exists and has not ended; one that only waits to be reaped has ended."""
    status = _status(pid)
    return status is not None and status[0] not in {"Z", "X"}


def tree(pid: int) -> list[int]:
    """List a process, its process group and all below them.

    The group finds workers that a killed parent left behind, the tree finds PostgreSQL's, which leave the group.
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
    """Follow the rig's orders until its end: `watch PID TIME`, `forget PID TIME`, `remove FOLDER`, `keep FOLDER`."""
    rig = os.getppid()
    watched: dict[str, None] = {}
    folders: dict[str, None] = {}
    rest = b""
    # A child that the rig forked may hold the pipe open after the rig's death, so its parent is looked at as well.
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
        if start_time(int(pid)) in {began, None}:  # Any other time is that of a stranger who got the same pid.
            signal_tree(int(pid), signal.SIGKILL)
    for folder in folders:
        _unmount_below(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _unmount_below(folder: str) -> None:
    """Take away the small disks that the rig had mounted in a folder of its own."""
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - see tree
        places = [line.split(" ")[1] for line in file]
    for place in places:
        if place.startswith(f"{folder}/"):
            os.spawnlp(os.P_WAIT, "umount", "umount", "-l", place)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _watch()
    sys.exit(0)
