"""Transfer encodings undone the way lenient mail clients do it, with a word on what was odd.

Security: works on hostile bytes; each decoder is linear in its input and its output is never larger than twice it.
"""

import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

from mailwarden.message.encoded_files import EncodedFile, find_encoded, is_base64, looks_base64
from mailwarden.message.media import UUENCODINGS

_NOT_BASE64 = bytes(set(range(256)) - set(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\r\n \t"))
_PADDED_BREAK = re.compile(rb"=[ \t]+\r?\n")
_LOOSE_PART = re.compile(rb"\n[> ]{0,9}content-transfer-encoding\s{0,9}:\s{0,9}base64", re.IGNORECASE)


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
        return Decoded(body, "The transfer encoding is unknown", tuple(file.content for file in find_encoded(body)))
    return Decoded(body)


def find_embedded(text: bytes, readable: bool = True) -> Iterator[EncodedFile]:
    """Find what a lenient client takes out of a body: uuencode, yEnc, loose parts if it is text, bare base64 in any."""
    if readable:
        yield from find_encoded(text)
        if b"ransfer-" in text:
            yield from _decode_loose_parts(text)
    if is_base64(text):
        yield EncodedFile("", _decode_base64(text).content)


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
    first = body[:1_024].lstrip().partition(b"\n")[0].strip()  # not inspection: its first line
    return bool(first.translate(None, _NOT_BASE64 + b" \t") != first)


def _decode_after_padding(body: bytes, content: bytes, rest: bytes) -> Decoded:
    """Readers differ on what follows the padding: some stop, some go on with it, some drop the signs and join."""
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
    """Decode up to the first character that is no base64, as strict readers do."""
    match = looks_base64(body)
    if match is None:
        return ()
    clean = match.group().translate(None, b"\r\n \t=")
    clean = clean[: len(clean) - 1] if len(clean) % 4 == 1 else clean
    return (binascii.a2b_base64(clean + b"=="),)


def _decode_loose_parts(text: bytes) -> Iterator[EncodedFile]:
    """Decode what looks like a part in the midst of a text, as readers with another idea of boundaries do."""
    decoded = -1
    for match in _LOOSE_PART.finditer(text):
        start = min((end for end in (text.find(b"\n\n", match.end()), text.find(b"\n\r\n", match.end())) if end >= 0),
                    default=-1)  # fmt: skip
        if start < 0:
            return
        if start > decoded and (run := looks_base64(text, start)):
            decoded = start
            yield EncodedFile("", _decode_base64(run.group()).content)
