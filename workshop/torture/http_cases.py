"""Raw HTTP byte streams that violate or stretch the rules, with the expected response: never two responses."""

from collections.abc import Iterator

from workshop.torture.cases import CLOSED, SUBMIT, Case, Expected

BAD = Expected(400, "bad_request")
GONE = Expected(CLOSED, answers=0)
SLOW = Expected(408, "request_timeout")
TWO = Expected(200, answers=2)

_AUTH = b"Authorization: Bearer {TOKEN}\r\n"
_TYPE = b"Content-Type: multipart/form-data; boundary=b\r\n"
_BODY = (
    b'--b\r\nContent-Disposition: form-data; name="parameters"\r\nContent-Type: application/json\r\n\r\n'
    b'{"borderMtaData":{"envelopeFrom":"a@sender.example","envelopeRecipients":["b@recipient.example"]}}\r\n'
    b'--b\r\nContent-Disposition: form-data; name="email"\r\n\r\nSubject: x\r\n\r\ny\r\n--b--\r\n'
)
_SMUGGLED = b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"


def http_cases() -> Iterator[Case]:
    """Yield every case."""
    yield from _request_lines()
    yield from _headers()
    yield from _lengths()
    yield from _chunks()
    yield from _expectations()
    yield from _paces()


def _case(name: str, raw: bytes, *expected: Expected, pause: float = 0.0) -> Case:
    return Case(name, (raw,), expected, pause)


def _get(target: bytes = b"/healthz", headers: bytes = b"Host: a\r\n", version: bytes = b"HTTP/1.1") -> bytes:
    return b"GET " + target + b" " + version + b"\r\n" + headers + b"\r\n"


def _post(headers: bytes, body: bytes, target: bytes = SUBMIT.encode()) -> bytes:
    return b"POST " + target + b" HTTP/1.1\r\nHost: a\r\n" + _AUTH + _TYPE + headers + b"\r\n" + body


