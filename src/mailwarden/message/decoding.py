"""Transfer encodings undone the way lenient mail clients do it, with a word on what was odd.

Security: works on hostile bytes; each decoder is linear in its input and its output is never larger than twice it.
"""

import binascii
import re
from itertools import islice
from typing import NamedTuple

import re2

from mailwarden.message.media import UUENCODINGS

_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n \t"))
_PADDED_BREAK = re.compile(rb"=[ \t]+\r?\n")
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
# By RE2, which needs no memory for each of the lines; its \s lacks the vertical tab.
_LOOKS_BASE64 = re2.compile(rb"[\s\x0b]*[A-Za-z0-9+/]{16,}={0,2}(?:[\s\x0b]+[A-Za-z0-9+/]+={0,2})*[\s\x0b]*", _BYTES)
_UU_BEGIN = re.compile(rb"(?:\A|\n)begin(?:-base64)? [0-7]{3,4} ([^\r\n]{0,200})\r?\n")
_YENC_BEGIN = re.compile(rb"(?:\A|\n)=ybegin [^\r\n]{0,300}\r?\n")
_YENC_ESCAPE = re.compile(rb"=(.)", re.DOTALL)
_YENC_SHIFT = bytes((value - 42) % 256 for value in range(256))
_LOOSE_PART = re.compile(rb"\n[> ]{0,9}content-transfer-encoding\s{0,9}:\s{0,9}base64", re.IGNORECASE)
_UU_LINES = 200_000


class Decoded(NamedTuple):
    content: bytes
    doubt: str = ""
    others: tuple[bytes, ...] = ()  # what another reader may make of the same bytes


def decode_transfer(body: bytes, encoding: bytes) -> Decoded:
    """Undo a transfer encoding; unknown ones leave the bytes as they are."""
    if encoding == b"base64":
        return _decode_base64(body)
    if encoding == b"quoted-printable":
        doubt = "White space follows a soft line break" if _PADDED_BREAK.search(body) else ""
        return Decoded(binascii.a2b_qp(body) if b"=" in body else body, doubt)
    if encoding in UUENCODINGS:
        return Decoded(body, "The transfer encoding is unknown", _decode_uu(body))
    return Decoded(body)


def find_embedded(text: bytes, readable: bool = True) -> tuple[bytes, ...]:
    """Find what a lenient client takes out of a body: uuencode, yEnc, loose parts if it is text, bare base64 in any."""
    found: list[bytes] = []
    if not readable:
        return (_decode_base64(text).content,) if _is_base64(text) else ()
    if b"\nbegin" in text or text.startswith(b"begin"):
        found += _decode_uu(text)
    if b"=ybegin " in text:
        found += _decode_yenc(text)
    if b"ransfer-" in text:
        found += _decode_loose_parts(text)
    if _is_base64(text):
        found.append(_decode_base64(text).content)
    return tuple(each for each in found if each)


def _decode_base64(body: bytes) -> Decoded:
    try:
        content = binascii.a2b_base64(body, strict_mode=False)
    except binascii.Error:
        clean = body.translate(None, _NOT_BASE64).translate(None, b"\r\n \t=")
        clean = clean[: len(clean) - 1] if len(clean) % 4 == 1 else clean
        return Decoded(binascii.a2b_base64(clean + b"=="), "A base64 body is cut off or has the wrong length")
    # Four characters make three bytes: only a body that has fewer bytes than that is worth a closer look.
    padding = body.find(b"=")
    if padding >= 0 and (rest := body[padding:].strip(b"= \t\r\n")):
        return _decode_after_padding(body, content, rest)
    letters = len(body) - body.count(b"\n") - body.count(b"\r")
    if len(content) * 4 + 12 < letters * 3 and body.translate(None, b" \t\r\n").translate(None, _NOT_BASE64) != (
        body.translate(None, b" \t\r\n")
    ):
        return Decoded(content, "A base64 body has characters that do not belong there", _cut_at_junk(body))
    return Decoded(content, "A base64 body begins with text" if _has_text_first(body) else "")


