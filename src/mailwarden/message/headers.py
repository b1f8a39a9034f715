"""Header fields: split, unfolded, parsed into parameters, and decoded to text within limits.

Security: works on hostile bytes; every step is linear in the length of the block, only charsets of the allow-list are
decoded, and a value that cannot be decoded stays as written.
"""

import binascii
import re
from typing import NamedTuple

from mailwarden.message.charsets import codec_for, decode_text, readings
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.message import Header

Field = tuple[bytes, bytes]  # the name in lower case, the unfolded value

_PARAMETER = re.compile(rb'(?<=[;\s,:])([^\s=;,:"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)', re.DOTALL)
_COMMENT_PIECE = re.compile(rb'[()]|\\.|"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_PARENTHESES = re.compile(rb"[()]")
_TOKEN = re.compile(rb"[^\s;()\"]+")


LONG_HEADERS = frozenset({b"to", b"cc", b"bcc", b"references", b"in-reply-to", b"delivered-to"})
_WORD = re.compile(rb"=\?([^?\s]{1,40})\?([bBqQ])\?([^?\r\n]*)\?=")
# Encoded words as lenient clients accept them: with spaces inside, or without an end.
_LOOSE_WORD = re.compile(rb"=\?([^?\s]{1,200})\?([bBqQ])\?([^?\r\n]*)(?:\?=|$)")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]+")
_NAME_ROUNDS, _NAMES = 3, 20  # nested encoded words, and names of one parameter


class Parameter(NamedTuple):
    """One parameter of a structured field: its name in lower case, its value without quotes."""

    name: bytes
    value: bytes
    quoted: bool = False
    escaped: bool = False


def read_fields(block: bytes) -> list[Field]:
    """Split a header block into fields; a line without a colon becomes a field without a name."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    # A fold becomes a space, so that a tab in a value is always part of the value itself.
    block = block.replace(b"\n ", b" ").replace(b"\n\t", b" ")
    fields: list[Field] = []
    for line in block.split(b"\n"):
        if line:
            name, colon, value = line.partition(b":")
            fields.append((name.lower(), value) if colon else (b"", line))
    return fields


def strip_comments(value: bytes) -> bytes:
    """Remove RFC 5322 comments from a structured value; quoted strings are unchanged."""
    if b"(" not in value:
        return value
    kept: list[bytes] = []
    depth = last = 0
    for piece in _COMMENT_PIECE.finditer(value):
        character = piece.group()
        if character == b"(":
            if depth == 0:
                kept.append(value[last : piece.start()])
            depth += 1
        elif character == b")" and depth:
            depth -= 1
            last = piece.end()
    if depth == 0:
        kept.append(value[last:])
    return b" ".join(kept)


def nests_deeper(value: bytes, most: int) -> bool:
    """Return whether comments nest deeper than `most`; parentheses in quotes count too, as some parsers count them."""
    depth = 0
    for character in _PARENTHESES.finditer(value):
        if character.group() == b"(":
            depth += 1
            if depth > most:
                return True
        elif depth:
            depth -= 1
    return False


def read_parameters(value: bytes, most: int) -> list[Parameter]:
    """Parse `; name=value` parameters in order, at most `most` of them."""
    found: list[Parameter] = []
    for match in _PARAMETER.finditer(value):
        if len(found) >= most:
            break
        name, text = match.groups()
        if text.startswith(b'"') and len(text) > 1:
            inner = text[1:-1]
            escaped = b"\\" in inner
            found.append(Parameter(name.lower(), _ESCAPE.sub(rb"\1", inner) if escaped else inner, True, escaped))
        else:
            found.append(Parameter(name.lower(), text.strip(b'"')))
    return found


def parameter(parameters: list[Parameter], name: bytes) -> tuple[bytes, bytes]:
    """Return a parameter's value and its RFC 2231 charset, if any; continuations are joined in order."""
    plain = b""
    pieces: list[tuple[int, bool, bytes]] = []
    for found in parameters:
        if found.name == name:
            plain = plain or found.value
        elif found.name.startswith(name + b"*"):
            order = found.name[len(name) + 1 :].partition(b"*")[0]
            pieces.append((_small_number(order), found.name.endswith(b"*"), found.value))
    if not pieces:
        return plain, b""
    pieces.sort(key=lambda piece: piece[0])
    charset = b""
    joined: list[bytes] = []
    for index, (_, extended, piece) in enumerate(pieces):
        text = piece
        if extended and index == 0 and piece.count(b"'") >= 2:
            charset, _, text = piece.split(b"'", 2)
        joined.append(decode_percents(text) if extended else text)
    return b"".join(joined), charset


def all_values(parameters: list[Parameter], name: bytes) -> list[tuple[bytes, bytes]]:
    """Return every value that some client uses for a parameter, with its RFC 2231 charset; the likeliest first."""
    found = dict.fromkeys([parameter(parameters, name)])
    for each in parameters:
        if each.name == name:
            found[each.value, b""] = None
            if b"\0" in each.value:  # programs written in C end the value here
                found[each.value.partition(b"\0")[0], b""] = None
        elif each.name == name + b"*":
            found[parameter([each], name)] = None
    return [(value, charset) for value, charset in found if value]


def decode_percents(value: bytes) -> bytes:
    return _PERCENT.sub(lambda match: bytes((int(match[1], 16),)), value) if b"%" in value else value


def first_token(value: bytes) -> bytes:
    """Return the first word of a structured value without comments, in lower case."""
    match = _TOKEN.search(strip_comments(value))
    return match.group().lower() if match else b""


def _small_number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) < 6 else 0


def decode_headers(fields: list[Field], limits: Limits = LIMITS) -> tuple[Header, ...]:
    """Decode the fields of a header block in order; values beyond a limit are cut."""
    found: list[Header] = []
    for name, value in fields[: limits.headers]:
        if not name:
            continue
        most = limits.long_header if name in LONG_HEADERS else limits.header
        read = decode_trace if name.strip() == b"received" else decode_value
        found.append(
            Header(name.strip().decode("ascii", "replace")[:200], read(value[:most]))
        )  # not inspection: no known field has a longer name
    return tuple(found)


def decode_value(value: bytes) -> str:
    """Decode one header value to text."""
    text = (_decode_words(value) if b"=?" in value else decode_bytes(value, "")).strip()
    return text if text.isprintable() else _CONTROLS.sub(" ", text)


def decode_name(value: bytes) -> tuple[str, ...]:
    """Return every name that some client decodes from the value of a parameter, the likeliest first.

    RFC 2047, section 5 forbids encoded words in parameters, so clients differ: in the charset if the bytes contradict
    it, in decoding a word within a word, and in accepting a word without an end.
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
    """Decode a Received field literally: other hosts choose parts of it.

    No encoded word is decoded (RFC 2047, section 5 forbids them there) and no control character becomes a space: either
    could imitate text that only the mail server writes.
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
