"""Multipart bodies that are broken, truncated or ambiguous, and the expected error code."""

from collections.abc import Iterator

from workshop.torture.cases import Case, Expected
from workshop.torture.uploads import JSON, MESSAGE, PARAMETERS, body_of, part, upload_case

OK = Expected(200)
MALFORMED = Expected(400, "malformed_multipart")
MISSING = Expected(400, "missing_part")
DUPLICATE = Expected(400, "duplicate_part")
UNEXPECTED = Expected(400, "unexpected_part")
EMPTY = Expected(400, "empty_email")
NOT_JSON = Expected(415, "parameters_content_type_required")
MEDIA_TYPE = Expected(415, "unsupported_media_type")

_P = part(b"parameters", PARAMETERS, JSON)
_E = part(b"email", MESSAGE)
GOOD = body_of(_P, _E)


def multipart_cases() -> Iterator[Case]:
    """Yield every case."""
    yield from _good()
    yield from _content_types()
    yield from _framing()
    yield from _parts()
    yield from _part_headers()


def _good() -> Iterator[Case]:
    yield upload_case("a good upload", GOOD, OK)
    yield upload_case("the parts the other way round", body_of(_E, _P), OK)
    yield upload_case("no line break at the end", GOOD[:-2], OK)
    yield upload_case("a line break at the beginning", b"\r\n" + GOOD, OK)
    yield upload_case("a message that names the boundary in mid-line", body_of(_P, part(b"email", b"x --b-- y")), OK)
    yield upload_case("a message that names the boundary after LF", body_of(_P, part(b"email", b"x\n--b--\ny")), OK)
    yield upload_case("a message that ends in half a boundary", body_of(_P, part(b"email", b"x\r\n--")), OK)
    yield upload_case("a message of all bytes", body_of(_P, part(b"email", bytes(range(256)) * 4)), OK)
    yield upload_case("a message of line breaks", body_of(_P, part(b"email", b"\r\n" * 1_000)), OK)
    yield upload_case("a message that is a multipart", body_of(_P, part(b"email", _nested())), OK)
    yield upload_case("an email with a file name", GOOD.replace(b'"email"', b'"email"; filename="x.eml"'), OK)
    yield upload_case("an email with a type", body_of(_P, part(b"email", b"x", b"Content-Type: text/html\r\n")), OK)
    yield upload_case("names without quotes", GOOD.replace(b'"', b"", 2).replace(b'"email"', b"email"), OK)
    yield upload_case("a charset of UTF-8", GOOD.replace(b"/json", b"/json; charset=UTF-8"), OK)
    yield upload_case("a right Content-Length", body_of(_P, part(b"email", b"xy", b"Content-Length: 2\r\n")), OK)
    long = "a" * 70
    body = body_of(
        part(b"parameters", PARAMETERS, JSON, long.encode()),
        part(b"email", b"x", b"", long.encode()),
        boundary=long.encode(),
    )
    yield upload_case("a boundary of 70 characters", body, OK, content_type=f"multipart/form-data; boundary={long}")
    quoted = GOOD.replace(b"--b", b"--b c")
    yield upload_case("a quoted boundary", quoted, OK, content_type='multipart/form-data; boundary="b c"')


def _nested() -> bytes:
    return b"Content-Type: multipart/mixed; boundary=bb\r\n\r\n--bb\r\n\r\nx\r\n--bb--\r\n".replace(b"--bb", b"--cc")


def _content_types() -> Iterator[Case]:
    for name, header, expected in (
        ("no multipart", "application/json", MEDIA_TYPE),
        ("another multipart", "multipart/mixed; boundary=b", MEDIA_TYPE),
        ("a form of words", "application/x-www-form-urlencoded", MEDIA_TYPE),
        ("an empty type", "", MEDIA_TYPE),
        ("no boundary", "multipart/form-data", MALFORMED),
        ("an empty boundary", "multipart/form-data; boundary=", MALFORMED),
        ("an empty quoted boundary", 'multipart/form-data; boundary=""', MALFORMED),
        ("two boundaries", "multipart/form-data; boundary=b; boundary=c", MALFORMED),
        ("a boundary of 71 characters", "multipart/form-data; boundary=" + "a" * 71, MALFORMED),
        ("a boundary with a bad character", 'multipart/form-data; boundary="b\\"c"', MALFORMED),
        ("a boundary that ends in a space", 'multipart/form-data; boundary="b "', MALFORMED),
        ("an unfinished quote", 'multipart/form-data; boundary="b', MALFORMED),
        ("another boundary than the body's", "multipart/form-data; boundary=c", MALFORMED),
        ("a boundary in another case", "multipart/form-data; boundary=B", MALFORMED),
        ("a continued boundary", "multipart/form-data; boundary*0=b", MALFORMED),
        ("bytes above ASCII in the boundary", "multipart/form-data; boundary=\xe9", MALFORMED),
        ("the type in capitals", "MULTIPART/FORM-DATA; BOUNDARY=b", OK),
        ("an extra option", "multipart/form-data; charset=utf-8; boundary=b", OK),
    ):
        yield upload_case(f"content type: {name}", GOOD, expected, content_type=header)


