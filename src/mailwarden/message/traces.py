"""The hops of a message as people are shown them: read from its Received lines by patterns.

Security: works on hostile text; every pattern is linear, every line is cut before it is looked at.
"""

import re

from mailwarden.message.message import Message
from mailwarden.message.received import read_received
from mailwarden.model.summary import HopSummary

MAX_HOPS = 20  # shown: what history keeps

_FROM = re.compile(r"from\s+([^\s;()]{1,255})", re.IGNORECASE)
_BY = re.compile(r"(?:^|\s)by\s+([^\s;()]{1,255})", re.IGNORECASE)


def find_hops(message: Message) -> tuple[HopSummary, ...]:
    """Read the Received lines, the latest first; what a line does not say stays empty."""
    return tuple(map(_hop_of, message.all_headers("received")[:MAX_HOPS]))


def _hop_of(value: str) -> HopSummary:
    value = value[:2_000]  # shown: what history keeps
    way, _, moment = value.rpartition(";")
    way = way or value
    by = _BY.search(way)
    before = way[: by.start()] if by else way
    come = _FROM.match(before)
    known = read_received(value)
    return HopSummary(
        from_host=_printable(come[1]) if come else "",
        by_host=_printable(by[1]) if by else "",
        address=known.peer if known else "",
        moment=_printable(moment.strip())[:100] if way is not value else "",  # shown: what history keeps
    )


def _printable(text: str) -> str:
    """Drop what cannot be seen: control characters, and those that turn the direction of a text."""
    return text if text.isprintable() else "".join(filter(str.isprintable, text))
