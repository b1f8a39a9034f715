"""JSON logs, one object per line, with the request id and the ggrid.

No line has a Subject, an address, a token or a body: the ggrid identifies a message.
"""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import cast

import orjson
import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}

_program: ContextVar[str] = ContextVar("program", default="")


def start_logging(program: str, level: str = "info", also: Mapping[str, str] = {}) -> None:
    """Send our log lines and those of libraries to standard error as JSON.

    `also` has the levels of other programs that run in the same process.
    """
    levels = {program: LEVELS[level], **{name: LEVELS[each] for name, each in also.items()}}
    structlog.configure(
        processors=[
            _AddProgram(levels),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables: they contain tokens, addresses and bodies.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(min(levels.values())),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
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


class _AddProgram:
    """Names the program in each line; drops the lines below its level, which another in the process may have."""

    def __init__(self, levels: Mapping[str, int]) -> None:
        self._levels = levels

    def __call__(self, _: object, method: str, line: structlog.typing.EventDict) -> structlog.typing.EventDict:
        program = _program.get()
        if LEVELS.get(method, logging.ERROR) < self._levels.get(program, 0):
            raise structlog.DropEvent
        line["program"] = program
        return line


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(module=name))


class _ToStructlog(logging.Handler):
    """Passes log lines of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        get_logger(record.name).log(
            record.levelno, record.getMessage(), **({"exception": repr(failure)} if failure else {})
        )
