"""Structural bombs: messages that cost a careless parser seconds or gigabytes, generated and never stored.

Each bomb is a name, a function that makes its bytes, and whether the structure check must trip on it. The others must
be parsed within the time of an ordinary message.
"""

import io
import random
import zipfile
import zlib
from base64 import encodebytes
from collections.abc import Callable, Iterator
from typing import NamedTuple

MIB = 1024 * 1024
RFC822 = b"Content-Type: message/rfc822\r\n\r\n"
RECEIVED = b"Received: from a by b; Mon, 1 Jan 2026 00:00:00 +0000\r\n"
QP = b"Content-Transfer-Encoding: quoted-printable\r\n"
TEXT = b"Content-Type: text/plain"
HEAD = b"From: a@sender.example\r\nTo: b@recipient.example\r\nSubject: bomb\r\nMIME-Version: 1.0\r\n"


class Bomb(NamedTuple):
    name: str
    make: Callable[[], bytes]
    trips: bool


def bombs() -> Iterator[Bomb]:
    """Yield every bomb; the bytes are made when `make` is called, because some are 50 MiB."""
    for name, make, trips in (*_NESTING, *_WIDTH, *_HEADERS, *_FIELDS, *_LINES, *_CONTENT):
        yield Bomb(name, make, trips)


def _nested_messages(depth: int, head: bytes = RFC822) -> bytes:
    return HEAD + head * depth + b"Content-Type: text/plain\r\n\r\nend\r\n"


def _nested_multiparts(depth: int, close: bool = True, boundary: str = "b{}") -> bytes:
    pieces = [HEAD]
    names = [boundary.format(level).encode() for level in range(depth)]
    pieces += [b'Content-Type: multipart/mixed; boundary="' + name + b'"\r\n\r\n--' + name + b"\r\n" for name in names]
    pieces.append(b"Content-Type: text/plain\r\n\r\nend\r\n")
    if close:
        pieces += [b"--" + name + b"--\r\n" for name in reversed(names)]
    return b"".join(pieces)


def _growing_boundaries(depth: int) -> bytes:
    names = [b"x" * length for length in range(1, depth)]
    head = b"Content-Type: multipart/mixed; boundary="
    return HEAD + b"".join(head + name + b"\r\n\r\n--" + name + b"\r\n" for name in names)


def _digests(depth: int) -> bytes:
    return _nested_multiparts(depth).replace(b"multipart/mixed", b"multipart/digest")


def _pieces(count: int, piece: bytes) -> bytes:
    return _headed(TEXT + b";" + b"".join(piece % number for number in range(count)) + b"\r\n")


def _near_misses(depth: int) -> bytes:
    return _nested_multiparts(depth, close=False, boundary="b{:03d}") + b"--b01x\r\n" * 90_000


def _long_boundaries(size: int, count: int) -> bytes:
    return _multipart((b"--" + b"b" * size + b"\r\n\r\nx\r\n") * count, b"b" * size)


def _alternating(depth: int) -> bytes:
    pieces = [HEAD]
    for level in range(depth):
        name = b"b%d" % level
        pieces.append(b"Content-Type: multipart/mixed; boundary=" + name + b"\r\n\r\n--" + name + b"\r\n")
        pieces.append(b"Content-Type: message/rfc822\r\n\r\n")
    return b"".join(pieces) + b"Content-Type: text/plain\r\n\r\nend\r\n"


def _multipart(body: bytes, boundary: bytes = b"b") -> bytes:
    head = HEAD + b"Content-Type: multipart/mixed; boundary=" + boundary + b"\r\n\r\n"
    return head + body + b"--" + boundary + b"--\r\n"


def _single(body: bytes, head: bytes = b"Content-Type: text/plain\r\n") -> bytes:
    return HEAD + head + b"\r\n" + body


def _headed(fields: bytes) -> bytes:
    return HEAD + fields + b"\r\nbody\r\n"


def _attached(name: str, content: bytes) -> bytes:
    part = (
        b"--b\r\nContent-Type: application/octet-stream\r\nContent-Transfer-Encoding: base64\r\n"
        b'Content-Disposition: attachment; filename="' + name.encode() + b'"\r\n\r\n'
    )
    return _multipart(part + encodebytes(content).replace(b"\n", b"\r\n"))


