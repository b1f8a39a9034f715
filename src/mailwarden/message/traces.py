"""Links and hops of a message as people are shown them: found by patterns over text that is read once already.

A page is not parsed for this: what a link hides is the analyzers' to tell, and they parse where it matters.
Security: works on hostile text; every pattern is linear, every piece is cut before it is looked at.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator
from html import unescape
from itertools import islice, pairwise
from typing import TypeVar

from mailwarden.message.charsets import decode_text
from mailwarden.message.message import Message, Part
from mailwarden.message.received import read_received
from mailwarden.message.urls import find_urls, host_of
from mailwarden.model.summary import HopSummary, LinkSummary

MAX_LINKS = 50
MAX_HOPS = 20
MAX_TARGET = 500
MAX_TEXT = 200

_LOOKED_AT = 500  # links of one part; of more, the first to each host are kept all the same
_IN_ALL = 2_000
_OF_A_HOST = 5  # a newsletter has hundreds that differ in a number
_PIECE = 4_096  # characters of one link, from its `<a` on
_PAGE = 2_097_152  # bytes of a page that are looked through
_PLAIN = 262_144  # bytes of a plain text that are looked through

_PAGE_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_ANCHOR = re.compile(r"<[aA](?=[\s/])")
_HEAD = re.compile(r"""[^>"']*(?:(?:"[^"]*"|'[^']*')[^>"']*)*>""")
_HREF = re.compile(r"""(?<![\w-])href\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>]+))""", re.IGNORECASE)
_CLOSE = re.compile(r"</[aA](?=[\s>])")
_URL = re.compile(r"://([^\s<>\"'/?#]{1,300})[^\s<>\"']{0,2000}")
_TAG = re.compile(r"<[^>]*>")

_Link = TypeVar("_Link")

_FROM = re.compile(r"from\s+([^\s;()]{1,255})", re.IGNORECASE)
_BY = re.compile(r"(?:^|\s)by\s+([^\s;()]{1,255})", re.IGNORECASE)


def find_links(message: Message) -> tuple[LinkSummary, ...]:
    """Return the first link to each host, then some of the others: many harmless links hide none."""
    first: dict[str, LinkSummary] = {}
    others: list[LinkSummary] = []
    known: set[tuple[str, str]] = set()
    for text, target in islice(_links_of(message), _IN_ALL):
        if target[:1] in ("", "#") or (text, target) in known:
            continue
        known.add((text, target))
        known.add((target, target))  # the plain text of a message repeats the links of its page
        link = LinkSummary(text, target, host_of(target))
        if first.setdefault(link.host, link) is not link and len(others) < MAX_LINKS:
            others.append(link)
    return (*first.values(), *others)[:MAX_LINKS]


def find_hops(message: Message) -> tuple[HopSummary, ...]:
    """Read the Received lines, the latest first; what a line does not say stays empty."""
    return tuple(map(_hop_of, message.all_headers("received")[:MAX_HOPS]))


def _links_of(message: Message) -> Iterator[tuple[str, str]]:
    for part in message.parts:
        if part.media_type in _PAGE_TYPES:
            yield from _anchors_of(part)
    for part in message.parts:
        if part.media_type.startswith("text/") and part.media_type not in _PAGE_TYPES and b"://" in part.content:
            yield from ((url, url) for url in _urls_of(part))


def _anchors_of(part: Part) -> Iterator[tuple[str, str]]:
    page = decode_text(part.content[:_PAGE], part.charset)
    starts = [match.end() for match in islice(_ANCHOR.finditer(page), _LOOKED_AT)]
    pieces = (page[start : min(end, start + _PIECE)] for start, end in pairwise((*starts, len(page))))
    found = ((piece, match) for piece in pieces if (match := _HREF.search(piece)))
    for piece, href in _few_of_each(found, _beginning):
        head = _HEAD.match(piece)
        end = head.end() if head else piece.find(">") + 1 or len(piece)
        if href.end() <= end:
            inner = _CLOSE.split(piece[end:], maxsplit=1)[0]
            text = _seen(_without_tags(inner) if "<" in inner else inner)
            yield text[:MAX_TEXT], _seen(href[1] or href[2] or href[3] or "").replace(" ", "")[:MAX_TARGET]


def _without_tags(inner: str) -> str:
    """Put a blank in place of each tag; behind the last `>` none can end, so that nothing is searched twice."""
    tagged, end, rest = inner.rpartition(">")
    return _TAG.sub(" ", tagged + end) + rest


def _urls_of(part: Part) -> Iterator[str]:
    """Find URLs by their `://`, which is quicker over a long text than looking for their beginnings."""
    text = decode_text(part.content[:_PLAIN], part.charset)
    found = islice(_URL.finditer(text), _LOOKED_AT)
    for match in _few_of_each(found, lambda match: match[1]):
        for url in find_urls(text[max(match.start() - 5, 0) : match.end()]):
            yield _printable(url)[:MAX_TARGET]


def _few_of_each(found: Iterable[_Link], kind_of: Callable[[_Link], Hashable]) -> Iterator[_Link]:
    """Leave out what comes after the first few of its kind, before more work is spent on it."""
    counts: dict[Hashable, int] = {}
    for each in found:
        kind = kind_of(each)
        counts[kind] = count = counts.get(kind, 0) + 1
        if count <= _OF_A_HOST:
            yield each


def _beginning(found: tuple[str, re.Match[str]]) -> str:
    """Return scheme and host as they are written, which tells hosts apart well enough to count them."""
    href = found[1][1] or found[1][2] or found[1][3] or ""
    return href[: href.find("/", 8)]


def _seen(text: str) -> str:
    """Return a piece of a page as its reader sees it: entities resolved, white space folded."""
    return _printable(" ".join((unescape(text) if "&" in text else text).split()))


def _hop_of(value: str) -> HopSummary:
    value = value[:2_000]
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
        moment=_printable(moment.strip())[:100] if way is not value else "",
    )


def _printable(text: str) -> str:
    """Drop what cannot be seen: control characters, and those that turn the direction of a text."""
    return text if text.isprintable() else "".join(filter(str.isprintable, text))
