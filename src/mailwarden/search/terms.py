"""The search terms of a finished guard request: short prefixed texts, stored as hashes in one indexed column.

A term is `operator:value` in normal form (`from:alice@sender.example`, `url:evil.example`); a domain yields a term
for itself and for each parent. Queries and rows make their terms with the same functions.

Security: the values come from hostile messages. Every kind of term is bounded, and nothing here raises.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import islice
from unicodedata import normalize
from urllib.parse import unquote
from uuid import UUID

from mailwarden.message.urls import host_of, normalize_host
from mailwarden.model.record import FinishedRequest

MAX_TERMS = 2_000  # of one row; the rarest kinds of value come last
MAX_WORDS = 40
MAX_LINKS = 20
MAX_LABELS = 8
MAX_MESSAGE_ID = 900
NULL_SENDER = "<>"
_WORD_LENGTH = 40
_WORD = re.compile(r"\w+")
# Scripts without spaces between words are stored and searched as pairs of characters.
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
PREFIXES = {4: (16, 24, 32), 6: (32, 48, 64, 128)}  # the networks of which an address has terms


@lru_cache(maxsize=16_384)  # verdicts, tags, tenants and common words recur in every message
def term_hash(term: str) -> int:
    """Return the 64 bits that the index stores; migration 0007 computes the same in SQL."""
    return int.from_bytes(sha256(term.encode("utf-8", "replace")).digest()[:8], signed=True)


def terms_of(request: FinishedRequest) -> tuple[str, ...]:
    """Return every term of a request once; the terms that every row has come first."""
    return tuple(islice(dict.fromkeys(_all_terms(request)), MAX_TERMS))


def term_hashes(request: FinishedRequest) -> list[int]:
    return [term_hash(term) for term in terms_of(request)]


def address_term(operator: str, address: str) -> str:
    """Return the term of one whole address, for `from` or `to`."""
    local, at, domain = address.rpartition("@")
    return f"{operator}:{fold(local)}@{normalize_host(domain)}" if at else f"{operator}:{fold(domain)}"


def domain_term(operator: str, domain: str) -> str:
    """Return the term of a domain and its subdomains, for `from`, `to` or `url`."""
    return f"{operator}:{normalize_host(domain)}"


def word_terms(operator: str, text: str) -> list[str]:
    """Return the terms of the words of a text, for `subject` or `name` (the display name in From)."""
    return [f"{operator}:{word}" for word in words_of(text)]


def hash_term(digest: str) -> str:
    return f"hash:{digest.lower()}"


def message_id_term(message_id: str) -> str:
    """Return the term of a Message-ID, with or without its brackets."""
    return "id:" + message_id.strip("<> \t")[:MAX_MESSAGE_ID]


def campaign_term(campaign: UUID) -> str:
    return f"campaign:{campaign}"


def link_term(url: str) -> str:
    """Return the term of one exact page: host and path, without scheme and query."""
    host, path = link_of(url)
    return f"url:{host}{path}"


def network_term(network: IPv4Network | IPv6Network) -> str:
    """Return a term that every address of the network has; addresses outside may have it too."""
    coarser = max((length for length in PREFIXES[network.version] if length <= network.prefixlen), default=0)
    return f"ip:{network.supernet(new_prefix=coarser)}"


@lru_cache(maxsize=4_096)
def plain_address(text: str) -> IPv4Address | IPv6Address:
    """Return the address, an IPv4-mapped IPv6 address as IPv4; raise ValueError if it is not an address."""
    address = ip_address(text)
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def fold(text: str) -> str:
    """Return the text in the case and compatibility form that different spellings share."""
    return text.lower() if text.isascii() else normalize("NFKC", normalize("NFKC", text).casefold())


def words_of(text: str) -> list[str]:
    """Return the words of a text in order, folded; scripts without spaces as pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(fold(text[:1_000])):
        if _UNSPACED.search(word) and len(word) > 2:
            found.extend(word[start : start + 2] for start in range(len(word) - 1))
        else:
            found.append(word[:_WORD_LENGTH])
    return found[:MAX_WORDS]


def link_of(url: str) -> tuple[str, str]:
    """Return the host and the path of a URL in normal form; the path is "" for the root."""
    host = host_of(url if "://" in url[:40] or url.startswith("//") else f"http://{url}")
    rest = url.partition("://")[2] or url.lstrip("/")
    path = re.split(r"[?#]", rest, maxsplit=1)[0].partition("/")[2][:300]
    return host, "/" + unquote(path, errors="replace") if path else ""


def domain_and_parents(domain: str) -> Iterator[str]:
    """Yield a domain and its parents with at least two labels; an IP address has no parents."""
    yield domain
    labels = domain.split(".")
    if len(labels) > 2 and not labels[-1].isdigit() and not domain.startswith("["):
        for start in range(max(1, len(labels) - MAX_LABELS), len(labels) - 1):
            yield ".".join(labels[start:])


def _all_terms(request: FinishedRequest) -> Iterator[str]:
    summary, envelope = request.summary, request.envelope
    yield f"verdict:{request.judgement.verdict}"
    yield f"decision:{request.ruling.decision}"
    yield f"tenant:{request.tenant}"
    if request.campaign:
        yield from map(campaign_term, (request.campaign.own, request.campaign.shared))
    yield from _addresses("from", summary.from_address)
    yield from _addresses("from", envelope.sender or NULL_SENDER)
    yield from _networks(envelope.remote_address or "")
    yield from (f"tag:{tag}" for tag in request.tags)
    yield from word_terms("subject", summary.subject)
    yield from word_terms("name", summary.from_name)
    yield hash_term(summary.sha256)
    if summary.message_id:
        yield message_id_term(summary.message_id)
    yield from (hash_term(part.sha256) for part in summary.parts)
    for recipient in envelope.recipients:
        yield from _addresses("to", recipient)
    for host in summary.url_hosts:
        yield from _hosts(host)
    yield from (link_term(link.target) for link in summary.links[:MAX_LINKS] if link.host)


# Addresses and hosts recur: these caches save half of the work for a message.
@lru_cache(maxsize=8_192)
def _addresses(operator: str, address: str) -> tuple[str, ...]:
    if not address:
        return ()
    term = address_term(operator, address[:1_000])
    domain = term.rpartition("@")[2]
    if not domain or domain == term:
        return (term,)
    return (term, *(f"{operator}:{name}" for name in domain_and_parents(domain)))


@lru_cache(maxsize=8_192)
def _hosts(host: str) -> tuple[str, ...]:
    return tuple(f"url:{name}" for name in domain_and_parents(normalize_host(host)))


@lru_cache(maxsize=4_096)
def _networks(address: str) -> tuple[str, ...]:
    try:
        numeric = plain_address(address)
    except ValueError:
        return ()
    return tuple(f"ip:{ip_network((numeric, length), strict=False)}" for length in PREFIXES[numeric.version])
