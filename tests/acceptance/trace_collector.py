"""A receiver of traces: it keeps what abby, guard and workers send over OTLP."""

import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


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
