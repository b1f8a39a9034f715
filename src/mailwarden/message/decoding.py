"""Transfer encodings, and files written as text: base64, quoted-printable, uuencode, xxencode and yEnc.

Decoding is as lenient as mail clients are; each deviation from the standard is reported.
Security: works on hostile bytes; each decoder is linear in its input, and its output is at most twice as large.
"""

import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

import pybase64
import re2

from mailwarden.message.media import UUENCODINGS

_BEGIN = re.compile(rb"(?:\A|\n)[> \t]{0,9}begin(?:-base64|-base64-encoded)? +[0-7]{3,4} +([^\r\n]*)\r?\n")
_YENC_BEGIN = re.compile(rb"(?:\A|\n)=ybegin ([^\r\n]*)\r?\n")
_YENC_NAME = re.compile(rb"\bname=(.*)")
_YENC_ESCAPE = re.compile(rb"=(.)", re.DOTALL)
_YENC_SHIFT = bytes((value - 42) % 256 for value in range(256))
_XX = b"+-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_XX_ROW = re.compile(rb"[+\-0-9A-Za-z]*")
_FROM_XX = bytes.maketrans(_XX, bytes(32 + index for index in range(64)))
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
# RE2 needs no memory per line; its \s lacks the vertical tab.
_LOOKS_BASE64 = re2.compile(rb"[\s\x0b]*[A-Za-z0-9+/]{16,}={0,2}(?:[\s\x0b]+[A-Za-z0-9+/]+={0,2})*[\s\x0b]*", _BYTES)


_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n \t"))
_PADDING = frozenset({b"=", b"=="})
_PADDED_BREAK = re.compile(rb"=[ \t]+\r?\n")
_LOOSE_PART = re.compile(rb"\n[> ]{0,9}content-transfer-encoding\s{0,9}:\s{0,9}base64", re.IGNORECASE)


class EncodedFile(NamedTuple):
    name: str
    content: bytes


def find_encoded(text: bytes) -> Iterator[EncodedFile]:
    """Yield every file in a text that is encoded by uuencode, xxencode or yEnc."""
    if b"begin" not in text:  # of `=ybegin` too
        return
    yield from _read_uu(text)
    if b"=ybegin " in text:
        yield from _read_yenc(text)


def looks_base64(text: bytes, start: int = 0) -> re.Match[bytes] | None:
    """Match a run of base64 from a position on."""
    match: re.Match[bytes] | None = _LOOKS_BASE64.match(text, start)
    return match


def is_base64(text: bytes) -> bool:
    """Return whether the whole text is base64, at least one line of it."""
    head = text[:2_048]  # not inspection: one line identifies base64
    if len(text) < 32 or b" " in head.strip()[:64]:
        return False
    match = looks_base64(head)
    if match is None or (match.end() < len(head) and len(head) == len(text)):
        return False
    return bool(match.end() >= min(len(head), 512))


def _read_uu(text: bytes) -> Iterator[EncodedFile]:
    """Decode from one `begin` to the next; a file ends at its `end`, or at the next `begin`."""
    for match, following in _blocks(_BEGIN, text):
        is_coded = b"begin-base64" in match[0]
        end = text.find(b"\n====" if is_coded else b"\nend", match.end() - 1, following)
        rows = text[match.end() : end if end >= 0 else following].splitlines()
        decode = _base64_row if is_coded else _xx_row if _is_xx(rows) else _uu_row
        content = b"".join(map(decode, rows))
        if content:
            yield EncodedFile(_decode_name(match[1]), content)


def _is_xx(rows: list[bytes]) -> bool:
    """Return whether rows are xxencoded: the length character at the start differs from uuencode."""
    first = next((row.rstrip() for row in rows if row.strip()), b"")
    if not _XX_ROW.fullmatch(first):
        return False
    length = _XX.find(first[:1])
    return 0 < length <= 45 and 1 + (length + 2) // 3 * 4 == len(first)


def _xx_row(row: bytes) -> bytes:
    return _uu_row(row.rstrip().translate(_FROM_XX))


