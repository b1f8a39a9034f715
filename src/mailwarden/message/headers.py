"""Header values as text: unfolded, with encoded words decoded, within limits.

Security: works on hostile bytes; linear in the length of the value, charsets from the allow-list alone, and what
cannot be decoded stays as it was written.
"""

import binascii
import re

from mailwarden.message.charsets import codec_for, decode_text
from mailwarden.message.fields import Field
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.message import Header

LONG_HEADERS = frozenset({b"to", b"cc", b"bcc", b"references", b"in-reply-to", b"delivered-to"})
_WORD = re.compile(rb"=\?([^?\s]{1,40})\?([bBqQ])\?([^?\r\n]*)\?=")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]+")


def decode_headers(fields: list[Field], limits: Limits = LIMITS) -> tuple[Header, ...]:
    """Decode the fields of a header block in order; what is beyond a limit is cut off."""
    found: list[Header] = []
    for name, value in fields[: limits.headers]:
        if not name:
            continue
        most = limits.long_header if name in LONG_HEADERS else limits.header
        read = decode_trace if name.strip() == b"received" else decode_value
        found.append(
            Header(name.strip().decode("ascii", "replace")[:200], read(value[:most]))
        )  # not inspection: the name of a field, which we know or not
    return tuple(found)


def decode_value(value: bytes) -> str:
    """Turn one header value into text."""
    text = (_decode_words(value) if b"=?" in value else decode_bytes(value, "")).strip()
    return text if text.isprintable() else _CONTROLS.sub(" ", text)


def decode_trace(value: bytes) -> str:
    """Turn a Received line into text as it is written: its parts are the words of strangers.

    No encoded word is decoded (RFC 2047, section 5 has none there) and no control character becomes a space, as either
    could write what only the mail server writes.
    """
    return _CONTROLS.sub("\ufffd", value.decode("utf-8", "replace").strip(" \t\r"))


def decode_bytes(value: bytes, charset: str) -> str:
    if value.isascii() and not charset:
        return value.decode("ascii")
    return decode_text(value, charset)


def _decode_words(value: bytes) -> str:
    """Decode encoded words; white space between two of them is dropped, and split characters are joined."""
    pieces: list[str] = []
    waiting: list[bytes] = []  # bytes of neighbouring words in one charset
    waiting_charset = ""
    last = 0
    for match in _WORD.finditer(value):
        between = value[last : match.start()]
        charset = match[1].decode("ascii", "replace").partition("*")[0].lower()
        joins = not between.strip() and last > 0
        if waiting and not (joins and charset == waiting_charset):
            pieces.append(decode_text(b"".join(waiting), waiting_charset))
            waiting = []
        if not joins and between:
            pieces.append(decode_bytes(between, ""))
        waiting.append(_word_bytes(match))
        waiting_charset = charset if codec_for(charset) else ""
        last = match.end()
    if waiting:
        pieces.append(decode_text(b"".join(waiting), waiting_charset))
    pieces.append(decode_bytes(value[last:], ""))
    return "".join(pieces)


def _word_bytes(match: re.Match[bytes]) -> bytes:
    text = match[3]
    if match[2] in b"qQ":
        return binascii.a2b_qp(text, header=True)
    try:
        return binascii.a2b_base64(text + b"==")
    except binascii.Error:
        try:
            return binascii.a2b_base64(text[: len(text) - len(text) % 4 - 4] + b"==")
        except binascii.Error:
            return text
