"""Files written as text: uuencode, xxencode, yEnc, and base64, with the names that they are given.

Security: works on hostile bytes; each decoder is linear in its input, and its output is never larger than twice it.
"""

import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

import re2

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
# By RE2, which needs no memory for each of the lines; its \s lacks the vertical tab.
_LOOKS_BASE64 = re2.compile(rb"[\s\x0b]*[A-Za-z0-9+/]{16,}={0,2}(?:[\s\x0b]+[A-Za-z0-9+/]+={0,2})*[\s\x0b]*", _BYTES)


class EncodedFile(NamedTuple):
    name: str
    content: bytes


def find_encoded(text: bytes) -> Iterator[EncodedFile]:
    """Yield every file that is written in a text by uuencode, xxencode or yEnc."""
    if b"begin" in text:
        yield from _read_uu(text)
    if b"=ybegin " in text:
        yield from _read_yenc(text)


def looks_base64(text: bytes, start: int = 0) -> re.Match[bytes] | None:
    """Match a run of base64 from a position on."""
    match: re.Match[bytes] | None = _LOOKS_BASE64.match(text, start)
    return match


def is_base64(text: bytes) -> bool:
    """Tell whether the whole text is base64, at least a line of it."""
    head = text[:2_048]  # not inspection: a line of base64 tells the rest
    if len(text) < 32 or b" " in head.strip()[:64]:
        return False
    match = looks_base64(head)
    if match is None or (match.end() < len(head) and len(head) == len(text)):
        return False
    return bool(match.end() >= min(len(head), 512))


def _read_uu(text: bytes) -> Iterator[EncodedFile]:
    """Go from one `begin` to the next; a file ends at its `end`, or where the next begins."""
    for match, following in _blocks(_BEGIN, text):
        is_coded = b"begin-base64" in match[0]
        end = text.find(b"\n====" if is_coded else b"\nend", match.end() - 1, following)
        rows = text[match.end() : end if end >= 0 else following].splitlines()
        decode = _base64_row if is_coded else _xx_row if _is_xx(rows) else _uu_row
        content = b"".join(map(decode, rows))
        if content:
            yield EncodedFile(_decode_name(match[1]), content)


def _is_xx(rows: list[bytes]) -> bool:
    """Tell xxencode: a row begins with the code of its length, which is another character than in uuencode."""
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
    """Yield each beginning with the place where the next one stands, or the end of the text."""
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