def _has_text_first(body: bytes) -> bool:
    """Tell whether words stand before the base64: readers differ on whether their letters belong to it."""
    first = body[:1_024].lstrip().partition(b"\n")[0].strip()
    return bool(first.translate(None, _NOT_BASE64 + b" \t") != first)


def _decode_after_padding(body: bytes, content: bytes, rest: bytes) -> Decoded:
    """Readers differ on what follows the padding: some stop, some go on with it, some drop the signs and join."""
    joined = body.translate(None, _NOT_BASE64).translate(None, b"\r\n \t=")
    joined = joined[: len(joined) - 1] if len(joined) % 4 == 1 else joined
    others = [binascii.a2b_base64(joined + b"==")]
    pieces: list[bytes] = []
    for piece in body.translate(None, _NOT_BASE64).translate(None, b"\r\n \t").replace(b"==", b"=").split(b"=")[:1000]:
        kept = piece[: len(piece) - 1] if len(piece) % 4 == 1 else piece
        pieces.append(binascii.a2b_base64(kept + b"=="))
    others.append(b"".join(pieces))
    if len(rest) > 8:
        return Decoded(content, "A base64 body goes on after its padding", tuple(others))
    return Decoded(content, "", tuple(others))


def _cut_at_junk(body: bytes) -> tuple[bytes, ...]:
    """Decode up to the first character that is no base64, as strict readers do."""
    match = _LOOKS_BASE64.match(body)
    if match is None:
        return ()
    clean = match.group().translate(None, b"\r\n \t=")
    clean = clean[: len(clean) - 1] if len(clean) % 4 == 1 else clean
    return (binascii.a2b_base64(clean + b"=="),)


def _decode_loose_parts(text: bytes) -> list[bytes]:
    """Decode what looks like a part in the midst of a text, as readers with another idea of boundaries do."""
    found: list[bytes] = []
    for match in islice(_LOOSE_PART.finditer(text), 20):
        start = min((end for end in (text.find(b"\n\n", match.end()), text.find(b"\n\r\n", match.end())) if end >= 0),
                    default=-1)  # fmt: skip
        if start >= 0 and (run := _LOOKS_BASE64.match(text, start)):
            found.append(_decode_base64(run.group()).content)
    return found


def _is_base64(text: bytes) -> bool:
    """Tell whether the whole text is base64, at least a line of it."""
    head = text[:2_048]
    if len(text) < 32 or b" " in head.strip()[:64]:
        return False
    match = _LOOKS_BASE64.match(head)
    if match is None or (match.end() < len(head) and len(head) == len(text)):
        return False
    return bool(match.end() >= min(len(head), 512))


def _decode_uu(text: bytes) -> tuple[bytes, ...]:
    found: list[bytes] = []
    budget = _UU_LINES
    for match in _UU_BEGIN.finditer(text):
        if len(found) >= 20 or budget <= 0:
            break
        end = text.find(b"\nend", match.end())
        block = text[match.end() : end if end >= 0 else len(text)]
        if b"-base64" in match.group():
            found.append(_decode_base64(block).content)
            continue
        lines = block.split(b"\n", budget)[:budget]
        budget -= len(lines)
        found.append(b"".join(_uu_line(line.rstrip(b"\r")) for line in lines))
    return tuple(each for each in found if each)


def _uu_line(line: bytes) -> bytes:
    try:
        return binascii.a2b_uu(line)
    except binascii.Error:
        length = ((line[0] - 32) & 63) * 4 + 5 if line else 0
        try:
            return binascii.a2b_uu(line[: length // 3])
        except binascii.Error:
            return b""


def _decode_yenc(text: bytes) -> tuple[bytes, ...]:
    match = _YENC_BEGIN.search(text)
    if match is None:
        return ()
    end = text.find(b"\n=yend", match.end())
    block = text[match.end() : end if end >= 0 else len(text)]
    if block.startswith(b"=ypart"):
        block = block.partition(b"\n")[2]
    block = block.translate(None, b"\r\n")
    block = _YENC_ESCAPE.sub(lambda escape: bytes(((escape[1][0] - 64) % 256,)), block)
    return (block.translate(_YENC_SHIFT),)
