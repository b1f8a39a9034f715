"""Ambiguous messages with the EICAR test file: mail clients disagree on its place, or whether it is there.

For each, our parser must show a part with the file, or the message must be reported as ambiguous or beyond a limit.
"""

from base64 import encodebytes
from collections.abc import Iterator
from quopri import encodestring
from typing import NamedTuple

from workshop.torture.ambiguous_bodies import bodies, charsets, line_ends, places
from workshop.torture.eicar import B64, BINARY, CTE, EICAR, FILE, LINES, MIXED, NAMED, TOP, multi, part, whole

__all__ = ["EICAR", "Ambiguous", "ambiguous"]


class Ambiguous(NamedTuple):
    name: str
    raw: bytes


def ambiguous() -> Iterator[Ambiguous]:
    """Yield every ambiguous message."""
    first = (_encodings, _encoding_names, _types, _boundaries, _more_boundaries, _headers)
    for make in (*first, line_ends, places, bodies, charsets):
        for name, raw in make():
            yield Ambiguous(name, raw)


def _encodings() -> Iterator[tuple[str, bytes]]:
    """Transfer encodings in unexpected spellings."""
    spellings = {
        "upper case": b"BASE64", "trailing space": b"base64   ", "tab before": b"\tbase64", "folded": b"\r\n base64",
        "folded twice": b"\r\n \r\n base64", "comment after": b"base64 (really)", "comment before": b"(really) base64",
        "nested": b"(a(b)c) base64", "quoted": b'"base64"', "semicolon": b"base64;", "parameter": b"base64; x=y",
        "two words": b"base64 7bit", "two words turned": b"7bit base64", "comma": b"base64, 7bit", "dot": b"base64.",
        "hyphen": b"base-64", "low line": b"base_64", "x-base64": b"x-base64", "colon": b": base64", "NUL": b"base64\0",
        "vertical tab": b"\x0bbase64", "no-break space": b"base64\xa0", "apostrophe": b"'base64'", "angle": b"<base64>",
        "equals": b"=base64", "encoded": b"=?us-ascii?q?base64?=", "empty": b"", "unknown": b"foo", "bas64": b"bas64",
        "b": b"b", "full-width": "ｂase64".encode(), "soft hyphen": "base\u00ad64".encode(),
    }  # fmt: skip
    for name, spelling in spellings.items():
        head = BINARY + b"Content-Transfer-Encoding: " + spelling + b"\r\n" + NAMED
        yield f"encoding, {name}", part(head)
        yield f"encoding of the whole message, {name}", whole(head)


def _encoding_names() -> Iterator[tuple[str, bytes]]:
    """The name of the encoding's header, and its repetition."""
    heads = {
        "space before colon": b"Content-Transfer-Encoding : base64\r\n",
        "tab before colon": b"Content-Transfer-Encoding\t: base64\r\n",
        "underscores": b"Content_Transfer_Encoding: base64\r\n",
        "no space after colon": b"Content-Transfer-Encoding:base64\r\n",
        "lower case": b"content-transfer-encoding: base64\r\n",
        "twice, base64 first": CTE + b"Content-Transfer-Encoding: 7bit\r\n",
        "twice, base64 last": b"Content-Transfer-Encoding: 7bit\r\n" + CTE,
        "thrice": b"Content-Transfer-Encoding: 8bit\r\n" + CTE + b"Content-Transfer-Encoding: quoted-printable\r\n",
        "missing": b"",
        "behind a carriage return": b"X-A: b\rContent-Transfer-Encoding: base64\r\n",
        "behind a vertical tab": b"X-A: b\x0bContent-Transfer-Encoding: base64\r\n",
        "behind a next-line sign": b"Content-Description: b\xc2\x85Content-Transfer-Encoding: base64\r\n",
        "with a NUL inside": b"Content-Transfer\0-Encoding: base64\r\n",
        "with 8 bits inside": b"Content-Transfer-Encoding\xa0: base64\r\n",
        "behind white space": b"X-A: b\r\n \r\nContent-Transfer-Encoding: base64\r\n",
        "folded as another header's line": b"X-A: b\r\n Content-Transfer-Encoding: base64\r\n",
        "behind a line without colon": b"what is this\r\n" + CTE,
        "colon missing": b"Content-Transfer-Encoding base64\r\n",
    }
    for name, head in heads.items():
        yield f"encoding header, {name}", part(BINARY + head + NAMED)


