"""Values in the source of a PDF: strings, references and dictionaries (ISO 32000-1, section 7.3).

Security: hostile bytes; every pattern is linear, every read ends at its caller's limit, and nothing raises.
"""

import binascii
import re

_BLANK = re.compile(rb"(?:[\0\t\n\f\r ]|%[^\r\n]*)*")
_REFERENCE = re.compile(rb"(\d{1,10})[\0\t\n\f\r ]{1,9}\d{1,5}[\0\t\n\f\r ]{1,9}R(?![A-Za-z0-9])")
_PAREN = re.compile(rb"\\.|[()]", re.DOTALL)
_MARK = re.compile(rb"\\.|[()]|<<|>>", re.DOTALL)
_BACKSLASH = re.compile(rb"\\([0-7]{1,3}|\r\n|.)", re.DOTALL)
_NOT_HEX = re.compile(rb"[^0-9a-fA-F]")
_ESCAPE = re.compile(rb"#([0-9a-fA-F]{2})")
ESCAPED_NAME = re.compile(rb"/[A-Za-z0-9]{0,30}#[0-9a-fA-F]{2}[A-Za-z0-9#]{0,60}")
_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"\n": b"", b"\r": b"", b"\r\n": b""}


def skip_blank(text: bytes, position: int) -> int:
    """Return where the next token begins, behind white space and comments."""
    found = _BLANK.match(text, position)
    return found.end() if found else position


def read_reference(text: bytes, position: int) -> bytes:
    """Return the number of the object that is named there, or b""."""
    found = _REFERENCE.match(text, position)
    return found[1].lstrip(b"0") or b"0" if found else b""


def read_string(text: bytes, position: int, limit: int) -> tuple[bytes | None, int]:
    """Return the string that begins there and where it ends; None where there is none, or it has no end."""
    if text[position : position + 1] == b"(":
        return _read_literal(text, position + 1, limit)
    if text[position : position + 1] == b"<" and text[position + 1 : position + 2] != b"<":
        end = text.find(b">", position, position + 2 * limit)
        if end > 0:
            digits = _NOT_HEX.sub(b"", text[position + 1 : end])
            return binascii.unhexlify(digits + b"0" * (len(digits) % 2)), end + 1
    return None, position


def _read_literal(text: bytes, start: int, limit: int) -> tuple[bytes | None, int]:
    """Read up to the parenthesis that closes the string; inner ones are balanced, or escaped."""
    depth = 1
    for mark in _PAREN.finditer(text, start, start + limit):
        depth += (mark[0] == b"(") - (mark[0] == b")")
        if depth == 0:
            return _BACKSLASH.sub(_unescaped, text[start : mark.start()]), mark.end()
    return None, start


def _unescaped(escaped: re.Match[bytes]) -> bytes:
    code = escaped[1]
    if b"0" <= code[:1] < b"8":
        return bytes([int(code, 8) & 0xFF])
    return _ESCAPED.get(code, code)


def decode_string(data: bytes) -> str:
    """Return the text of a string: UTF-16 or UTF-8 by its byte order mark, else as if it were Latin-1."""
    if data.startswith((b"\xfe\xff", b"\xff\xfe")):
        return data.decode("utf-16", "replace")
    if data.startswith(b"\xef\xbb\xbf"):
        return data[3:].decode("utf-8", "replace")
    return data.decode("latin-1")


def unescape_name(name: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), name)


def unescape_names(text: bytes) -> bytes:
    """Return a source with every name written plainly."""
    return ESCAPED_NAME.sub(lambda match: unescape_name(match[0]), text)


def dictionary_at(text: bytes, start: int, limit: int) -> bytes:
    """Return the dictionary that begins there; brackets inside of strings do not count."""
    depth = strings = 0
    for mark in _MARK.finditer(text, start, start + limit):
        if mark[0] in (b"(", b")"):
            strings = max(strings + (1 if mark[0] == b"(" else -1), 0)
        elif not strings and mark[0] in (b"<<", b">>"):
            depth += 1 if mark[0] == b"<<" else -1
            if depth == 0:
                return text[start : mark.end()]
    return text[start : start + limit]
