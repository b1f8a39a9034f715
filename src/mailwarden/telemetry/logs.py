"""JSON logs, one object per line, with the request id and the ggrid.

No line has a Subject, an address, a token or a body: the ggrid identifies a message. A server writes its lines in
batches: at most 0.2 s after the first of them, at once with a warning or an error, and before it stops.
"""

import asyncio
import atexit
import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from threading import Lock
from typing import Self, cast

import msgspec
import structlog
from structlog.contextvars import get_contextvars
from structlog.typing import EventDict, Processor

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_NAMES = {number: name for name, number in LEVELS.items()} | {logging.CRITICAL: "critical"}
_WRITE_AFTER = 0.2  # seconds
_MAX_WAITING = 256  # lines

_program: ContextVar[str] = ContextVar("program", default="")

# Without local variables: they contain tokens, addresses and bodies.
_render_exception = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


class Lines:
    """The lines that are not written yet; without `buffered` each line is written at once."""

    def __init__(self) -> None:
        self.buffered = False
        self._waiting: list[bytes] = []
        self._lock = Lock()  # threads log as well
        self._timer: asyncio.TimerHandle | None = None

    def add(self, line: bytes, *, urgent: bool) -> None:
        with self._lock:
            self._waiting.append(line)
        if urgent or not self.buffered or len(self._waiting) >= _MAX_WAITING:
            self.write()
        elif self._timer is None:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:  # another thread: nothing there would write the line later
                self.write()
            else:
                self._timer = loop.call_later(_WRITE_AFTER, self._write_later)

    def write(self) -> None:
        """Write all lines in their order."""
        with self._lock:
            lines, self._waiting = self._waiting, []
            if lines:
                sys.stderr.buffer.write(b"".join(lines))
                sys.stderr.buffer.flush()

    def _write_later(self) -> None:
        self._timer = None
        with suppress(OSError):  # the reader of the log is gone
            self.write()

    def stop_buffering(self) -> None:
        self.buffered = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.write()


_lines = Lines()
atexit.register(_lines.write)


@contextmanager
def buffered_logs() -> Iterator[None]:
    """Write lines in batches within this block, which must end before the event loop does."""
    _lines.buffered = True
    try:
        yield
    finally:
        _lines.stop_buffering()


class _AddLine:
    """The only processor: adds what every line has, and writes it unless its program has a higher level."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        self._levels = levels

    def __call__(self, _: object, level: str, event: EventDict) -> EventDict:
        program, number = _program.get(), LEVELS.get(level, logging.ERROR)
        if number < self._levels.get(program, 0):
            return event
        if "exc_info" in event:
            event = _render_exception(None, level, event)
        line = {"program": program, **get_contextvars(), **event, "level": level, "timestamp": datetime.now(UTC)}
        _lines.add(msgspec.json.encode(line, enc_hook=repr) + b"\n", urgent=number >= logging.WARNING)
        return event


class Logger:
    """A logger of one module, as structlog creates it: its fields, and the processors for each line."""

    _lowest = logging.INFO

    def __init__(self, logger: object, processors: list[Processor], context: MutableMapping[str, object]) -> None:
        self._processors = processors  # structlog.testing replaces what is in the list
        self._context = context

    def bind(self, **fields: object) -> Self:
        return type(self)(None, self._processors, {**self._context, **fields})

    def debug(self, event: str, **fields: object) -> None:
        self.log(logging.DEBUG, event, **fields)

    def info(self, event: str, **fields: object) -> None:
        self.log(logging.INFO, event, **fields)

    def warning(self, event: str, **fields: object) -> None:
        self.log(logging.WARNING, event, **fields)

    def error(self, event: str, **fields: object) -> None:
        self.log(logging.ERROR, event, **fields)

    def critical(self, event: str, **fields: object) -> None:
        self.log(logging.CRITICAL, event, **fields)

    def exception(self, event: str, **fields: object) -> None:
        """Log an error with the exception that is being handled."""
        self.log(logging.ERROR, event, **{"exc_info": True, **fields})

    def log(self, level: int, event: str, **fields: object) -> None:
        if level < self._lowest:
            return
        line: EventDict = {**self._context, **fields, "event": event}
        with suppress(structlog.DropEvent):
            for processor in self._processors:
                line = cast("EventDict", processor(None, _NAMES.get(level, "error"), line))


def start_logging(program: str, level: str = "info", also: Mapping[str, str] = {}) -> None:
    """Send our log lines and those of libraries to standard error as JSON.

    `also` has the levels of other programs that run in the same process.
    """
    levels = {program: LEVELS[level], **{name: LEVELS[each] for name, each in also.items()}}
    structlog.configure(
        processors=[_AddLine(levels)],
        wrapper_class=type("Logger", (Logger,), {"_lowest": min(levels.values())}),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    _program.set(program)
    logging.basicConfig(handlers=[_ToStructlog()], level=logging.WARNING, force=True)


@contextmanager
def logging_as(program: str) -> Iterator[None]:
    """Name another program of this process in the log lines of the block and of the tasks that it starts."""
    token = _program.set(program)
    try:
        yield
    finally:
        _program.reset(token)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(module=name))


class _ToStructlog(logging.Handler):
    """Passes log lines of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        get_logger(record.name).log(
            record.levelno, record.getMessage(), **({"exception": repr(failure)} if failure else {})
        )