def _framing() -> Iterator[Case]:
    yield upload_case("an empty body", b"", MALFORMED)
    yield upload_case("only the last boundary", b"--b--\r\n", MISSING)
    yield upload_case("only the first boundary", b"--b\r\n", MALFORMED)
    for end in (len(GOOD) - 3, len(GOOD) - 4, len(GOOD) - 7, len(GOOD) // 2, len(_P) + 10, len(_P), 30, 3):
        yield upload_case(f"truncated after {end} of {len(GOOD)} bytes", GOOD[:end], MALFORMED)
    yield upload_case("a preamble", b"This is a multipart body.\r\n" + GOOD, OK)
    yield upload_case("a preamble with the boundary after LF", b"x\n--b\r\n\r\n" + GOOD, MALFORMED)
    yield upload_case("a preamble of 9,000 bytes", b"x" * 9_000 + b"\r\n" + GOOD, MALFORMED)
    yield upload_case("two line breaks first", b"\r\n\r\n" + GOOD, OK)
    yield upload_case("an epilogue", GOOD + b"bye", OK)
    yield upload_case("an epilogue of 9,000 bytes", GOOD + b"x" * 9_000, MALFORMED)
    yield upload_case("an epilogue with the boundary after LF", GOOD + b"x\n--b--", MALFORMED)
    yield upload_case("a second body behind the first", GOOD + GOOD, MALFORMED)
    yield upload_case("a part behind the last boundary", GOOD + _E, MALFORMED)
    yield upload_case("spaces after a boundary", GOOD.replace(b"--b\r\n", b"--b  \r\n", 1), OK)
    yield upload_case("spaces after the last boundary", GOOD[:-2] + b"  \r\n", OK)
    yield upload_case("LF after a boundary", GOOD.replace(b"--b\r\n", b"--b\n", 1), MALFORMED)
    yield upload_case("LF everywhere", GOOD.replace(b"\r\n", b"\n"), MALFORMED)
    yield upload_case("CR everywhere", GOOD.replace(b"\r\n", b"\r"), MALFORMED)
    yield upload_case("a line that begins with the boundary", body_of(_P, part(b"email", b"x\r\n--bx\r\ny")), MALFORMED)
    yield upload_case("a boundary with one hyphen behind it", body_of(_P, part(b"email", b"x\r\n--b-\r\ny")), MALFORMED)
    yield upload_case("a boundary with a NUL behind it", body_of(_P, part(b"email", b"x\r\n--b\0\r\ny")), MALFORMED)
    yield upload_case("noise", bytes(range(256)) * 16, MALFORMED)
    yield upload_case("10,000 boundaries", b"--b\r\n" * 10_000 + b"--b--", MALFORMED)


def _parts() -> Iterator[Case]:
    yield upload_case("no parameters", body_of(_E), MISSING)
    yield upload_case("no email", body_of(_P), MISSING)
    yield upload_case("parameters twice", body_of(_P, _P, _E), DUPLICATE)
    yield upload_case("email twice", body_of(_P, _E, _E), DUPLICATE)
    yield upload_case("a third part", body_of(_P, _E, part(b"extra", b"x")), UNEXPECTED)
    yield upload_case("a part without a name's text", body_of(part(b"", b"x"), _P, _E), UNEXPECTED)
    yield upload_case("a part in another case", body_of(_P, part(b"Email", b"x")), UNEXPECTED)
    yield upload_case("a part with a space in its name", body_of(_P, part(b"email ", b"x")), UNEXPECTED)
    yield upload_case("a part with an escaped name", body_of(_P, part(b"%65mail", b"x")), UNEXPECTED)
    yield upload_case("a NUL in a name", body_of(_P, part(b"em\0ail", b"x")), MALFORMED)
    yield upload_case("an empty email", body_of(_P, part(b"email", b"")), EMPTY)
    yield upload_case("empty parameters", body_of(part(b"parameters", b"", JSON), _E), Expected(400, "invalid_json"))
    large = body_of(part(b"parameters", b" " * 1_048_577, JSON), _E)
    yield upload_case("parameters above a mebibyte", large, Expected(413, "payload_too_large"))
    frame = len(body_of(_P, part(b"email", b"")))
    exact = body_of(_P, part(b"email", b"x\r\n" * ((52_428_800 - frame) // 3) + b"x" * ((52_428_800 - frame) % 3)))
    yield upload_case("exactly 50 MiB", exact, OK)
    yield upload_case("50 MiB and a byte", exact + b"\r\n"[:1], Expected(413, "payload_too_large"))


def _part_headers() -> Iterator[Case]:
    def with_headers(headers: bytes, name: str, expected: Expected) -> Case:
        return upload_case(f"part headers: {name}", body_of(part(b"parameters", PARAMETERS, headers), _E), expected)

    yield with_headers(b"", "no type", NOT_JSON)
    yield with_headers(b"Content-Type: text/plain\r\n", "another type", NOT_JSON)
    yield with_headers(b"Content-Type: application/jsonx\r\n", "a longer type", NOT_JSON)
    yield with_headers(b"Content-Type: application/problem+json\r\n", "a cousin of JSON", NOT_JSON)
    yield with_headers(b"Content-Type: application/json; charset=utf-16\r\n", "another charset", NOT_JSON)
    yield with_headers(b"Content-Type: application/json; charset\r\n", "a broken option", NOT_JSON)
    yield with_headers(b"Content-Type: \r\n", "an empty type", NOT_JSON)
    yield with_headers(JSON + JSON, "the type twice", MALFORMED)
    yield with_headers(JSON + b"Content-Disposition: form-data; name=email\r\n", "the disposition twice", MALFORMED)
    yield with_headers(JSON + b"Content-Transfer-Encoding: base64\r\n", "base64", MALFORMED)
    yield with_headers(JSON + b"Content-Transfer-Encoding: quoted-printable\r\n", "quoted-printable", MALFORMED)
    yield with_headers(JSON + b"Content-Transfer-Encoding: 8bit\r\n", "8bit", OK)
    yield with_headers(JSON + b"Content-Length: 5\r\n", "a wrong length", MALFORMED)
    yield with_headers(JSON + b"Content-Length: -1\r\n", "a negative length", MALFORMED)
    yield with_headers(JSON + b" folded\r\n", "a folded header with other text", NOT_JSON)
    yield with_headers(b"Content-Type:\r\n application/json\r\n", "a folded header", OK)
    yield with_headers(JSON + b"nonsense\r\n", "a line without a colon", MALFORMED)
    yield with_headers(JSON + b": x\r\n", "a header without a name", MALFORMED)
    yield with_headers(JSON + b"X Y: z\r\n", "a space in a name", MALFORMED)
    yield with_headers(JSON + b"X: \0\r\n", "a NUL", MALFORMED)
    yield with_headers(JSON + b"X: a\nY: b\r\n", "a bare LF", MALFORMED)
    yield with_headers(JSON + b"X: a\rb\r\n", "a bare CR", MALFORMED)
    yield with_headers(JSON + b"X: \xff\xfe\r\n", "bytes that are not UTF-8", MALFORMED)
    yield with_headers(JSON + b"X: " + b"a" * 9_000 + b"\r\n", "9,000 bytes", MALFORMED)
    yield with_headers(JSON + b"".join(b"X%d: a\r\n" % i for i in range(30)), "30 of them", MALFORMED)
    nameless = GOOD.replace(b'; name="parameters"', b"")
    yield upload_case("part headers: no name", nameless, MALFORMED)
    yield upload_case("part headers: another disposition", GOOD.replace(b"form-data;", b"attachment;", 1), MALFORMED)
    both = GOOD.replace(b'name="parameters"', b'name="parameters"; name="email"')
    yield upload_case("part headers: two names", both, MALFORMED)
    starred = GOOD.replace(b'name="parameters"', b"name=\"email\"; name*=UTF-8''parameters")
    yield upload_case("part headers: an extended name", starred, MALFORMED)
    yield upload_case(
        "part headers: an unfinished name", GOOD.replace(b'name="parameters"', b'name="parameters'), MALFORMED
    )
    yield upload_case("part headers: none at all", b"--b\r\n\r\nx\r\n--b--\r\n", MALFORMED)
    yield upload_case(
        "part headers: no empty line", b"--b\r\nContent-Disposition: form-data; name=email\r\n--b--\r\n", MALFORMED
    )
