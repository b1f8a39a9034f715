"""Ambiguous messages, second half: line ends, hidden places, bodies and charsets."""

import binascii
from base64 import b64encode, encodebytes
from collections.abc import Iterator
from quopri import encodestring

from workshop.torture.eicar import B64, BINARY, CTE, EICAR, FILE, LINES, MIXED, NAMED, TOP, multi, part, whole


def line_ends() -> Iterator[tuple[str, bytes]]:
    sound = part(BINARY + CTE + NAMED)
    yield "line ends, line feeds", sound.replace(b"\r\n", b"\n")
    yield "line ends, carriage returns", sound.replace(b"\r\n", b"\r")
    yield "line ends, doubled carriage returns", sound.replace(b"\r\n", b"\r\r\n")
    yield "line ends, turned round", sound.replace(b"\r\n", b"\n\r")
    yield "line ends, line feeds in the headers", TOP.replace(b"\r\n", b"\n") + sound[len(TOP) :]
    yield "line ends, line feeds in the part", sound.replace(FILE, FILE.replace(b"\r\n", b"\n"))
    yield "line ends, none at the end", sound.removesuffix(b"\r\n--b--\r\n")
    yield "line ends, form feeds", sound.replace(b"\r\n", b"\x0c")


def places() -> Iterator[tuple[str, bytes]]:
    """Places that some parsers skip."""
    end = b"--b\r\n\r\nhi\r\n--b--\r\n"
    yield "place, preamble", multi(MIXED, EICAR + b"\r\n" + end)
    yield "place, preamble as a part", multi(MIXED, FILE + b"\r\n" + end)
    yield "place, epilogue", multi(MIXED, end + EICAR + b"\r\n")
    yield "place, epilogue as a part", multi(MIXED, end + b"\r\n" + FILE)
    yield (
        "place, between inner and outer end",
        multi(
            MIXED,
            b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n--c\r\n\r\nhi\r\n--c--\r\n"
            + EICAR
            + b"\r\n--b--\r\n",
        ),
    )
    yield "place, message in a message", whole(b"Content-Type: message/rfc822\r\n", TOP + FILE)
    yield "place, message in a message without headers", whole(b"Content-Type: message/rfc822\r\n", b"\r\n" + EICAR)
    yield "place, delivery status", part(b"Content-Type: message/delivery-status\r\n" + CTE)
    yield "place, part without headers", multi(MIXED, b"--b\r\n\r\n" + EICAR + b"\r\n--b--\r\n")
    yield "place, text body in base64 lines", whole(b"Content-Type: text/plain\r\n", LINES)
    yield "place, second message after the first", whole(b"", b"hi\r\n\r\n") + b"From x\r\n" + whole(BINARY + CTE)


def bodies() -> Iterator[tuple[str, bytes]]:
    """Bodies that decoders read in different ways."""
    half = len(B64) // 8 * 4
    bodies = {
        "junk between": B64[:half] + b"!*!" + B64[half:],
        "a dash between": B64[:half] + b"-" + B64[half:],
        "padding between": b64encode(EICAR[:31]) + b64encode(EICAR[31:]),
        "padding between, on lines": b64encode(EICAR[:31]) + b"\r\n" + b64encode(EICAR[31:]),
        "padding first": b"====" + B64,
        "padding missing": B64.rstrip(b"="),
        "padding thrice": B64.rstrip(b"=") + b"===",
        "one letter too many": B64.rstrip(b"=") + b"A" * 2,
        "text before": b"see below:\r\n\r\n" + B64,
        "text after": B64 + b"\r\n-- \r\nregards",
        "NUL between": B64[:half] + b"\0" + B64[half:],
        "each letter on a line": b"\r\n".join(bytes((letter,)) for letter in B64),
        "spaces between": b" ".join(bytes((letter,)) for letter in B64),
        "8 bits between": B64[:half] + b"\xff\xfe" + B64[half:],
        "quoted marks": b"> " + B64,
        "one line": B64,
    }
    for name, body in bodies.items():
        yield f"base64, {name}", part(BINARY + CTE + NAMED, body)
    qp = b"Content-Transfer-Encoding: quoted-printable\r\n"
    coded = b"".join(b"=%02X" % letter for letter in EICAR)
    yield "quoted-printable, all coded", part(BINARY + qp, coded)
    yield "quoted-printable, lower case", part(BINARY + qp, coded.lower())
    yield "quoted-printable, soft breaks with spaces", part(BINARY + qp, coded[:30] + b"=  \r\n" + coded[30:])
    yield "quoted-printable, soft break at the end", part(BINARY + qp, encodestring(EICAR, quotetabs=True) + b"=")
    uu = (
        b"begin 644 e.com\r\n"
        + b"".join(binascii.b2a_uu(EICAR[at : at + 45]).replace(b"\n", b"\r\n") for at in range(0, len(EICAR), 45))
        + b"`\r\nend\r\n"
    )
    yield "uuencode in text", whole(b"Content-Type: text/plain\r\n", b"see below\r\n\r\n" + uu)
    yield "uuencode as encoding", part(BINARY + b"Content-Transfer-Encoding: x-uuencode\r\n", uu)
    yield "uuencode as base64", whole(b"", b"begin-base64 644 e.com\r\n" + LINES + b"====\r\n")
    shifted = bytes((letter + 42) % 256 for letter in EICAR)
    yield "yEnc in text", whole(b"", b"=ybegin line=128 size=68 name=e.com\r\n" + shifted + b"\r\n=yend size=68\r\n")
    yield "base64 twice", part(BINARY + CTE, encodebytes(LINES))


def charsets() -> Iterator[tuple[str, bytes]]:
    for charset in ("utf-7", "x-none", "unicode_escape", "idna", "rot13"):
        head = b"Content-Type: text/plain; charset=" + charset.encode() + b"\r\n"
        yield f"charset {charset}", part(head + CTE)
    wide = EICAR.decode().encode("utf-16-le")
    yield "charset utf-16", part(b"Content-Type: text/plain; charset=utf-16le\r\n" + CTE, encodebytes(wide))
