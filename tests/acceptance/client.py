"""A plain caller of the Email Scanning API: what an integrator would write, over TLS and without anything of ours."""

import dataclasses
import http.client
import json
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from requests.structures import CaseInsensitiveDict

from tests.waiting import wait_until

SUBMIT = "/v1/messageQueue/submitEmail"
STATUS = "/v1/admin/status"
BOUNDARY = "acceptance-4f1d2c"
FORM = f"multipart/form-data; boundary={BOUNDARY}"
ENVELOPE: dict[str, object] = {
    "envelopeFrom": "alice@pass.example",
    "envelopeRecipients": ["bob@company.example"],
    "remoteAddress": "192.0.2.10",
    "senderHelo": "mail.pass.example",
}
# Long enough for a machine that does other things as well; no test waits so long where all is well.
PATIENCE = 60.0  # with a machine that is busy with other things


@dataclass(frozen=True)
class Part:
    """One part of the form; a content type or a file name that is None is not sent."""

    name: str
    data: bytes
    content_type: str | None = None
    filename: str | None = None

    def encode(self) -> bytes:
        filename = "" if self.filename is None else f'; filename="{self.filename}"'
        kind = "" if self.content_type is None else f"Content-Type: {self.content_type}\r\n"
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{self.name}"{filename}\r\n{kind}\r\n'
        return head.encode() + self.data + b"\r\n"


def form(*parts: Part) -> bytes:
    return b"".join(part.encode() for part in parts) + f"--{BOUNDARY}--\r\n".encode()


def parameters(record: object | None = None, content_type: str | None = "application/json") -> Part:
    """Make the part `parameters` from a record, or from raw bytes where they are no record."""
    data = record if isinstance(record, bytes) else json.dumps(record or {"borderMtaData": ENVELOPE}).encode()
    return Part("parameters", data, content_type)


def email(message: bytes) -> Part:
    return Part("email", message, "message/rfc822", "message.eml")


def envelope(**changes: object) -> dict[str, object]:
    """Return the parameters with some fields of the envelope changed; None takes a field out."""
    fields = {name: value for name, value in {**ENVELOPE, **changes}.items() if value is not None}
    return {"borderMtaData": fields}


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Return the code of the error, having checked that the body is an Error and nothing else."""
        assert self.headers["Content-Type"].partition(";")[0] == "application/json"
        body = self.json
        assert {"error"} <= set(body) <= {"error", "message", "details"}
        assert isinstance(body["error"], str)
        assert isinstance(body.get("message", ""), str)
        return str(body["error"])

    @property
    def result(self) -> dict[str, Any]:
        """Return the result of an analysis, having checked that it is one."""
        assert self.status == 200, self.body
        assert isinstance(self.json, dict)
        return dict(self.json)

    @property
    def outcome(self) -> tuple[str, str]:
        return self.result["verdict"], self.result["decision"]


@dataclass(frozen=True)
class Client:
    url: str
    ca: Path
    token: str | None

    def using(self, token: str | None) -> "Client":
        return dataclasses.replace(self, token=token)

    def call(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        data: bytes | Iterator[bytes] | None = None,
    ) -> Answer:
        with requests.Session() as session:
            session.trust_env = False
            response = session.request(
                method,
                self.url + path,
                headers={**self.authorization, **(headers or {})},
                data=data,
                verify=str(self.ca),
                timeout=PATIENCE,
                allow_redirects=False,
            )
            return Answer(response.status_code, response.headers, response.content)

    def send(self, *parts: Part, headers: Mapping[str, str] | None = None) -> Answer:
        """Submit exactly these parts."""
        return self.call("POST", SUBMIT, headers={"Content-Type": FORM, **(headers or {})}, data=form(*parts))

    def submit(
        self,
        message: bytes,
        record: Mapping[str, object] | None = None,
        *,
        tenant: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Submit a message as it should be done."""
        whole = dict(record or {"borderMtaData": ENVELOPE})
        if tenant is not None:
            whole["tenantUid"] = tenant
        return self.send(parameters(whole), email(message), headers=headers)

    def explain(self, ggrid: str) -> Answer:
        return self.call("GET", f"/v1/messages/{ggrid}")

    def explained(self, ggrid: str) -> dict[str, Any]:
        """Return the record of history, which is written shortly after the answer."""
        assert wait_until(lambda: self.explain(ggrid).status == 200)
        return self.explain(ggrid).result

    def colour(self) -> str:
        answer = self.call("POST", STATUS)
        assert answer.status == 200, answer.body
        assert set(answer.json) == {"messageQueueStatus"}
        return str(answer.json["messageQueueStatus"])

    @property
    def authorization(self) -> dict[str, str]:
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    @contextmanager
    def connection(self) -> Iterator[http.client.HTTPSConnection]:
        """Open one connection that stays open between calls."""
        place = urlsplit(self.url)
        connection = http.client.HTTPSConnection(
            str(place.hostname), place.port, timeout=PATIENCE, context=self.context
        )
        connection.connect()
        try:
            yield connection
        finally:
            connection.close()

    def call_over(self, connection: http.client.HTTPSConnection, method: str, path: str, *parts: Part) -> Answer:
        """Make a call over an open connection, with a form where there are parts."""
        headers = dict(self.authorization)
        if parts:
            headers["Content-Type"] = FORM
        connection.request(method, path, body=form(*parts) if parts else None, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, CaseInsensitiveDict(response.headers.items()), response.read())

    def say(self, head: Sequence[str], body: bytes = b"", *, timeout: float = PATIENCE) -> Answer:
        """Send these lines as a request's head, and these bytes as all that follows; read the one answer."""
        return self.say_nothing_more("\r\n".join([*head, "", ""]).encode() + body, timeout=timeout)

    def say_nothing_more(self, data: bytes, *, timeout: float = PATIENCE) -> Answer:
        """Send these bytes and no other, and read the one answer."""
        place = urlsplit(self.url)
        with (
            socket.create_connection((place.hostname, place.port), timeout) as plain,
            self.context.wrap_socket(plain, server_hostname=place.hostname) as secured,
        ):
            secured.sendall(data)
            response = http.client.HTTPResponse(secured)
            response.begin()
            return Answer(response.status, CaseInsensitiveDict(response.headers.items()), response.read())
