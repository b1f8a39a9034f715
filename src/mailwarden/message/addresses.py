"""Addresses of From, To and Reply-To: (name, address) pairs out of a decoded header value.

Security: works on hostile text; one pass, no recursion, at most `limits.addresses` pairs.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from mailwarden.message.limits import LIMITS, Limits

# A quoted string or a comment, closed or not (RFC 5322, 3.2.2 and 3.2.4), an address, a separator, or other text.
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*("?)|\((?:[^()\\]|\\.)*(\)?)|<[^<>]*>|[,;]|[^"(<,;]+|.', re.DOTALL)
_GROUP = re.compile(r"^[^@<>\"]{0,200}:(?!//)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Address(NamedTuple):
    name: str
    address: str

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2] if "@" in self.address else ""


def read_addresses(value: str, limits: Limits = LIMITS) -> tuple[Address, ...]:
    """Read a list of mailboxes as a lenient client does; groups are flattened, routes and comments dropped."""
    found: list[Address] = []
    words: list[str] = []
    comment = address = ""
    for piece in _pieces(value[: limits.long_header]):
        sign = piece[0]
        if sign in ",;":
            _finish(found, words, address, comment)
            words, comment, address = [], "", ""
            if len(found) >= limits.addresses:
                return tuple(found)
        elif sign == '"' and len(piece) > 1:
            words.append(_ESCAPE.sub(r"\1", piece[1:-1]))
        elif sign == "(" and len(piece) > 1:
            comment = comment or piece[1:-1]
        elif sign == "<" and len(piece) > 1:
            address = address or piece[1:-1]
        elif stripped := piece.strip():
            words.append(stripped)
    _finish(found, words, address, comment)
    return tuple(found)


def _pieces(value: str) -> Iterator[str]:
    """Cut a value into pieces; a quote or a parenthesis that never closes is a piece of its own.

    Where one does not close, those that it escapes on the way do not close either: they are not tried again.
    """
    place, end = 0, len(value)
    open_until = {'"': 0, "(": 0}
    while place < end:
        sign = value[place]
        if place < open_until.get(sign, 0):
            yield sign
            place += 1
            continue
        match = _PIECE.match(value, place)
        assert match is not None
        if sign in open_until and not (match[1] or match[2]):
            open_until[sign] = match.end()
            yield sign
            place += 1
        else:
            yield match.group()
            place = match.end()


def first_address(value: str, limits: Limits = LIMITS) -> Address:
    """Return the first mailbox of a value, or an empty one."""
    found = read_addresses(value[:8_192], limits)  # not inspection: a longer From is ambiguous, see sender
    return found[0] if found else Address("", "")


def _finish(found: list[Address], words: list[str], address: str, comment: str) -> None:
    text = " ".join(words)
    if ":" in text:
        text = _GROUP.sub("", text).strip()
    if address:
        found.append(Address(text[:1_000], _clean(address)))  # not inspection: a longer From is ambiguous, see sender
    elif "@" in text:
        # A quoted local part was taken for a word of the name: join it again.
        joined = text.replace(" @", "@").replace("@ ", "@")
        bare = joined if " " not in joined else next((word for word in joined.split() if "@" in word), joined)
        name = comment if bare == joined else joined.replace(bare, "").strip()
        found.append(Address(name[:1_000], _clean(bare)))  # not inspection: a longer From is ambiguous, see sender
    elif text or comment:
        found.append(Address((text or comment)[:1_000], ""))  # not inspection: a longer From is ambiguous, see sender


def _clean(address: str) -> str:
    """Drop a source route and white space; the domain is lower case, the local part stays as written."""
    address = "".join(address.split())[:1_000]  # not inspection: a longer From is ambiguous, see sender
    if address.startswith("@") and ":" in address:
        address = address.partition(":")[2]
    local, at, domain = address.rpartition("@")
    return f"{local}@{domain.lower().rstrip('.')}" if at else address
