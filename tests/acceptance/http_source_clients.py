"""Clients of the HTTP scan sources for existing installations: Rspamd's own client, and plain HTTP."""

import http.client
import json
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rig.programs import find_program
from tests.acceptance.deployment import Deployment
from tests.samples.stalwart import hook_call

HOST = "127.0.0.1"
PASSWORD = "a-password-of-the-source"
TOKEN = "a-token-for-the-source"
SENDER = {"From": "alice@pass.example", "IP": "192.0.2.10", "Helo": "mail.pass.example"}
_GGRID = re.compile(r"\(([0-9a-f-]{36})\)")


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class HttpSources:
    """A deployment whose first guard has both HTTP sources enabled."""

    deployment: Deployment
    rspamd_port: int
    stalwart_port: int

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

    def hook(self, call: object, token: str = TOKEN, path: str = "/") -> Reply:
        """Ask as Stalwart does; bytes are sent as they are."""
        body = call if isinstance(call, bytes) else json.dumps(call).encode()
        return ask(self.stalwart_port, "POST", path, body, [("Authorization", f"Bearer {token}")])

    def hook_with(self, message: bytes, *recipients: str) -> dict[str, Any]:
        reply = self.hook(hook_call(message, recipients or ("bob@company.example",)))
        assert reply.status == 200, reply.body
        return dict(reply.json)

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


def ggrid_of_hook(answer: dict[str, Any]) -> str:
    """Return the id from the header that is added, or from the reply to the sender."""
    added = {each["name"]: each.get("value") for each in answer.get("modifications", ())}
    if "X-Mailwarden-Ggrid" in added:
        return str(added["X-Mailwarden-Ggrid"])
    found = _GGRID.search(answer["response"]["message"])
    assert found is not None, answer
    return found[1]