def packed(files: dict[str, bytes]) -> bytes:
    """Make a zip archive in memory."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


def nested_zip(depth: int) -> bytes:
    content = b"innermost"
    for level in range(depth):
        content = packed({f"level{level}.zip" if level else "file.txt": content})
    return content


def overlapping_zip(copies: int) -> bytes:
    """Make a zip whose directory names the same bytes many times."""
    content = packed({"a.bin": bytes(2 * MIB)})
    directory = content.index(b"PK\x01\x02")
    end = content.index(b"PK\x05\x06")
    entry = content[directory:end]
    body = content[:directory] + entry * copies
    tail = bytearray(content[end:])
    tail[8:12] = copies.to_bytes(2, "little") * 2
    tail[12:16] = (len(entry) * copies).to_bytes(4, "little")
    return body + bytes(tail)


def _noise(size: int) -> bytes:
    return random.Random(7).randbytes(size)


def _html(body: bytes) -> bytes:
    return _single(body, b"Content-Type: text/html; charset=utf-8\r\n")


_Row = tuple[str, Callable[[], bytes], bool]

_NESTING: tuple[_Row, ...] = (
    ("rfc822 nested 33", lambda: _nested_messages(33), True),
    ("rfc822 nested 30,000 (960 KB)", lambda: _nested_messages(30_000), True),
    ("rfc822 nested 1,500,000 (50 MiB)", lambda: _nested_messages(1_500_000), True),
    ("rfc822 nested with odd case", lambda: _nested_messages(5_000, b"CONTENT-type: Message/RFC822\r\n\r\n"), True),
    ("rfc822 nested with a comment", lambda: _nested_messages(5_000, RFC822.replace(b"2\r", b"2 (x)\r")), True),
    ("rfc822 nested with folds", lambda: _nested_messages(5_000, b"Content-Type:\r\n message/rfc822\r\n\r\n"), True),
    ("rfc822 nested, line feeds alone", lambda: _nested_messages(20_000, b"Content-Type: message/rfc822\n\n"), True),
    ("rfc822 nested with many headers", lambda: _nested_messages(20, b"X: y\r\n" * 1_900 + RFC822), True),
    ("message/global nested", lambda: _nested_messages(5_000, b"Content-Type: message/global\r\n\r\n"), True),
    ("multiparts nested 33", lambda: _nested_multiparts(33), True),
    ("multiparts nested 20", lambda: _nested_multiparts(20), False),
    ("multiparts nested 10,000", lambda: _nested_multiparts(10_000), True),
    ("multiparts nested 100,000, never closed", lambda: _nested_multiparts(100_000, close=False), True),
    ("multiparts nested 10,000 with one boundary", lambda: _nested_multiparts(10_000, boundary="same"), True),
    ("multiparts nested, boundary prefix of the next", lambda: _growing_boundaries(900), True),
    ("multiparts and messages in turn", lambda: _alternating(10_000), True),
    ("digest of nested digests", lambda: _digests(5_000), True),
)  # fmt: skip

_WIDTH: tuple[_Row, ...] = (
    ("300,000 tiny parts", lambda: _multipart(b"--b\r\n\r\nx\r\n" * 300_000), True),
    ("1,000,000 empty parts", lambda: _multipart(b"--b\r\n" * 1_000_000), True),
    ("5,000,000 empty parts, line feeds alone", lambda: _multipart(b"--b\n" * 5_000_000), True),
    ("1,001 parts", lambda: _multipart(b"--b\r\n\r\nx\r\n" * 1_001), True),
    ("900 parts", lambda: _multipart(b"--b\r\n\r\nx\r\n" * 900), False),
    ("1,000,000 boundary candidates", lambda: _multipart(b"--c\r\n" * 1_000_000), True),
    ("90,000 boundary candidates", lambda: _multipart(b"--c\r\n" * 90_000), False),
    ("boundary candidates without a multipart (50 MiB)", lambda: _single(b"--x\r\n" * 10_000_000), True),
    ("90,000 near misses of a boundary", lambda: _multipart(b"--bb\r\n" * 90_000), False),
    ("near misses under 30 open multiparts", lambda: _near_misses(30), False),
    ("near misses, long boundary", lambda: _multipart((b"--" + b"b" * 999 + b"\r\n") * 50_000, b"b" * 1_000), False),
    ("candidates without line end (50 MiB)", lambda: _single(b"-" * 50 * MIB), False),
    ("parts without empty line", lambda: _multipart(b"--b\r\nX: y\r\n" * 50_000), True),
    ("no empty line, then text", lambda: _multipart(b"--b\r\nX: y\r\n" * 900 + b"z\r\n" * 500_000), True),
    ("boundary of 10 KB", lambda: _long_boundaries(10_240, 1), True),
    ("boundary of 60 KB, many of them", lambda: _long_boundaries(60_000, 500), True),
    ("1,900 headers a part", lambda: _multipart((b"--b\r\n" + b"X: y\r\n" * 1_900 + b"\r\nx\r\n") * 900), True),
)  # fmt: skip

_HEADERS: tuple[_Row, ...] = (
    ("2,001 headers", lambda: _headed(b"X-A: y\r\n" * 2_001), True),
    ("1,000,000 headers", lambda: _headed(b"X-A: y\r\n" * 1_000_000), True),
    ("headers of 50 MiB without an end", lambda: HEAD + b"X: y\r\n" * 8_700_000, True),
    ("one header of 50 MiB", lambda: _headed(b"Subject: " + b"x" * 50 * MIB + b"\r\n"), True),
    ("one header of 65 KiB", lambda: _headed(b"X-Long: " + b"x" * 66_600 + b"\r\n"), True),
    ("a header folded 100,000 times", lambda: _headed(b"Subject: x" + b"\r\n y" * 100_000 + b"\r\n"), True),
    ("a header folded into white space", lambda: _headed(b"Subject: x" + b"\r\n " * 160_000 + b"\r\n"), True),
    ("header block of 513 KiB", lambda: _headed((b"X: " + b"y" * 1_000 + b"\r\n") * 525), True),
    ("Received flood", lambda: _headed(RECEIVED * 1_990), False),
    ("Received flood of 20,000", lambda: _headed(RECEIVED * 20_000), True),
    ("colons alone", lambda: _headed(b":\r\n" * 100_000), True),
    ("header lines without a colon", lambda: _headed(b"x\r\n" * 100_000), True),
    ("references flood of 300 KiB", lambda: _headed(b"References:" + b" <a@b.example>\r\n" * 20_000), True),
    ("references, 200 KiB", lambda: _headed(b"References:" + b"\r\n <a@bbbbbbbbbb.example>" * 8_000 + b"\r\n"), False),
    ("Content-Type 1,900 times", lambda: _headed(b"Content-Type: multipart/mixed; boundary=x\r\n" * 1_900), False),
)  # fmt: skip

_FIELDS: tuple[_Row, ...] = (
    ("encoded words of 1 MiB", lambda: _headed(b"Subject:" + b" =?utf-8?q?a?=\r\n" * 60_000), True),
    ("encoded words of 60 KiB", lambda: _headed(b"Subject:" + b" =?utf-8?q?a?=" * 4_300 + b"\r\n"), False),
    ("encoded words, never ended", lambda: _headed(b"Subject:" + b" =?utf-8?q?" * 5_500 + b"\r\n"), False),
    ("encoded words of unknown charsets", lambda: _headed(b"Subject:" + b" =?zip?b?eJw=?=" * 4_000 + b"\r\n"), False),
    ("RFC 2231 pieces 10,000", lambda: _pieces(10_000, b" n*%d=a;"), True),
    ("RFC 2231 pieces, 99", lambda: _pieces(99, b" name*%d*=%%41;"), False),
    ("parameters, 5,000", lambda: _headed(b"Content-Disposition: attachment;" + b" a=b;" * 5_000 + b"\r\n"), True),
    ("semicolons, 60,000", lambda: _headed(b"Content-Type: text/plain" + b" ;" * 30_000 + b"\r\n"), False),
    ("unterminated quotes", lambda: _headed(TEXT + b'; a="\\' * 90 + b"\r\n"), False),
    ("backslashes in quotes", lambda: _headed(TEXT + b'; name="' + b"\\" * 60_000 + b"\r\n"), False),
    ("comments nested 1,000", lambda: _headed(b"From: " + b"(" * 1_000 + b")" * 1_000 + b" x@y.example\r\n"), True),
    ("comments nested 60,000 in a type", lambda: _headed(b"Content-Type: " + b"(" * 60_000 + b"\r\n"), True),
    ("comments side by side", lambda: _headed(b"From: " + b"(a)" * 20_000 + b" x@y.example\r\n"), False),
    ("comments nested in Received, many", lambda: _headed((b"Received: " + b"(" * 250 + b"\r\n") * 1_900), True),
    ("addresses, 50,000", lambda: _headed(b"To:" + b" a@b.example," * 50_000 + b"\r\n"), True),
    ("addresses, 990", lambda: _headed(b"To:" + b" a@b.example,\r\n" * 990 + b" z@b.example\r\n"), False),
    ("commas in From", lambda: _headed(b"From: " + b"," * 60_000 + b"\r\n"), True),
    ("quotes in From", lambda: _headed(b"From: " + b'"' * 60_001 + b"\r\n"), False),
    ("angle brackets in From", lambda: _headed(b"From: " + b"<" * 60_000 + b"\r\n"), False),
    ("groups in To", lambda: _headed(b"To: " + b"a:" * 30_000 + b";\r\n"), False),
)  # fmt: skip

_LINES: tuple[_Row, ...] = (
    ("carriage returns alone (50 MiB)", lambda: HEAD + b"\r" * 50 * MIB, True),
    ("line feeds alone (50 MiB)", lambda: _single(b"\n" * 50 * MIB), True),
    ("CR LF alone (50 MiB)", lambda: _single(b"\r\n" * 25 * MIB), True),
    ("line feeds in a multipart (50 MiB)", lambda: _multipart(b"\n" * 50 * MIB), True),
    ("spaces as preamble (50 MiB)", lambda: _multipart(b" " * 50 * MIB), False),
    ("NUL bytes (50 MiB)", lambda: bytes(50 * MIB), True),
    ("line feed and dash (50 MiB)", lambda: _single(b"\n-" * 25 * MIB), True),
    ("one line of 50 MiB", lambda: _single(b"x" * 50 * MIB), False),
    ("epilogue of 50 MiB", lambda: _multipart(b"--b\r\n\r\nx\r\n--b--\r\n" + b"content-x\r\n" * 4_500_000), True),
    ("nothing", lambda: b"", False),
    ("noise of 5 MiB", lambda: _noise(5 * MIB), False),
)  # fmt: skip

_CONTENT: tuple[_Row, ...] = (
    ("base64 of 50 MiB in a multipart", lambda: _attached("a.bin", _noise(36 * MIB)), False),
    ("base64 padding everywhere", lambda: _attached("a.bin", b"x").replace(b"eA==", b"eA==" * 200_000), False),
    ("quoted-printable of equal signs", lambda: _single(b"=" * 5 * MIB, QP), False),
    ("uuencode begins, 100,000", lambda: _single(b"begin 644 a\r\n" * 100_000), False),
    ("zip of ratio 1,000", lambda: _attached("a.zip", packed({"a": bytes(60 * MIB)})), False),
    ("zip nested 20", lambda: _attached("a.zip", nested_zip(20)), False),
    ("zip that overlaps itself", lambda: _attached("a.zip", overlapping_zip(5_000)), False),
    ("gzip bomb", lambda: _attached("a.gz", zlib.compress(bytes(50 * MIB), 9, 31)), False),
    ("HTML 100,000 deep", lambda: _html(b"<div>" * 100_000), False),
    ("HTML with 100,000 links", lambda: _html(b"<a href=http://x.example/>x</a>" * 100_000), False),
    ("HTML with 200,000 attributes", lambda: _html(b"<a " + b"x=1 " * 200_000 + b">"), False),
    ("text with 500,000 URLs", lambda: _single(b"http://x.example/ " * 500_000), False),
    ("rfc822 in base64 in rfc822, 10 deep", lambda: _wrapped(10), False),
)  # fmt: skip


def _wrapped(depth: int) -> bytes:
    content = _single(b"end\r\n")
    for _ in range(depth):
        head = b"Content-Type: message/rfc822\r\nContent-Transfer-Encoding: base64\r\n"
        content = _single(encodebytes(content).replace(b"\n", b"\r\n"), head)
    return content
