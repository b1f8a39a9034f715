"""A submission is one trace over abby, guard and worker, received by a collector, without private data."""

import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rig.samples import plain_message
from tests.acceptance.deployment import run_deployment
from tests.waiting import wait_until

SUBJECT = "Figures of the violet project"


class Collector:
    """Receives OTLP over HTTP and keeps the spans by trace: service and name, with the id and the parent's id."""

    def __init__(self) -> None:
        self.raw = b""
        self.traces: dict[bytes, list[tuple[str, str, bytes, bytes]]] = defaultdict(list)
        collector = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.take(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- given by http.server
                """Print nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/traces"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, body: bytes) -> None:
        self.raw += body
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            for scope in resource.scope_spans:
                for span in scope.spans:
                    found = (names["service.name"], span.name, span.span_id, span.parent_span_id)
                    self.traces[span.trace_id].append(found)


@pytest.fixture(scope="module")
def collector():
    collector = Collector()
    yield collector
    collector.server.shutdown()
    collector.server.server_close()


@pytest.fixture(scope="module")
def traced(engines, deployment_template, collector, tmp_path_factory):
    tracing = {"tracing": {"endpoint": collector.url, "sampleRatio": 1}}
    folder = tmp_path_factory.mktemp("traced")
    settings = {"guards": (tracing,), "abby": tracing}
    with run_deployment(engines, deployment_template, folder, **settings, one_process=False) as running:
        yield running


def test_one_submission_is_one_trace_over_all_processes(traced, collector):
    abby, guard, worker = "mailwarden-abby", "mailwarden-guard", "mailwarden-worker"
    # The span that begins in each process ends last there, and may be sent in a later batch.
    outermost = {(abby, "submit"), (guard, "receive"), (worker, "examine")}
    known = set(collector.traces)
    traced.client().submit(plain_message("violet@pass.example", SUBJECT))

    def new_traces() -> list[list[tuple[str, str, bytes, bytes]]]:
        return [list(spans) for trace, spans in tuple(collector.traces.items()) if trace not in known]

    def complete() -> bool:
        return any(outermost <= {(service, name) for service, name, *_ in spans} for spans in new_traces())

    assert wait_until(complete)
    (spans,) = new_traces()
    ids = {span_id: (service, name) for service, name, span_id, _ in spans}
    parents = {(service, name): ids.get(parent) for service, name, _, parent in spans}
    assert parents[abby, "submit"] is None
    assert parents[abby, "guard request"] == (abby, "submit")
    assert parents[guard, "receive"] == (abby, "guard request")
    assert parents[guard, "scan"] == (guard, "receive")
    assert parents[guard, "rspamd"] == parents[guard, "clamav"] == (guard, "scan")
    assert parents[worker, "examine"] == (guard, "scan")
    assert parents[worker, "structure"] == parents[worker, "html"] == (worker, "examine")


def test_no_span_has_a_subject_or_an_address(collector):
    assert collector.raw
    for private in (SUBJECT, "violet", "pass.example", "company.example"):
        assert private.encode() not in collector.raw
