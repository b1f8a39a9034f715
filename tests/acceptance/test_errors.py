"""The error table, row by row."""

import json
from dataclasses import dataclass

import pytest

from tests.acceptance.client import (
    BOUNDARY,
    ENVELOPE,
    FORM,
    STATUS,
    SUBMIT,
    Answer,
    Client,
    Part,
    email,
    envelope,
    form,
    parameters,
)
from tests.acceptance.deployment import Deployment
from workshop.rig.samples import plain_message

MESSAGE = plain_message()
WHOLE = form(parameters(), email(MESSAGE))
NOBODY = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Call:
    """One wrong request; what is not said is right."""

    method: str = "POST"
    path: str = SUBMIT
    body: bytes = WHOLE
    content_type: str | None = FORM
    token: str | None = "everything"
    authorization: str | None = None

    def make(self, deployment: Deployment) -> Answer:
        client = Client(
            deployment.product.url, deployment.product.ca, deployment.tokens[self.token] if self.token else None
        )
        headers = {} if self.content_type is None else {"Content-Type": self.content_type}
        if self.authorization is not None:
            headers["Authorization"] = self.authorization
        return client.call(self.method, self.path, headers=headers, data=self.body)


def of(*parts: Part) -> Call:
    return Call(body=form(*parts))


def said(record: object) -> Call:
    return of(parameters(record), email(MESSAGE))


def row(name: str, call: Call, status: int, code: str, mark: pytest.MarkDecorator):
    return pytest.param(call, status, code, marks=mark, id=f"{code}, {name}")


def broken_form(text: str) -> Call:
    return Call(body=text.replace("\n", "\r\n").replace("BOUNDARY", BOUNDARY).encode())


