"""Prometheus with the shipped alert rules, Alertmanager, and a receiver of its notifications."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ruamel.yaml import YAML

from workshop.rig.ports import free_port
from workshop.rig.process import ServerProcess
from workshop.rig.product import Product
from workshop.rig.programs import find_program

HOST = "127.0.0.1"
INTERVAL = "1s"
RULES = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yml"


class Notifications:
    """The alerts that Alertmanager reported: when each fired or cleared, by name."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, str, float]] = []
        self._changed = threading.Condition()
        notifications = self

        class Receiver(BaseHTTPRequestHandler):
            def do_POST(self) -> None:  # the name is given by http.server
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                notifications.take(body["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- given by http.server
                """Print nothing."""

        self._server = ThreadingHTTPServer((HOST, 0), Receiver)
        self.url = f"http://{HOST}:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, alerts: list[dict[str, object]]) -> None:
        with self._changed:
            for alert in alerts:
                labels = alert["labels"]
                assert isinstance(labels, dict)
                self._seen.append((str(labels["alertname"]), str(alert["status"]), time.monotonic()))
            self._changed.notify_all()

    def wait_for(self, name: str, status: str, *, since: float, seconds: float) -> float:
        """Return the seconds from `since` until the alert was reported `firing` or `resolved`."""
        end = time.monotonic() + seconds
        with self._changed:
            while True:
                for seen, state, moment in self._seen:
                    if (seen, state) == (name, status) and moment >= since:
                        return moment - since
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{name} was not {status} within {seconds:.0f} s; reported: {self._seen}")
                self._changed.wait(left)

    @property
    def names(self) -> set[str]:
        """Return the names of all alerts that were reported so far."""
        with self._changed:
            return {name for name, _, _ in self._seen}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def monitoring(folder: Path, product: Product) -> Iterator[Notifications]:
    """Scrape the product every second with the shipped rules, whose `for` is one second here."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        notifications = Notifications()
        stack.callback(notifications.close)
        alertmanager = _server("prometheus-alertmanager", folder, _alertmanager_options(folder, notifications))
        prometheus = _server("prometheus", folder, _prometheus_options(folder, product, alertmanager.address))
        for server in (alertmanager, prometheus):
            server.start()
            stack.callback(server.stop)
        yield notifications


def _server(program: str, folder: Path, options: list[str]) -> ServerProcess:
    address = f"{HOST}:{free_port()}"

    def is_ready() -> bool:
        with urllib.request.urlopen(f"http://{address}/-/ready", timeout=1.0) as answer:
            return bool(answer.status == 200)

    command = [find_program(program), *options, f"--web.listen-address={address}"]
    server = ServerProcess(program, command, folder / f"{program}.log", is_ready, deadline=60.0)
    server.address = address
    return server


def _alertmanager_options(folder: Path, notifications: Notifications) -> list[str]:
    hook = {"name": "hook", "webhook_configs": [{"url": notifications.url, "send_resolved": True}]}
    route = {"receiver": "hook", "group_by": ["..."], "group_wait": INTERVAL, "group_interval": INTERVAL}
    path = folder / "alertmanager.yml"
    _write(path, {"route": route, "receivers": [hook]})
    return [f"--config.file={path}", f"--storage.path={folder / 'alertmanager'}", "--cluster.listen-address="]


def _prometheus_options(folder: Path, product: Product, alertmanager: str) -> list[str]:
    rules = YAML(typ="safe").load(RULES.read_text("utf-8"))
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["for"] = INTERVAL
    _write(folder / "rules.yml", rules)
    tls = product.abby.folder / "tls"
    ca = {"ca_file": str(tls / "ca.crt")}
    abby = {
        "job_name": "mailwarden-abby",
        "scheme": "https",
        "authorization": {"credentials": product.token},
        "tls_config": ca,
        "static_configs": [{"targets": [f"{HOST}:{product.abby.port}"]}],
    }
    guard = {
        "job_name": "mailwarden-guard",
        "scheme": "https",
        "tls_config": {**ca, "cert_file": str(tls / "abby.crt"), "key_file": str(tls / "abby.key")},
        "static_configs": [{"targets": [f"{HOST}:{guard.port}" for guard in product.guards]}],
    }
    path = folder / "prometheus.yml"
    _write(
        path,
        {
            "global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": [str(folder / "rules.yml")],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
            "scrape_configs": [abby, guard],
        },
    )
    return [f"--config.file={path}", f"--storage.tsdb.path={folder / 'prometheus'}"]


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content), "utf-8")  # JSON is YAML