def _uu_row(row: bytes) -> bytes:
    try:
        return binascii.a2b_uu(row)
    except binascii.Error:  # a row with the wrong padding, which old programs wrote
        length = ((row[0] - 32) & 63) * 4 + 5 if row else 0
        try:
            return binascii.a2b_uu(row[: length // 3])
        except binascii.Error:
            return b""


def _base64_row(row: bytes) -> bytes:
    try:
        return binascii.a2b_base64(row)
    except binascii.Error:
        return b""


def _read_yenc(text: bytes) -> Iterator[EncodedFile]:
    for match, following in _blocks(_YENC_BEGIN, text):
        end = text.find(b"\n=yend", match.end() - 1, following)
        block = text[match.end() : end if end >= 0 else following]
        if block.startswith(b"=ypart"):
            block = block.partition(b"\n")[2]
        block = block.translate(None, b"\r\n")
        block = _YENC_ESCAPE.sub(lambda escape: bytes(((escape[1][0] - 64) % 256,)), block)
        name = _YENC_NAME.search(match[1])
        if block:
            yield EncodedFile(_decode_name(name[1] if name else b""), block.translate(_YENC_SHIFT))


def _blocks(begin: re.Pattern[bytes], text: bytes) -> Iterator[tuple[re.Match[bytes], int]]:
    """Yield each match with the start of the next one, or the end of the text."""
    match = begin.search(text)
    while match is not None:
        following = begin.search(text, match.end() - 1)
        yield match, following.start() if following else len(text)
        match = following


def _decode_name(name: bytes) -> str:
    name = name.strip().strip(b'"')
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("latin-1")


class Decoded(NamedTuple):
    content: bytes
    doubt: str = ""
    others: tuple[bytes, ...] = ()  # other results that a client may decode from the same bytes


def decode_transfer(body: bytes, encoding: bytes) -> Decoded:
    """Decode a transfer encoding; unknown ones leave the bytes unchanged."""
    if encoding == b"base64":
        return _decode_base64(body)
    if encoding == b"quoted-printable":
        doubt = "White space follows a soft line break" if _PADDED_BREAK.search(body) else ""
        return Decoded(binascii.a2b_qp(body) if b"=" in body else body, doubt)
    if encoding in UUENCODINGS:
        return Decoded(body, "The transfer encoding is unknown", tuple(file.content for file in find_encoded(body)))
    return Decoded(body)


def find_embedded(text: bytes, readable: bool = True) -> Iterator[EncodedFile]:
    """Find files that a lenient client extracts from a body: uuencode, yEnc and loose parts in text, bare base64."""
    if readable:
        yield from find_encoded(text)
        if b"ransfer-" in text:
            yield from _decode_loose_parts(text)
    if is_base64(text):
        yield EncodedFile("", _decode_base64(text).content)


def _a2b_base64(body: bytes) -> bytes:
    """Decode as `binascii` does, and faster where nothing but padding follows the first `=`.

    There both skip what is not in the alphabet, and both reject a wrong length.
    """
    padding = body.find(b"=")
    if padding < 0 or body[padding:].translate(None, b"\r\n \t") in _PADDING:
        try:
            return pybase64.b64decode(body, validate=False)
        except binascii.Error:
            pass
    return binascii.a2b_base64(body, strict_mode=False)


def _decode_base64(body: bytes) -> Decoded:
    try:
        content = _a2b_base64(body)
    except binascii.Error:
        clean = body.translate(None, _NOT_BASE64).translate(None, b"\r\n \t=")
        clean = clean[: len(clean) - 1] if len(clean) % 4 == 1 else clean
        return Decoded(binascii.a2b_base64(clean + b"=="), "A base64 body is cut off or has the wrong length")
    # Four characters encode three bytes: only a body with fewer bytes than that needs a check.
    padding = body.find(b"=")
    if padding >= 0 and (rest := body[padding:].strip(b"= \t\r\n")):
        return _decode_after_padding(body, content, rest)
    if _has_more_letters(body, len(content)) and body.translate(None, b" \t\r\n").translate(None, _NOT_BASE64) != (
        body.translate(None, b" \t\r\n")
    ):
        return Decoded(content, "A base64 body has characters that do not belong there", _cut_at_junk(body))
    return Decoded(content, "A base64 body begins with text" if _has_text_first(body) else "")


def _has_more_letters(body: bytes, size: int) -> bool:
    """Return whether a body has more characters, line ends aside, than so many decoded bytes need."""
    room = size * 4 + 12
    width = body.find(b"\n") + 1
    if width and room >= (len(body) - _regular_ends(body, width)) * 3:
        return False
    return room < (len(body) - body.count(b"\n") - body.count(b"\r")) * 3


def _regular_ends(body: bytes, width: int) -> int:
    """Return how many characters are line ends where every line has the same width; 0 where one has not."""
    ends = body[width - 1 :: width]
    if ends.strip(b"\n"):
        return 0
    before = body[width - 2 :: width][: len(ends)] if width > 1 else b"-"
    return len(ends) if before.strip(b"\r") else 2 * len(ends)


def _has_text_first(body: bytes) -> bool:
    """Return whether text precedes the base64: clients differ on whether its letters belong to it."""
    first = body[:1_024].lstrip().partition(b"\n")[0].strip()  # not inspection: its first line
    return bool(first.translate(None, _NOT_BASE64 + b" \t") != first)


def _decode_after_padding(body: bytes, content: bytes, rest: bytes) -> Decoded:
    """Decode in every way that clients treat text after padding: stop, continue, or drop the padding and join."""
    joined = body.translate(None, _NOT_BASE64).translate(None, b"\r\n \t=")
    joined = joined[: len(joined) - 1] if len(joined) % 4 == 1 else joined
    others = [binascii.a2b_base64(joined + b"==")]
    pieces: list[bytes] = []
    for piece in body.translate(None, _NOT_BASE64).translate(None, b"\r\n \t").replace(b"==", b"=").split(b"="):
        kept = piece[: len(piece) - 1] if len(piece) % 4 == 1 else piece
        pieces.append(binascii.a2b_base64(kept + b"=="))
    others.append(b"".join(pieces))
    if len(rest) > 8:
        return Decoded(content, "A base64 body goes on after its padding", tuple(others))
    return Decoded(content, "", tuple(others))


def _cut_at_junk(body: bytes) -> tuple[bytes, ...]:
    """Decode up to the first character that is not base64, as strict parsers do."""
    match = looks_base64(body)
    if match is None:
        return ()
    clean = match.group().translate(None, b"\r\n \t=")
    clean = clean[: len(clean) - 1] if len(clean) % 4 == 1 else clean
    return (binascii.a2b_base64(clean + b"=="),)


def _decode_loose_parts(text: bytes) -> Iterator[EncodedFile]:
    """Decode text that looks like a part, as parsers do that find other boundaries."""
    decoded = -1
    for match in _LOOSE_PART.finditer(text):
        start = min((end for end in (text.find(b"\n\n", match.end()), text.find(b"\n\r\n", match.end())) if end >= 0),
                    default=-1)  # fmt: skip
        if start < 0:
            return
        if start > decoded and (run := looks_base64(text, start)):
            decoded = start
            yield EncodedFile("", _decode_base64(run.group()).content)
