"""Header values as text: unfolded, with encoded words decoded, within limits.

Security: works on hostile bytes; linear in the length of the value, charsets from the allow-list alone, and what
cannot be decoded stays as it was written.
"""

import binascii
import re

from mailwarden.message.charsets import codec_for, decode_text, readings
from mailwarden.message.fields import Field
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.message import Header

LONG_HEADERS = frozenset({b"to", b"cc", b"bcc", b"references", b"in-reply-to", b"delivered-to"})
_WORD = re.compile(rb"=\?([^?\s]{1,40})\?([bBqQ])\?([^?\r\n]*)\?=")
# Encoded words as lenient clients find them: with blanks inside, or without an end.
_LOOSE_WORD = re.compile(rb"=\?([^?\s]{1,200})\?([bBqQ])\?([^?\r\n]*)(?:\?=|$)")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]+")


_NAME_ROUNDS, _NAMES = 3, 20  # encoded words inside of each other, and names of one parameter


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


def decode_name(value: bytes) -> tuple[str, ...]:
    """Return every name that some client makes of the value of a parameter, the likeliest first.

    RFC 2047 5 has no encoded words in parameters, so each client has its own idea of them: which charset counts where
    the bytes contradict it, whether a word within a word is decoded, and whether one without an end is a word.
    """
    found = {decode_value(value): None}
    waiting = [value]
    for _ in range(_NAME_ROUNDS):
        inner: list[bytes] = []
        for each in waiting:
            for match in _LOOSE_WORD.finditer(each):
                label = match[1].decode("ascii", "replace").partition("*")[0]
                content = _word_bytes(match)
                for text in (*readings(content, (label,)), content.decode("utf-16-be", "replace")):
                    shown = decode_bytes(each[: match.start()], "") + text + decode_bytes(each[match.end() :], "")
                    for name in (shown, shown.replace(" ", "")):
                        found[_CONTROLS.sub("", name).strip()] = None
                inner.append(content)
        waiting = [each for each in inner if b"=?" in each]
    return tuple(name for name in found if name)[:_NAMES]  # not inspection: more readings than any client has


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