def _request_lines() -> Iterator[Case]:
    ok = Expected(200)
    yield _case("a plain request", _get(), ok)
    yield _case("a leading empty line", b"\r\n" + _get(), ok, BAD)
    yield _case("HTTP/0.9", b"GET /\r\n", BAD, GONE, SLOW)
    yield _case("HTTP/1.0", _get(version=b"HTTP/1.0", headers=b""), ok)
    yield _case("HTTP/1.2", _get(version=b"HTTP/1.2"), ok, BAD)
    yield _case("HTTP/2.0 in the request line", _get(version=b"HTTP/2.0"), BAD)
    yield _case("HTTP/9.9", _get(version=b"HTTP/9.9"), BAD)
    yield _case("a version in lower case", _get(version=b"http/1.1"), BAD)
    yield _case("no version but a Host", b"GET /healthz\r\nHost: a\r\n\r\n", BAD, GONE)
    yield _case("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BAD)
    yield _case("a TLS greeting inside TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64, BAD)
    yield _case("binary noise", bytes(range(256)), BAD)
    yield _case("an unknown method", b"BREW /healthz HTTP/1.1\r\nHost: a\r\n\r\n", BAD, _wrong_method())
    yield _case("a method with a control character", b"G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n", BAD)
    yield _case("a method in lower case", b"get /healthz HTTP/1.1\r\nHost: a\r\n\r\n", BAD, _wrong_method())
    yield _case("a wrong method", b"DELETE /healthz HTTP/1.1\r\nHost: a\r\n\r\n", _wrong_method())
    yield _case("TRACE", b"TRACE /healthz HTTP/1.1\r\nHost: a\r\n\r\n", _wrong_method())
    yield _case("CONNECT", b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", BAD, _unknown())
    yield _case("OPTIONS *", b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", BAD, _unknown())
    yield _case("an absolute target", _get(b"https://other.example/healthz"), ok, _unknown(), BAD)
    yield _case("an absolute target of another scheme", _get(b"file:///etc/passwd"), _unknown(), BAD)
    yield _case("an unknown path", _get(b"/nothing"), _unknown())
    yield _case("a path that climbs", _get(b"/../../etc/passwd"), _unknown(), BAD)
    yield _case("an encoded path that climbs", _get(b"/%2e%2e/%2e%2e/etc/passwd"), _unknown(), BAD)
    yield _case("an encoded NUL in the path", _get(b"/healthz%00"), _unknown(), BAD)
    yield _case("a NUL in the path", _get(b"/healthz\x00"), BAD)
    yield _case("bytes above ASCII in the path", _get(b"/\xff\xfe"), _unknown(), BAD)
    yield _case("a broken percent sign", _get(b"/%zz"), _unknown(), BAD)
    yield _case("a space in the path", _get(b"/health z"), BAD)
    yield _case("a fragment in the target", _get(b"/healthz#x"), ok, BAD, _unknown())
    yield _case("a double slash", _get(b"//healthz"), _unknown(), BAD)
    yield _case("a path of 8 KiB", _get(b"/" + b"a" * 8_300), BAD)
    yield _case("a path of 1 MiB", _get(b"/" + b"a" * 1_048_576), BAD)
    yield _case("a request line without end", b"GET /" + b"a" * 200_000, BAD)


def _headers() -> Iterator[Case]:
    ok = Expected(200)
    yield _case("no Host", _get(headers=b""), BAD)
    yield _case("two Hosts", _get(headers=b"Host: a\r\nHost: b\r\n"), BAD)
    yield _case("bare LF line ends", b"GET /healthz HTTP/1.1\nHost: a\n\n", BAD, ok)
    yield _case("a bare CR in a header", _get(headers=b"Host: a\r\nX: a\rb\r\n"), BAD)
    yield _case("a NUL in a header", _get(headers=b"Host: a\r\nX: a\x00b\r\n"), BAD)
    yield _case("a folded header", _get(headers=b"Host: a\r\nX: a\r\n b\r\n"), BAD)
    yield _case("a space before the colon", _get(headers=b"Host : a\r\n"), BAD)
    yield _case("a header without a name", _get(headers=b"Host: a\r\n: x\r\n"), BAD)
    yield _case("a header without a colon", _get(headers=b"Host: a\r\nnonsense\r\n"), BAD)
    yield _case("a header name with a space", _get(headers=b"Host: a\r\nX Y: z\r\n"), BAD)
    yield _case("a header of 8 KiB", _get(headers=b"Host: a\r\nX: " + b"a" * 8_300 + b"\r\n"), BAD)
    yield _case("a header name of 8 KiB", _get(headers=b"Host: a\r\n" + b"X" * 8_300 + b": a\r\n"), BAD)
    yield _case("100 headers", _get(headers=b"Host: a\r\n" + b"".join(b"X%d: a\r\n" % i for i in range(100))), BAD)
    yield _case(
        "40 KiB of headers",
        _get(headers=b"Host: a\r\n" + b"".join(b"X%d: %s\r\n" % (i, b"a" * 4_000) for i in range(10))),
        BAD,
    )
    yield _case("headers without end", b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + b"X: " + b"a" * 100_000, BAD)
    yield _case("a request id with a line break encoded", _get(headers=b"Host: a\r\nX-Request-Id: a%0d%0ab\r\n"), ok)
    yield _case(
        "an upgrade to HTTP/2",
        _get(
            headers=b"Host: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
        ),
        ok,
        BAD,
    )
    yield _case(
        "an upgrade to a web socket",
        _get(
            headers=b"Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        ),
        ok,
        BAD,
    )
    yield _case(
        "no credential",
        b"POST /v1/admin/status HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        Expected(401, "unauthenticated"),
    )
    yield _case(
        "two credentials",
        b"POST /v1/admin/status HTTP/1.1\r\nHost: a\r\n" + _AUTH + _AUTH + b"\r\n",
        Expected(401, "unauthenticated"),
        BAD,
    )
    yield _case("two requests after another", _get() + _get(), TWO)


def _lengths() -> Iterator[Case]:
    ok = Expected(200)
    length = b"Content-Length: %d\r\n" % len(_BODY)
    yield _case("a good upload", _post(length, _BODY), ok)
    yield _case("a length and chunks", _post(length + b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n" + _SMUGGLED), BAD)
    yield _case("chunks and a length", _post(b"Transfer-Encoding: chunked\r\n" + length, b"0\r\n\r\n" + _SMUGGLED), BAD)
    yield _case("two lengths that differ", _post(length + b"Content-Length: 5\r\n", _BODY), BAD)
    yield _case("two lengths that agree", _post(length + length, _BODY), BAD)
    yield _case("two lengths in one header", _post(b"Content-Length: 5, 5\r\n", _BODY), BAD)
    yield _case("a negative length", _post(b"Content-Length: -1\r\n", _BODY), BAD)
    yield _case("a length with a plus sign", _post(b"Content-Length: +5\r\n", _BODY), BAD)
    yield _case("a length in hexadecimal", _post(b"Content-Length: 0x10\r\n", _BODY), BAD)
    yield _case("a length with a space inside", _post(b"Content-Length: 1 0\r\n", _BODY), BAD)
    yield _case("an empty length", _post(b"Content-Length: \r\n", _BODY), BAD)
    yield _case("a length that is a word", _post(b"Content-Length: many\r\n", _BODY), BAD)
    yield _case("a length beyond 64 bits", _post(b"Content-Length: 99999999999999999999\r\n", _BODY), BAD)
    too_large = Expected(413, "payload_too_large")
    yield _case("a length one above the limit", _post(b"Content-Length: 52428801\r\n", b""), too_large)
    yield _case("a length of a terabyte", _post(b"Content-Length: 1099511627776\r\n", b""), too_large)
    yield _case("no length at all", _post(b"", b""), Expected(400, "malformed_multipart"))
    yield _case("a body in a GET", _get(headers=b"Host: a\r\nContent-Length: 5\r\n") + b"hello", ok)
    yield _case(
        "a request hidden behind a short length",
        _post(b"Content-Length: 0\r\n", _BODY),
        BAD,
        Expected(400, "malformed_multipart"),
    )


def _chunks() -> Iterator[Case]:
    ok = Expected(200)
    chunked = b"Transfer-Encoding: chunked\r\n"
    size = b"%x\r\n" % len(_BODY)
    yield _case("a good upload in chunks", _post(chunked, size + _BODY + b"\r\n0\r\n\r\n"), ok)
    yield _case(
        "one byte a chunk", _post(chunked, b"".join(b"1\r\n%c\r\n" % byte for byte in _BODY) + b"0\r\n\r\n"), ok
    )
    yield _case(
        "a chunk with an extension",
        _post(chunked, size.replace(b"\r\n", b";a=b\r\n") + _BODY + b"\r\n0\r\n\r\n"),
        ok,
        BAD,
    )
    yield _case("trailers", _post(chunked, size + _BODY + b"\r\n0\r\nX: y\r\n\r\n"), ok, BAD)
    yield _case(
        "a trailer of 100 KiB", _post(chunked, size + _BODY + b"\r\n0\r\nX: " + b"y" * 102_400 + b"\r\n\r\n"), BAD
    )
    yield _case("a chunk size that is no number", _post(chunked, b"zz\r\n" + _BODY), BAD)
    yield _case("a negative chunk size", _post(chunked, b"-5\r\n" + _BODY), BAD)
    yield _case("a chunk size with 0x", _post(chunked, b"0x5\r\n" + _BODY), BAD)
    yield _case("a chunk size beyond 64 bits", _post(chunked, b"fffffffffffffffff\r\n" + _BODY), BAD)
    yield _case("a chunk size line without end", _post(chunked, b"0" * 100_000), BAD, SLOW)
    yield _case("a chunk longer than its size", _post(chunked, b"5\r\n" + _BODY + b"\r\n0\r\n\r\n"), BAD)
    yield _case("a chunk ended by a bare LF", _post(chunked, size + _BODY + b"\n0\n\n"), BAD, ok)
    yield _case("chunked twice", _post(b"Transfer-Encoding: chunked, chunked\r\n", b"0\r\n\r\n" + _SMUGGLED), BAD)
    yield _case("chunked in two headers", _post(chunked + chunked, b"0\r\n\r\n" + _SMUGGLED), BAD)
    yield _case("another coding", _post(b"Transfer-Encoding: gzip\r\n", b""), BAD)
    yield _case(
        "chunked that is not last", _post(b"Transfer-Encoding: chunked, gzip\r\n", b"0\r\n\r\n" + _SMUGGLED), BAD
    )
    yield _case(
        "chunked behind a vertical tab", _post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n" + _SMUGGLED), BAD
    )
    yield _case("a misspelt coding", _post(b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n" + _SMUGGLED), BAD)
    yield _case(
        "chunks in HTTP/1.0",
        _post(chunked, size + _BODY + b"\r\n0\r\n\r\n").replace(b"HTTP/1.1", b"HTTP/1.0", 1),
        BAD,
        ok,
    )
    zeros = (b"100000\r\n" + b"\0" * 1_048_576 + b"\r\n") * 51
    yield _case(
        "51 MiB in chunks",
        _post(chunked, b"5\r\n--b\r\n\r\n" + zeros + b"0\r\n\r\n"),
        Expected(400, "malformed_multipart"),
        Expected(413, "payload_too_large"),
    )
    start = b"%x\r\n" % len(_BODY[:-9]) + _BODY[:-9] + b"\r\n"
    yield _case(
        "51 MiB of message in chunks", _post(chunked, start + zeros + b"0\r\n\r\n"), Expected(413, "payload_too_large")
    )
    compressed = b"Content-Encoding: gzip\r\nContent-Length: 5\r\n"
    yield _case(
        "a compressed body", _post(compressed, b"\x1f\x8b\x08\x00\x00"), Expected(415, "unsupported_media_type")
    )


def _expectations() -> Iterator[Case]:
    ok = Expected(200)
    length = b"Content-Length: %d\r\n" % len(_BODY)
    expect = b"Expect: 100-continue\r\n"
    head = _post(length + expect, b"")
    yield Case("a body after 100 Continue", (head, _BODY), (ok,), pause=0.2)
    yield _case("a body without waiting for 100 Continue", head + _BODY, ok)
    yield _case("an unknown expectation", _post(length + b"Expect: 200-maybe\r\n", _BODY), BAD)
    large = _post(b"Content-Length: 52428801\r\n" + expect, b"")
    yield _case("too large, asked first", large, Expected(413, "payload_too_large"))
    nobody = head.replace(b"Bearer {TOKEN}", b"Bearer nobody")
    yield _case("no credential, asked first", nobody, Expected(401, "invalid_credentials"))
    old = head.replace(b"HTTP/1.1", b"HTTP/1.0", 1) + _BODY
    yield _case("an expectation in HTTP/1.0", old, ok)
    yield _case("an expectation of a GET", _get(headers=b"Host: a\r\nExpect: 100-continue\r\n"), ok)


def _paces() -> Iterator[Case]:
    """Yield the cases that wait: run them with short deadlines, or skip them by their name."""
    yield _case("slow: nothing at all", b"", GONE)
    yield _case("slow: half a request line", b"GET /heal", SLOW)
    yield _case("slow: half a head", b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-", SLOW)
    drip = tuple(bytes([byte]) for byte in _get(headers=b"Host: a\r\n" + b"X: y\r\n" * 20))
    yield Case("slow: a byte now and then", drip, (SLOW,), pause=0.25)
    length = b"Content-Length: %d\r\n" % len(_BODY)
    yield _case("slow: half a body", _post(length, _BODY[:50]), SLOW)
    yield _case("slow: no body at all", _post(length, b""), SLOW)
    yield _case("slow: half a chunk", _post(b"Transfer-Encoding: chunked\r\n", b"ff\r\n--b"), SLOW)


def _wrong_method() -> Expected:
    return Expected(405, "method_not_allowed")


def _unknown() -> Expected:
    return Expected(404, "not_found")
