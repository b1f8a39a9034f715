"""Header fields and their parameters as raw bytes: cut apart, unfolded, not yet decoded.

Security: works on hostile bytes; linear in the length of the block, no regex that backtracks.
"""

import re
from typing import NamedTuple

Field = tuple[bytes, bytes]  # the name in lower case, the unfolded value

_PARAMETER = re.compile(rb'(?<=[;\s,:])([^\s=;,:"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;\s]*)', re.DOTALL)
_COMMENT_PIECE = re.compile(rb'[()]|\\.|"(?:[^"\\]|\\.)*"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_PARENTHESES = re.compile(rb"[()]")
_TOKEN = re.compile(rb"[^\s;()\"]+")


class Parameter(NamedTuple):
    """One parameter of a structured field: its name in lower case, its value without quotes."""

    name: bytes
    value: bytes
    quoted: bool = False
    escaped: bool = False


def read_fields(block: bytes) -> list[Field]:
    """Cut a header block into fields; a line without a colon becomes a field without a name."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    # A fold becomes a space, whichever white space it has: a tab in a value was written by whoever wrote the value.
    block = block.replace(b"\n ", b" ").replace(b"\n\t", b" ")
    fields: list[Field] = []
    for line in block.split(b"\n"):
        if line:
            name, colon, value = line.partition(b":")
            fields.append((name.lower(), value) if colon else (b"", line))
    return fields


def strip_comments(value: bytes) -> bytes:
    """Take RFC 5322 comments out of a structured value; quoted strings stay as they are."""
    if b"(" not in value:
        return value
    kept: list[bytes] = []
    depth = last = 0
    for piece in _COMMENT_PIECE.finditer(value):
        sign = piece.group()
        if sign == b"(":
            if depth == 0:
                kept.append(value[last : piece.start()])
            depth += 1
        elif sign == b")" and depth:
            depth -= 1
            last = piece.end()
    if depth == 0:
        kept.append(value[last:])
    return b" ".join(kept)


def nests_deeper(value: bytes, most: int) -> bool:
    """Tell whether comments nest deeper than `most`, as a hostile reader counts: quotes do not hide parentheses."""
    depth = 0
    for sign in _PARENTHESES.finditer(value):
        if sign.group() == b"(":
            depth += 1
            if depth > most:
                return True
        elif depth:
            depth -= 1
    return False


def read_parameters(value: bytes, most: int) -> list[Parameter]:
    """Read `; name=value` parameters in order, at most `most` of them."""
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
    """Return a parameter's value and, where RFC 2231 names one, its charset; continuations are joined in order."""
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
    """Return every value that some client takes for a parameter, with its RFC 2231 charset; the likeliest first."""
    found = dict.fromkeys([parameter(parameters, name)])
    for each in parameters:
        if each.name == name:
            found[each.value, b""] = None
            if b"\0" in each.value:  # where programs written in C end a text
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