def _types() -> Iterator[tuple[str, bytes]]:
    """Contradictory content types."""
    body = b"--b\r\n" + FILE + b"--b--\r\n"
    heads = {
        "twice, multipart first": MIXED + b"Content-Type: text/plain\r\n",
        "twice, multipart last": b"Content-Type: text/plain\r\n" + MIXED,
        "folded": b"Content-Type:\r\n multipart/mixed;\r\n boundary=b\r\n",
        "comment in the type": b"Content-Type: multipart/mixed (x); boundary=b\r\n",
        "comment within the type": b"Content-Type: multipart(x)/mixed; boundary=b\r\n",
        "spaces around the slash": b"Content-Type: multipart / mixed; boundary=b\r\n",
        "no subtype": b"Content-Type: multipart; boundary=b\r\n",
        "unknown subtype": b"Content-Type: multipart/foo; boundary=b\r\n",
        "comma for semicolon": b"Content-Type: multipart/mixed, boundary=b\r\n",
        "semicolon missing": b"Content-Type: multipart/mixed boundary=b\r\n",
        "semicolons doubled": b"Content-Type: multipart/mixed;; ;boundary=b\r\n",
        "quoted type": b'Content-Type: "multipart/mixed"; boundary=b\r\n',
        "MIME-Version missing": MIXED,
        "space before colon": b"Content-Type : multipart/mixed; boundary=b\r\n",
        "8 bits in front": b"Content-Type: \xa0multipart/mixed; boundary=b\r\n",
        "with a transfer encoding": MIXED + CTE,
        "text with a boundary": b"Content-Type: text/plain; boundary=b\r\n",
        "none at all": b"",
    }
    for name, head in heads.items():
        raw = multi(head, body)
        yield f"type, {name}", raw.replace(b"MIME-Version: 1.0\r\n", b"") if "Version" in name else raw
    yield "type, partial", whole(b'Content-Type: message/partial; id="x"; number=1; total=2\r\n', FILE)
    yield "type, external", whole(b"Content-Type: message/external-body; access-type=url\r\n", FILE)
    yield "type, message in base64", whole(b"Content-Type: message/rfc822\r\n" + CTE, encodebytes(FILE))
    yield "type, multipart in base64", multi(MIXED + CTE, encodebytes(body))
    yield (
        "type, multipart in quoted-printable",
        multi(MIXED + b"Content-Transfer-Encoding: quoted-printable\r\n", encodestring(body)),
    )
    yield (
        "type, digest without type",
        multi(b"Content-Type: multipart/digest; boundary=b\r\n", b"--b\r\n\r\n" + FILE + b"\r\n--b--\r\n"),
    )


def _boundaries() -> Iterator[tuple[str, bytes]]:
    """The boundary parameter in many spellings; the body uses `b`, or the value of the second column."""
    forms: dict[str, tuple[bytes, bytes]] = {
        "two, the first used": (b"boundary=b; boundary=c", b"b"),
        "two, the last used": (b"boundary=c; boundary=b", b"b"),
        "escapes": (b'boundary="\\b"', b"b"),
        "escapes, read raw": (b'boundary="\\b"', b"\\b"),
        "quote never closed": (b'boundary="b', b"b"),
        "quote never opened": (b'boundary=b"', b"b"),
        "apostrophes": (b"boundary='b'", b"b"),
        "apostrophes, read raw": (b"boundary='b'", b"'b'"),
        "percent signs": (b"boundary*=us-ascii''%62", b"b"),
        "pieces": (b"boundary*0=b; boundary*1=c", b"bc"),
        "pieces out of order": (b"boundary*1=c; boundary*0=b", b"bc"),
        "pieces and whole": (b"boundary=x; boundary*=us-ascii''b", b"b"),
        "trailing space in quotes": (b'boundary="b "', b"b"),
        "leading space in quotes": (b'boundary=" b"', b"b"),
        "space before equals": (b"boundary =b", b"b"),
        "space after equals": (b"boundary= b", b"b"),
        "comment after": (b"boundary=b (x)", b"b"),
        "comment before": (b"(x) boundary=b", b"b"),
        "empty": (b'boundary=""', b""),
        "missing": (b"charset=x", b"b"),
        "upper case in the body": (b"boundary=b", b"B"),
        "longer in the body": (b"boundary=b", b"bc"),
        "shorter in the body": (b"boundary=bc", b"b"),
        "encoded word": (b"boundary==?us-ascii?q?b?=", b"b"),
        "8 bits": (b'boundary="\xe9"', b"\xe9"),
        "NUL": (b'boundary="b\0c"', b"b"),
        "dashes": (b'boundary="--"', b"--"),
        "in another parameter's quotes": (b'name="; boundary=c"; boundary=b', b"b"),
        "300 bytes": (b"boundary=" + b"b" * 300, b"b" * 300),
        "folded inside": (b'boundary="b\r\n c"', b"b c"),
    }
    for name, (form, used) in forms.items():
        body = b"--" + used + b"\r\n" + FILE + b"--" + used + b"--\r\n"
        yield f"boundary, {name}", multi(b"Content-Type: multipart/mixed; " + form + b"\r\n", body)


