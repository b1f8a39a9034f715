"""The program of a worker process: reads jobs from standard input, writes frames to standard output, until end of file.

Security: holds hostile bytes. It limits its own memory and files, dies with its parent, and never opens a connection.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
import time
from typing import BinaryIO

import msgspec

from mailwarden.analysis.examination import Job, examine
from mailwarden.telemetry.memory import settle_memory

_LENGTH = struct.Struct(">I")
_PR_SET_PDEATHSIG = 1
_FLUSH_EVERY = 0.005


def main() -> None:
    """Serve jobs until the parent closes the pipe."""
    memory = int(sys.argv[1]) * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    jobs, frames = os.fdopen(0, "rb"), os.fdopen(os.dup(1), "wb", buffering=262_144)
    os.dup2(2, 1)  # what a library prints must not be read as a frame
    settle_memory()
    frames.write(b"\0\0\0\0")
    frames.flush()
    while job := _read_job(jobs):
        _serve(job, frames)


def _read_job(stream: BinaryIO) -> Job | None:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    return msgspec.msgpack.decode(stream.read(length), type=Job)


def _serve(job: Job, frames: BinaryIO) -> None:
    """Write each frame; send them on at once at the start and where a step takes long, together otherwise."""
    sent = 0.0
    for frame in examine(job):
        body = msgspec.msgpack.encode(frame)
        frames.write(_LENGTH.pack(len(body)) + body)
        now = time.monotonic()
        if frame.last or now - sent > _FLUSH_EVERY:
            frames.flush()
            sent = now


if __name__ == "__main__":
    main()
