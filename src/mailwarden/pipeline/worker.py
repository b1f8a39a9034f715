"""The program of a worker process: takes jobs from the socket it was given as standard input, and sends steps back.

Steps travel in batches, usually two for a message: the first when the engines may start, the second with the rest.

Security: holds hostile bytes. It limits its own memory and files, dies with its parent and enters the sandbox before it
reads the first message (`pipeline/sandbox.py`); a large message comes as an open file, never as a path.
"""

import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from types import FrameType

import msgspec
from msgspec.structs import replace

from mailwarden.analysis.links.domain_knowledge import load_domains
from mailwarden.analysis.text.phrases import load_books
from mailwarden.errors import CommandError, ConfigurationError
from mailwarden.pipeline.registry import MESSAGE, STRUCTURE, YARA
from mailwarden.pipeline.sandbox import REQUIRED, SandboxUnavailable, enter_sandbox, limit_resources
from mailwarden.pipeline.self_tests import READERS, YARA_ENGINE
from mailwarden.pipeline.worker_steps import HANDED_OVER, Frame, Job, Started, run_steps
from mailwarden.telemetry.memory import return_free_memory, tune_gc
from mailwarden.telemetry.self_tests import BASIC, require_known_answers

_LENGTH = struct.Struct(">I")
_STEPS = msgspec.msgpack.Encoder()
_FLUSH_EVERY = 0.02  # seconds; a worker that is killed loses the steps of this time, which then count as failed
_LARGE = 5_000_000  # bytes; after such a message a worker would keep several times as much memory
_QUICK_TO_PARSE = 65_536  # bytes; the structure's step of such a message is sent with the next one
_FIRST = (
    b"From: =?utf-8?B?QWTQsCBOb3J0aA==?= <ada@north.example>\r\nTo: bob@south.example\r\nSubject: Minutes\r\n"
    b"MIME-Version: 1.0\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
    b'<p>Dear Bob, here <a href="https://www.north.example/minutes">they are</a>.</p>\r\n'
)

_TRY_AGAIN = 0.05  # seconds of processor time, where a library swallowed the exception
_sending = False  # half a batch would corrupt the next ones


def main() -> None:
    """Serve jobs until the parent closes the socket."""
    memory, sandbox, rules, domains = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    limit_resources(memory * 1024 * 1024)
    with socket.socket(fileno=os.dup(0)) as parent:
        signal.signal(signal.SIGPROF, _end_light_message)
        sys.unraisablehook = _ignore_out_of_time
        os.dup2(2, 1)  # output of a library must not be read as a frame
        _load_rules(rules)
        try:
            load_domains(domains)
            layers = enter_sandbox(keep_open=parent.fileno()) if sandbox == REQUIRED else ()
            require_known_answers("A worker process", BASIC, READERS, YARA_ENGINE if rules else ())
        except (SandboxUnavailable, CommandError, ConfigurationError) as error:
            _send(parent, Started(problem=str(error)))
            return
        _warm_up()
        tune_gc()
        _send(parent, Started(layers, phrases=load_books().engine))
        while job := _read_job(parent):
            large = len(job.raw) > _LARGE
            _serve(job, parent)
            if large:
                del job
                return_free_memory()


def _send(parent: socket.socket, started: Started) -> None:
    body = msgspec.msgpack.encode(started)
    parent.sendall(_LENGTH.pack(len(body)) + body)


def _warm_up() -> None:
    """Examine a message of ours, so that analyzers load their data before the first real message."""
    for _ in run_steps(Job(_FIRST)):
        pass


def _load_rules(folder: str) -> None:
    """Load the operator's rules; guard reported the broken ones at its start, and the others apply."""
    for problem in YARA.load(Path(folder)) if folder else ():
        sys.stderr.write(f"{problem.file}:{problem.line}: {problem.sentence}\n")


def _read_job(parent: socket.socket) -> Job | None:
    """Wait for the whole job at once: a wake-up for every few kilobytes would cost more than the parse."""
    head, files, _, _ = socket.recv_fds(parent, _LENGTH.size, 1, socket.MSG_WAITALL)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    job = msgspec.msgpack.decode(parent.recv(length, socket.MSG_WAITALL), type=Job)
    if not files:
        return job
    with os.fdopen(files[0], "rb") as file:
        return replace(job, raw=file.read())


class OutOfTime(BaseException):
    """A message has used up its processor time on this worker; no analyzer may catch this."""


def _end_light_message(_: int, __: FrameType | None) -> None:
    if not _sending:
        raise OutOfTime


def _ignore_out_of_time(unraisable: "sys.UnraisableHookArgs") -> None:
    """Log nothing for the exception above within a library's callback: the timer raises it again."""
    if unraisable.exc_type is not OutOfTime:
        sys.__unraisablehook__(unraisable)


def _serve(job: Job, parent: socket.socket) -> None:
    """Send the steps of one message; the last says that it is handed over where its processor time is used up."""
    waiting: list[Frame] = []
    try:
        signal.setitimer(signal.ITIMER_PROF, job.seconds, _TRY_AGAIN if job.seconds else 0.0)
        try:
            _send_steps(job, parent, waiting)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    except OutOfTime:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        waiting.append(HANDED_OVER)
        _flush(waiting, parent)


def _send_steps(job: Job, parent: socket.socket, waiting: list[Frame]) -> None:
    """Send the parse at once, as engines wait for it, and the other steps together, unless they take long."""
    sent = time.monotonic()
    for frame in run_steps(job):
        waiting.append(frame)
        if frame.last:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        elif not _is_awaited(frame, job) and time.monotonic() - sent < _FLUSH_EVERY:
            continue
        _flush(waiting, parent)
        sent = time.monotonic()


def _is_awaited(frame: Frame, job: Job) -> bool:
    """Return whether the engines wait for this step, or the limit of a batch is for its contents alone."""
    step = frame.report.analyzer
    return step == MESSAGE or bool(frame.contents) or (step == STRUCTURE and len(job.raw) > _QUICK_TO_PARSE)


def _flush(waiting: list[Frame], parent: socket.socket) -> None:
    global _sending  # noqa: PLW0603 - a signal handler has nothing else to look at
    _sending = True
    try:
        body = _STEPS.encode(waiting)
        parent.sendall(_LENGTH.pack(len(body)) + body)
        waiting.clear()
    finally:
        _sending = False


if __name__ == "__main__":
    main()
