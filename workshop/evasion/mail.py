"""Assembles a message from parts, byte by byte, so that no library corrects the attacker's input."""

import base64
import itertools
from dataclasses import dataclass

_numbers = itertools.count(1)
HELLO = b"Hello Bob,\r\n\r\nas discussed, the file is attached.\r\n\r\nAlice\r\n"


@dataclass(frozen=True, slots=True)
class Part:
    headers: tuple[str, ...]
    body: bytes

    def raw(self) -> bytes:
        return "\r\n".join(self.headers).encode("utf-8") + b"\r\n\r\n" + self.body


def head(sender: str = "Alice <alice@pass.example>", subject: str = "Minutes of Thursday") -> bytes:
    """Return ordinary headers of an authenticated sender."""
    return (
        f"From: {sender}\r\nTo: bob@company.example\r\nSubject: {subject}\r\n"
        f"Date: Mon, 05 Jan 2026 10:00:00 +0000\r\nMessage-ID: <case-{next(_numbers)}@pass.example>\r\n"
        "MIME-Version: 1.0\r\n"
    ).encode()


def text_part(text: bytes = HELLO, kind: str = "text/plain; charset=utf-8") -> Part:
    return Part((f"Content-Type: {kind}",), text)


def file_part(name: str, content: bytes, media_type: str = "application/octet-stream") -> Part:
    headers = (
        f'Content-Type: {media_type}; name="{name}"',
        f'Content-Disposition: attachment; filename="{name}"',
        "Content-Transfer-Encoding: base64",
    )
    return Part(headers, base64.encodebytes(content).replace(b"\n", b"\r\n"))


def mixed(*parts: Part, subtype: str = "mixed", boundary: str = "b0undary") -> Part:
    body = b"".join(b"--" + boundary.encode() + b"\r\n" + part.raw() + b"\r\n" for part in parts)
    return Part((f'Content-Type: multipart/{subtype}; boundary="{boundary}"',), body + f"--{boundary}--\r\n".encode())


def message(part: Part, top: bytes | None = None) -> bytes:
    return (head() if top is None else top) + part.raw()


def with_file(name: str, content: bytes, media_type: str = "application/octet-stream", text: bytes = HELLO) -> bytes:
    """Return a message with a short text and one attachment."""
    return message(mixed(text_part(text), file_part(name, content, media_type)))


def with_page(page: bytes, kind: str = "text/html; charset=utf-8", *more: str) -> bytes:
    """Return a message with this page as its body, unchanged."""
    return message(Part((f"Content-Type: {kind}", *(more or ("Content-Transfer-Encoding: 8bit",))), page))


def encoded_page(page: bytes, kind: str) -> bytes:
    """Return a message with this page as its base64 body, for encodings that are not text."""
    body = base64.encodebytes(page).replace(b"\n", b"\r\n")
    return message(Part((f"Content-Type: {kind}", "Content-Transfer-Encoding: base64"), body))
