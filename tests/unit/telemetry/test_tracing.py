"""Traces are off unless configured: nothing is imported, and a span is one shared object."""

import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from mailwarden.errors import ConfigurationError
from mailwarden.telemetry.tracing import NO_TRACING, Tracing, open_tracing

NOBODY = "http://127.0.0.1:1/v1/traces"


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    """Return a sender that nobody answers. Its thread would go on in other tests and try again."""
    before = set(threading.enumerate())
    opened = open_tracing("guard", NOBODY, 1.0)
    yield opened
    opened.close()
    assert not set(threading.enumerate()) - before


def test_without_an_endpoint_nothing_is_recorded():
    assert open_tracing("guard", "", 1.0) is NO_TRACING
    assert NO_TRACING.span("scan") is NO_TRACING.span("other"), "nothing is made for a span"
    with NO_TRACING.span("scan", ggrid="x") as span:
        span.set(verdict="clean")
        span.add_step("html", 0.1)
        assert span.traceparent == ""


@pytest.mark.slow
def test_without_an_endpoint_no_process_imports_the_library():
    check = "import sys, mailwarden.guard.app, mailwarden.abby.app; print([m for m in sys.modules if 'opentelem' in m])"
    done = subprocess.run([sys.executable, "-c", check], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigurationError, match=r"tracing\.endpoint: .* Install mailwarden\[tracing\]"):
        open_tracing("guard", NOBODY, 1.0)


def test_a_traceparent_continues_the_trace_and_noise_starts_another(tracing):
    trace = "0af7651916cd43dd8448eb211c80319c"
    with tracing.span("receive", parent=f"00-{trace}-b7ad6b7169203331-01") as outer:
        assert outer.traceparent.split("-")[1] == trace
        with tracing.span("scan") as inner:
            assert inner.traceparent.split("-")[1] == trace
    with tracing.span("receive", parent="noise") as other:
        assert other.traceparent.split("-")[1] != trace


def test_guard_does_not_record_what_abby_did_not_choose(tracing):
    with tracing.span("receive", parent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00") as span:
        assert span.traceparent.endswith("-00")