def _more_boundaries() -> Iterator[tuple[str, bytes]]:
    """Boundary lines in the body."""
    nested = b'Content-Type: multipart/mixed; boundary="%s"\r\n\r\n'
    bodies = {
        "never closed": b"--b\r\n" + FILE,
        "closed before the part": b"--b--\r\n--b\r\n" + FILE + b"--b--\r\n",
        "closed twice": b"--b\r\n\r\nhi\r\n--b--\r\n--b\r\n" + FILE + b"--b--\r\n",
        "space after": b"--b \r\n" + FILE + b"--b--\r\n",
        "text after": b"--b text\r\n" + FILE + b"--b--\r\n",
        "space before": b" --b\r\n" + FILE + b" --b--\r\n",
        "one dash": b"-b\r\n" + FILE + b"-b--\r\n",
        "three dashes": b"---b\r\n" + FILE + b"---b--\r\n",
        "no line end before": b"--b\r\n\r\nhi--b\r\n" + FILE + b"--b--\r\n",
        "carriage return before": b"--b\r\n\r\nhi\r--b\r\n" + FILE + b"--b--\r\n",
        "line feed before": b"--b\r\n\r\nhi\n--b\r\n" + FILE + b"--b--\r\n",
        "carriage return after": b"--b\r" + FILE.replace(b"\r\n", b"\r") + b"\r--b--\r",
        "no empty line": b"--b\r\n" + BINARY + CTE + LINES + b"--b--\r\n",
        "in the headers": b"--b\r\nX: y\r\n--b\r\n" + FILE + b"--b--\r\n",
        "nested with one name": b"--b\r\n" + nested % b"b" + b"--b\r\n" + FILE + b"--b--\r\n--b--\r\n",
        "nested, a prefix of the outer": b"--b\r\n" + nested % b"bb" + b"--bb\r\n" + FILE + b"--bb--\r\n--b--\r\n",
        "nested, never closed": b"--b\r\n" + nested % b"c" + b"--c\r\n" + FILE + b"--b--\r\n",
        "nested, closed by the outer": b"--b\r\n" + nested % b"c" + b"--b\r\n" + FILE + b"--c--\r\n--b--\r\n",
        "outer goes on in the inner": b"--b\r\n" + nested % b"c" + b"--b--\r\n--c\r\n" + FILE + b"--c--\r\n",
        "NUL after": b"--b\0\r\n" + FILE + b"--b--\r\n",
    }
    for name, body in bodies.items():
        yield f"boundary line, {name}", multi(MIXED, body)


def _headers() -> Iterator[tuple[str, bytes]]:
    """The header block itself."""
    yield "headers, an empty line first", b"\r\n" + part(BINARY + CTE)
    yield "headers, white space first", b" \r\n" + part(BINARY + CTE)
    yield "headers, folded first line", b" x\r\n" + whole(BINARY + CTE)
    yield "headers, mbox line", b"From a@b Mon Jan 1 00:00:00 2026\r\n" + whole(BINARY + CTE)
    yield "headers, mbox line in the middle", TOP + b">From x\r\n" + BINARY + CTE + b"\r\n" + LINES
    yield "headers, byte order mark", b"\xef\xbb\xbf" + whole(BINARY + CTE)
    yield "headers, UTF-16", b"\xff\xfe" + whole(BINARY + CTE).decode("latin-1").encode("utf-16-le")
    yield "headers, NUL", TOP + b"X: \0\r\n" + BINARY + CTE + b"\r\n" + LINES
    yield "headers, white space as end", TOP + BINARY + CTE + b"   \r\n" + LINES
    yield "headers, white space as end, folded body", TOP + BINARY + CTE + b" \r\n " + B64 + b"\r\n\r\nhi\r\n"
    yield "headers, none", LINES
    yield "headers, only", TOP + BINARY + CTE + LINES
    yield "headers, no colon before the type", TOP + b"nonsense\r\n" + BINARY + CTE + b"\r\n" + LINES
    yield (
        "headers, file name twice",
        part(BINARY + CTE + b'Content-Disposition: attachment; filename="a.txt"; filename="e.com"\r\n'),
    )
    yield (
        "headers, disposition twice",
        part(BINARY + CTE + b"Content-Disposition: inline\r\nContent-Disposition: attachment; filename=e.com\r\n"),
    )