ROUTE = [
    row("unknown path", Call(path="/v1/nothing"), 404, "not_found", pytest.mark.contract("5 not_found")),
    row("trailing slash", Call(path=SUBMIT + "/"), 404, "not_found", pytest.mark.contract("5 not_found")),
    row("other letters", Call(path=SUBMIT.lower()), 404, "not_found", pytest.mark.contract("5 not_found")),
    row("no such ggrid", Call("GET", f"/v1/messages/{NOBODY}"), 404, "message_not_found",
        pytest.mark.contract("5 message_not_found")),
    row("not a ggrid", Call("GET", "/v1/messages/17"), 404, "message_not_found",
        pytest.mark.contract("5 message_not_found")),
    *(row(method, Call(method), 405, "method_not_allowed", pytest.mark.contract("5 method_not_allowed"))
      for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS")),
    row("status by GET", Call("GET", STATUS), 405, "method_not_allowed",
        pytest.mark.contract("5 method_not_allowed")),
]  # fmt: skip
CREDENTIAL = [
    row("none", Call(token=None), 401, "unauthenticated", pytest.mark.contract("5 unauthenticated")),
    *(row(repr(words), Call(token=None, authorization=words), 401, "unauthenticated",
          pytest.mark.contract("5 unauthenticated"))
      for words in ("Bearer", "Bearer ", "Basic YTpi", "Token abc", "Bearer two words", "bearer")),
    row("unknown token", Call(token=None, authorization="Bearer " + "0" * 64), 401, "invalid_credentials",
        pytest.mark.contract("5 invalid_credentials")),
    row("a key of the List API", Call(token=None, authorization="apikey mwk_abc_0123456789"), 401,
        "invalid_credentials", pytest.mark.contract("5 invalid_credentials")),
    row("submit without permission", Call(token="reader"), 403, "forbidden", pytest.mark.contract("5 forbidden")),
    row("status without permission", Call(path=STATUS, token="reader"), 403, "forbidden",
        pytest.mark.contract("5 forbidden")),
    row("explanation without permission", Call("GET", f"/v1/messages/{NOBODY}", token="plain"), 403, "forbidden",
        pytest.mark.contract("5 forbidden")),
    row("metrics without permission", Call("GET", "/metrics", token="plain"), 403, "forbidden",
        pytest.mark.contract("5 forbidden")),
]  # fmt: skip
MEDIA = [
    *(row(str(kind), Call(content_type=kind), 415, "unsupported_media_type",
          pytest.mark.contract("5 unsupported_media_type"))
      for kind in (None, "application/json", "multipart/mixed; boundary=x", "text/plain", "message/rfc822")),
    *(row(str(kind), of(parameters(content_type=kind), email(MESSAGE)), 415, "parameters_content_type_required",
          pytest.mark.contract("5 parameters_content_type_required"))
      for kind in (None, "text/plain", "application/octet-stream", "text/json", "application/json; charset=utf-16")),
]  # fmt: skip
MULTIPART = [
    *(row(name, call, 400, "malformed_multipart", pytest.mark.contract("5 malformed_multipart"))
      for name, call in {
          "no boundary in the type": Call(content_type="multipart/form-data"),
          "nothing": Call(body=b""),
          "no boundary in the body": Call(body=b"hello"),
          "cut before the last boundary": Call(body=WHOLE[: -len(BOUNDARY) - 8]),
          "cut inside the message": Call(body=WHOLE[:-200]),
          "no header": broken_form("--BOUNDARY\n\n{}\n--BOUNDARY--\n"),
          "no name": broken_form("--BOUNDARY\nContent-Disposition: form-data\n\n{}\n--BOUNDARY--\n"),
          "header without a colon": broken_form("--BOUNDARY\nnonsense\n\n{}\n--BOUNDARY--\n"),
          "not form-data": broken_form('--BOUNDARY\nContent-Disposition: inline; name="email"\n\nx\n--BOUNDARY--\n'),
      }.items()),
    row("parameters", of(email(MESSAGE)), 400, "missing_part", pytest.mark.contract("5 missing_part")),
    row("email", of(parameters()), 400, "missing_part", pytest.mark.contract("5 missing_part")),
    row("no part at all", Call(body=f"--{BOUNDARY}--\r\n".encode()), 400, "missing_part",
        pytest.mark.contract("5 missing_part")),
    row("email", of(parameters(), email(MESSAGE), email(MESSAGE)), 400, "duplicate_part",
        pytest.mark.contract("5 duplicate_part")),
    row("parameters", of(parameters(), parameters(), email(MESSAGE)), 400, "duplicate_part",
        pytest.mark.contract("5 duplicate_part")),
    row("extra", of(parameters(), email(MESSAGE), Part("extra", b"x")), 400, "unexpected_part",
        pytest.mark.contract("5 unexpected_part")),
    row("other letters", of(parameters(), Part("Email", MESSAGE)), 400, "unexpected_part",
        pytest.mark.contract("5 unexpected_part")),
    row("no byte", of(parameters(), email(b"")), 400, "empty_email", pytest.mark.contract("5 empty_email")),
]  # fmt: skip
JSON = [
    row(name, said(raw), 400, "invalid_json", pytest.mark.contract("5 invalid_json"))
    for name, raw in {
        "nothing": b"",
        "not JSON": b"{borderMtaData}",
        "cut": json.dumps(envelope()).encode()[:-1],
        "two values": b"{} {}",
        "duplicate keys": b'{"borderMtaData": {}, "borderMtaData": {}}',
        "duplicate keys inside": b'{"borderMtaData": {"envelopeFrom": "a@pass.example", "envelopeFrom": ""}}',
        "NaN": b'{"borderMtaData": NaN}',
        "Infinity": b'{"borderMtaData": -Infinity}',
        "bad UTF-8": b'{"borderMtaData": "\xff"}',
        "UTF-16": json.dumps(envelope()).encode("utf-16"),
        "byte order mark": b"\xef\xbb\xbf" + json.dumps(envelope()).encode(),
        "an array": b"[]",
        "a string": b'"borderMtaData"',
        "null": b"null",
        "too deep": b'{"a":' * 100_000,
        "NUL": json.dumps(envelope(senderHelo="a\0b")).encode(),
        "lone surrogate": b'{"borderMtaData": {"envelopeFrom": "\\ud800", "envelopeRecipients": ["b@c.example"]}}',
    }.items()
]
VIOLATIONS = {
    "no envelope": ({"tenantUid": NOBODY}, ""),
    "envelope is null": ({"borderMtaData": None}, "/borderMtaData"),
    "envelope is a list": ({"borderMtaData": []}, "/borderMtaData"),
    "no sender": (envelope(envelopeFrom=None), "/borderMtaData"),
    "sender is a number": (envelope(envelopeFrom=1), "/borderMtaData/envelopeFrom"),
    "no recipients": (envelope(envelopeRecipients=None), "/borderMtaData"),
    "empty recipients": (envelope(envelopeRecipients=[]), "/borderMtaData/envelopeRecipients"),
    "recipients are a string": (envelope(envelopeRecipients="a@b.example"), "/borderMtaData/envelopeRecipients"),
    "a recipient is null": (envelope(envelopeRecipients=["a@b.example", None]), "/borderMtaData/envelopeRecipients/1"),
    "a recipient is empty": (envelope(envelopeRecipients=[""]), "/borderMtaData/envelopeRecipients/0"),
    "1,001 recipients": (envelope(envelopeRecipients=["a@b.example"] * 1_001), "/borderMtaData/envelopeRecipients"),
    "address is a name": (envelope(remoteAddress="mail.pass.example"), "/borderMtaData/remoteAddress"),
    "address is too large": (envelope(remoteAddress="192.0.2.256"), "/borderMtaData/remoteAddress"),
    "address is a network": (envelope(remoteAddress="192.0.2.0/24"), "/borderMtaData/remoteAddress"),
    "address is empty": (envelope(remoteAddress=""), "/borderMtaData/remoteAddress"),
    "helo is a list": (envelope(senderHelo=["a"]), "/borderMtaData/senderHelo"),
    "a typo that would choose another scope": ({"borderMtaData": ENVELOPE, "tenantUID": NOBODY}, ""),
    "unknown field in the envelope": (envelope(envelopeTo="a@b.example"), "/borderMtaData"),
    "line break in the sender": (envelope(envelopeFrom="a@b.example\r\nFile: /etc"), "/borderMtaData/envelopeFrom"),
    "line break at the end": (envelope(envelopeFrom="a@b.example\n"), "/borderMtaData/envelopeFrom"),
    "control character in a recipient": (envelope(envelopeRecipients=["a\x1b@b.example"]),
                                         "/borderMtaData/envelopeRecipients/0"),
    "C1 control character in helo": (envelope(senderHelo="mail\x85"), "/borderMtaData/senderHelo"),
}  # fmt: skip


@pytest.mark.spec("2 error")
@pytest.mark.spec("4 submitEmail error")
@pytest.mark.spec("4 status error")
@pytest.mark.spec("7 errors")
@pytest.mark.contract("5 body")
@pytest.mark.contract("5 one status")
@pytest.mark.parametrize(("call", "status", "code"), [*ROUTE, *CREDENTIAL, *MEDIA, *MULTIPART, *JSON])
def test_a_wrong_request_is_answered_with_its_status_and_its_code(deployment, call, status, code):
    answer = call.make(deployment)

    assert (answer.status, answer.error) == (status, code)
    assert answer.json["message"].endswith(".")
    assert answer.headers["X-Request-Id"]
    assert ("WWW-Authenticate" in answer.headers) == (status == 401)
    assert ("Allow" in answer.headers) == (status == 405)
    assert "Retry-After" not in answer.headers


@pytest.mark.contract("5 schema_violation")
@pytest.mark.contract("3 unknown fields")
@pytest.mark.contract("3 control characters")
@pytest.mark.contract("3 recipients")
@pytest.mark.contract("3 remoteAddress")
@pytest.mark.spec("2 borderMtaData")
@pytest.mark.spec("2 envelopeRecipients")
@pytest.mark.parametrize(("record", "pointer"), VIOLATIONS.values(), ids=VIOLATIONS)
def test_a_record_that_breaks_the_shape_is_refused_with_a_pointer_to_the_place(client, record, pointer):
    answer = client.submit(MESSAGE, record)

    assert (answer.status, answer.error) == (400, "schema_violation")
    assert answer.json["details"][0]["pointer"] == pointer
    assert answer.json["details"][0]["problem"]


@pytest.mark.contract("3 unknown fields")
def test_a_tenant_in_the_query_is_not_passed_over(deployment):
    answer = Call(path=f"{SUBMIT}?tenantUid={NOBODY}").make(deployment)

    assert (answer.status, answer.error) == (400, "schema_violation")
    assert answer.json["details"][0]["pointer"] == "/tenantUid"


@pytest.mark.contract("5 invalid_tenant_uid")
@pytest.mark.spec("2 tenantUid")
@pytest.mark.parametrize("uid", ["", "acme", "12345", 7, [], "00000000-0000-4000-8000-00000000000g"])
def test_a_tenant_uid_that_is_no_uuid_is_refused(client, uid):
    answer = client.submit(MESSAGE, {"borderMtaData": ENVELOPE, "tenantUid": uid})

    assert (answer.status, answer.error) == (400, "invalid_tenant_uid")


@pytest.mark.contract("5 method_not_allowed")
def test_a_wrong_method_gets_the_allowed_ones(client):
    assert client.call("GET", SUBMIT).headers["Allow"] == "POST"
    assert client.call("POST", "/openapi.json").headers["Allow"] == "GET, HEAD"


@pytest.mark.contract("5 unauthenticated")
def test_a_caller_without_a_token_gets_the_scheme(client):
    assert client.using(None).call("POST", STATUS).headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.contract("5 unauthenticated")
def test_two_authorizations_are_none(deployment):
    token = deployment.tokens["everything"]
    head = [f"POST {STATUS} HTTP/1.1", "Host: abby", f"Authorization: Bearer {token}", f"Authorization: Bearer {token}"]

    assert deployment.client().say([*head, "Content-Length: 0"]).status == 401


@pytest.mark.contract("5 bad_request")
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(["POST / HTTP/1.1"], id="no Host"),
        pytest.param(["GET /healthz HTTP/1.1", "Host: a", "Host: b"], id="two Hosts"),
        pytest.param(["GET /healthz HTTP/9.9", "Host: a"], id="unknown version"),
        pytest.param(["NONSENSE"], id="no request line"),
        pytest.param(
            ["POST / HTTP/1.1", "Host: a", "Content-Length: 5", "Transfer-Encoding: chunked"], id="two lengths"
        ),
        pytest.param(["GET /healthz HTTP/1.1", "Host: a", "X: " + "a" * 40_000], id="head too large"),
    ],
)
def test_bytes_that_are_no_request_are_refused_in_our_own_words(client, head):
    answer = client.say(head)

    assert (answer.status, answer.error) == (400, "bad_request")
    assert answer.headers["X-Request-Id"]
