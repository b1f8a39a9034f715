"""Clients of the HTTP scan source for existing installations: Rspamd's own client, and plain HTTP."""

import http.client
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.deployment import Deployment
from workshop.rig.programs import find_program

HOST = "127.0.0.1"
PASSWORD = "a-password-of-the-source"
SENDER = {"From": "alice@pass.example", "IP": "192.0.2.10", "Helo": "mail.pass.example"}


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class HttpSources:
    """A deployment whose first guard answers clients of Rspamd."""

    deployment: Deployment
    rspamd_port: int

    def check(
        self,
        message: bytes,
        *recipients: str,
        path: str = "/checkv2",
        method: str = "POST",
        password: str = PASSWORD,
        headers: Sequence[tuple[str, str]] = (),
    ) -> Reply:
        """Ask as a client of Rspamd does, a header for each recipient."""
        given = [("Rcpt", recipient) for recipient in recipients or ("bob@company.example",)]
        replaced = {name.lower() for name, _ in headers}
        usual = [(name, value) for name, value in SENDER.items() if name.lower() not in replaced]
        return ask(self.rspamd_port, method, path, message, [("Password", password), *given, *usual, *headers])

    def explain(self, ggrid: str) -> dict[str, Any]:
        return self.deployment.client().explained(ggrid)


def ask(
    port: int, method: str, path: str, body: bytes, headers: Sequence[tuple[str, str]], length: int | None = None
) -> Reply:
    """Send a request; a length that is not the body's makes it one that never ends."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60.0)
    try:
        connection.putrequest(method, path)
        for name, value in headers:
            connection.putheader(name, value.encode("utf-8"))
        connection.putheader("Content-Length", str(len(body) if length is None else length))
        connection.endheaders(body)
        response = connection.getresponse()
        return Reply(response.status, response.read())
    finally:
        connection.close()


def rspamc(port: int, message: Path, *options: str, host: str = HOST) -> subprocess.CompletedProcess[str]:
    """Ask with Rspamd's own client."""
    return subprocess.run(
        [find_program("rspamc"), "-h", f"{host}:{port}", *options, str(message)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )


def ggrid_of_check(answer: dict[str, Any]) -> str:
    return str(answer["milter"]["add_headers"]["X-Mailwarden-Ggrid"]["value"])
