"""Finds the real target of a link whose address contains another address.

Security: works on hostile text; an address grows shorter with every step, every pattern is linear, and it never raises.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from urllib.parse import unquote

from mailwarden.analysis.links.hosts import HostKind, kind_of
from mailwarden.message.coverage import Coverage
from mailwarden.message.urls import host_of, registrable_domain
from mailwarden.model.place import area

_INNER = re.compile(r"(?:https?|ftp):(?:[/\\]{1,3}(?![/\\])|[/\\]{4})[^\s<>\"']{4,4096}", re.IGNORECASE)
_BASE64_INNER = re.compile(r"[=/#?](?:a1)?(aHR0c[A-Za-z0-9+/_-]{8,2000})")
# Services that write the address after their own number, without its scheme.
_BARE_INNER = re.compile(
    r"https?://(?:[a-z0-9-]{1,63}\.){0,3}(?:(?:pstmrk\.it/3s|mandrillapp\.com/track/click/\d{1,20})/"
    r"|tiktok\.com/link/[^\s?]{0,20}\?[^\s]{0,500}?target=|mail\.adobe\.com/r/\?[^\s]{0,500}?p1=)"
    r"([a-z0-9-]{1,63}\.[^\s?&]{2,500})",
    re.IGNORECASE,
)
_SCHEMELESS = re.compile(r"=//((?:[a-z0-9-]{1,63}\.){1,10}[a-z]{2,24}(?:[/?#:][^\s<>\"'&]{0,2000})?)", re.IGNORECASE)
_AMP = re.compile(r"https?://(?:www\.)?google\.[a-z.]{2,6}/amp/(?:s/|(?!s/))([a-z0-9%-][^\s]{3,2000})", re.IGNORECASE)
_PROOFPOINT = re.compile(r"/v3/__(.{8,4000}?)__;", re.IGNORECASE)


def inner_address(url: str) -> str:
    """Return the address that another carries in its path, query or fragment, or ""."""
    if amp := _AMP.match(url):
        return f"https://{unquote(amp[1])}"
    if bare := _BARE_INNER.match(url):
        return f"https://{unquote(bare[1])}"
    tail = url[9:]
    if "__;" in tail and (match := _PROOFPOINT.search(tail)):
        return match[1]
    for text in _decoded(tail):
        if ":" in text and (match := _INNER.search(text)):
            return match.group().split("&", 1)[0] if "?" in text[: match.start()] else match.group()
        if "=//" in text and (match := _SCHEMELESS.search(text)):
            return f"https://{match[1]}"
    if "aHR0c" in tail and (match := _BASE64_INNER.search(tail)):
        return _decode(match[1])
    return ""


def _decoded(tail: str) -> Iterator[str]:
    """Yield a text as written, and percent-decoded once and twice."""
    yield tail
    for _ in range(2):
        if "%" not in tail:
            return
        tail = unquote(tail)
        yield tail


def follow(url: str, coverage: Coverage | None = None) -> Iterator[str]:
    """Yield the addresses within an address, outer before inner, where each leads to another organisation."""
    return (coverage or Coverage()).first(_follow(url), "redirections", area("a link"))


def _follow(url: str) -> Iterator[str]:
    seen = {registrable_domain(host_of(url))}
    while True:
        url = inner_address(url)
        host = host_of(url)
        domain = registrable_domain(host) or host
        if not host or domain in seen:
            return
        seen.add(domain)
        yield url


def unwrap(url: str) -> str:
    """Return the address behind a mail gateway, and any other address unchanged."""
    while kind_of(host_of(url)) is HostKind.GATEWAY:
        inner = inner_address(url)
        if not host_of(inner) or len(inner) >= len(url):
            break
        url = inner
    return url


def _decode(text: str) -> str:
    text = text.replace("-", "+").replace("_", "/")
    text = text[: len(text) - len(text) % 4] if len(text) % 4 == 1 else text
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4)).decode("ascii", "ignore")
    except (ValueError, binascii.Error):
        return ""
    match = _INNER.match(unquote(decoded))
    return match.group() if match else ""
