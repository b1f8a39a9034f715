"""JSON logs, one object per line, with the request id and the ggrid.

No line has a Subject, an address, a token or a body: the ggrid identifies a message.
"""

import logging
import sys
from typing import cast

import orjson
import structlog

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def start_logging(program: str, level: str = "info") -> None:
    """Send our log lines and those of libraries to standard error as JSON."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            # Without local variables: they contain tokens, addresses and bodies.
            structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False)),
            structlog.processors.JSONRenderer(serializer=orjson.dumps),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.BytesLoggerFactory(sys.stderr.buffer),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(program=program)
    logging.basicConfig(handlers=[_ToStructlog()], level=logging.WARNING, force=True)


def get_logger(name: str) -> structlog.typing.FilteringBoundLogger:
    return cast("structlog.typing.FilteringBoundLogger", structlog.get_logger(module=name))


class _ToStructlog(logging.Handler):
    """Passes log lines of libraries to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        failure = record.exc_info[1] if record.exc_info else None
        get_logger(record.name).log(
            record.levelno, record.getMessage(), **({"exception": repr(failure)} if failure else {})
        )
