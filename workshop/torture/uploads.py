"""Wraps multipart bodies and `parameters` records into whole requests, so that all cases go through the product."""

from workshop.torture.cases import SUBMIT, Case, Expected

CONTENT_TYPE = "multipart/form-data; boundary=b"
PARAMETERS = b'{"borderMtaData":{"envelopeFrom":"a@sender.example","envelopeRecipients":["b@recipient.example"]}}'
MESSAGE = b"From: a@sender.example\r\nTo: b@recipient.example\r\nSubject: x\r\n\r\ny\r\n"
JSON = b"Content-Type: application/json\r\n"


def part(name: bytes, payload: bytes, headers: bytes = b"", boundary: bytes = b"b") -> bytes:
    """Return one part with the line break that ends it."""
    head = b"--" + boundary + b'\r\nContent-Disposition: form-data; name="' + name + b'"\r\n' + headers + b"\r\n"
    return head + payload + b"\r\n"


def body_of(*parts: bytes, boundary: bytes = b"b") -> bytes:
    return b"".join(parts) + b"--" + boundary + b"--\r\n"


def upload_case(name: str, body: bytes, *expected: Expected, content_type: str = CONTENT_TYPE) -> Case:
    """Return the case that posts this body."""
    head = (
        f"POST {SUBMIT} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {{TOKEN}}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return Case(name, (head.encode("latin-1") + body,), expected)
