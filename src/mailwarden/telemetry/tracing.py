"""Optional OpenTelemetry traces over abby, guard and worker; without `tracing.endpoint` nothing is loaded or measured.

No span has a Subject, an address or a body: the ggrid identifies a message. Workers have no network, so that guard
reports their steps for them, from the durations that they measured.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from mailwarden import __version__
from mailwarden.errors import ConfigurationError

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.trace import Tracer

TRACEPARENT = "traceparent"  # W3C Trace Context, section 3.2
WORKER = "worker"
_EXPORT_SECONDS = 5
_NANOSECONDS = 1_000_000_000

Value = str | int | float | bool


class Span:
    """A step of a trace; this one records nothing."""

    traceparent = ""  # the header that continues the trace in another process

    def set(self, **attributes: Value) -> None:
        """Add attributes."""

    def add_step(self, name: str, seconds: float, **attributes: Value) -> None:
        """Add a step that has just ended and took so many seconds."""


class Tracing:
    """The traces of one process; this one is off and costs a function call."""

    def span(
        self, name: str, *, parent: str = "", process: str = "", **attributes: Value
    ) -> AbstractContextManager[Span]:
        """Trace a block, as a child of the span around it or of another process's `parent`."""
        return _NOTHING

    def close(self) -> None:
        """Send the last spans; this may take seconds."""


_NOTHING = nullcontext(Span())
NO_TRACING = Tracing()


def open_tracing(program: str, endpoint: str, ratio: float) -> Tracing:
    """Return the traces that the configuration wants; without an endpoint they are off."""
    if not endpoint:
        return NO_TRACING
    try:
        return OpenTelemetry(program, endpoint, ratio)
    except ImportError as error:
        raise ConfigurationError(
            f"tracing.endpoint: the package {error.name} is missing. Install mailwarden[tracing], or leave tracing out."
        ) from None


class OpenTelemetry(Tracing):
    """Sends spans in batches from a thread; if the collector is slow or down, spans are dropped."""

    def __init__(self, program: str, endpoint: str, ratio: float) -> None:
        # An optional dependency of 39 MB.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio  # noqa: PLC0415

        exporter = OTLPSpanExporter(endpoint, timeout=_EXPORT_SECONDS)
        self._sender = BatchSpanProcessor(exporter)
        self._tracers: dict[str, Tracer] = {}
        for process in (program, WORKER):
            resource = Resource({"service.name": f"mailwarden-{process}", "service.version": __version__})
            provider = TracerProvider(ParentBasedTraceIdRatio(ratio), resource, shutdown_on_exit=False)
            provider.add_span_processor(self._sender)
            self._tracers[process] = provider.get_tracer("mailwarden", __version__)
        self._program = program

    @contextmanager
    def span(self, name: str, *, parent: str = "", process: str = "", **attributes: Value) -> Iterator[Span]:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - an optional dependency

        tracer = self._tracers[process or self._program]
        context = _context_of(parent) if parent else None
        # The text of an exception may quote a message: a span has the type alone.
        with tracer.start_as_current_span(
            name, context, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield _Recording(tracer, span)
            except BaseException as error:
                span.set_status(StatusCode.ERROR)
                span.set_attribute("error.type", type(error).__name__)
                raise

    def close(self) -> None:
        self._sender.shutdown()  # type: ignore[no-untyped-call]


class _Recording(Span):
    def __init__(self, tracer: "Tracer", span: "OtelSpan") -> None:
        self._tracer = tracer
        self._span = span

    @property
    def traceparent(self) -> str:  # type: ignore[override]
        found = self._span.get_span_context()
        return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"

    def set(self, **attributes: Value) -> None:
        self._span.set_attributes(attributes)

    def add_step(self, name: str, seconds: float, **attributes: Value) -> None:
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - an optional dependency

        end = time.time_ns()
        begin = end - int(seconds * _NANOSECONDS)
        around = set_span_in_context(self._span)
        self._tracer.start_span(name, around, attributes=attributes, start_time=begin).end(end)


def _context_of(traceparent: str) -> "Context":
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

    return TraceContextTextMapPropagator().extract({TRACEPARENT: traceparent})
