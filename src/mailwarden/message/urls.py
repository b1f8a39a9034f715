"""URLs in text: found in linear time, and normalised for comparison.

Security: works on hostile text; bounded by number and length, and it never raises.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from heapq import merge
from pathlib import Path
from urllib.parse import unquote

import idna
from publicsuffixlist import PSLFILE, PublicSuffixList, encode_idn

from mailwarden.message.coverage import Coverage
from mailwarden.model.place import WHOLE_MESSAGE, Place

_URL = re.compile(
    r"(?:https?|ftp)://[^\s<>\"'`\\{}|^\x00-\x20]+|\bwww\.[^\s<>\"'`\\{}|^/]{3,255}[^\s<>\"']*", re.IGNORECASE
)
# The last label of a name and the character before its dot; the name is looked at only where the label is one.
_LAST_LABEL = re.compile(
    r"[.\u3002\uff0e\uff61](?<=[\w-].)(xn--[a-z0-9-]{1,59}|[^\W\d_]{2,63})(?![\w@-]|\.\w)", re.IGNORECASE
)
_NAME_BACKWARDS = re.compile(r"[\w.\u3002\uff0e\uff61-]{1,253}")
_TAIL = re.compile(r"(?::\d{1,5})?(?:[/?#][^\s<>\"'`\\{}|^]*)?")
_BARE_ADDRESS = re.compile(r"(?<![\w.@/:=&%+-])(?:\d{1,3}\.){3}\d{1,3}(?:(?::\d{1,5})?/[^\s<>\"'`\\{}|^]*|:\d{2,5}\b)")
_FOUR_NUMBERS = re.compile(r"\.\d{1,3}\.\d{1,3}\.\d")  # occurs in every such address, and is faster to find
_NO_NAME_AFTER = frozenset("@/:=&%+\\")  # characters before a name that is part of something else
# A URL in angle brackets may be broken over lines (RFC 3986, appendix C).
_ANGLED = re.compile(r"<\s*(?:URL:)?\s*((?:https?|ftp)://[^<>]{1,4096}?)\s*>", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
# Every URL in a text has one of these, and both are found quickly.
_COLON = re.compile(r"://(?<=[pPsS\u017f]://)")
_WWW = re.compile(r"[wW][wW]{2}\.")
_SCHEME_BEFORE = re.compile(r"(?:https?|ftp)$", re.IGNORECASE)
_SCHEME_LENGTH = 5  # of `https`
_SCHEME = re.compile(r"\s*([a-z][a-z0-9+.-]{0,30}):", re.IGNORECASE)
# Most addresses: nothing in them is dropped, decoded or lowered before the host ends.
_PLAIN_HOST = re.compile(r"https?://([a-z0-9-]+(?:\.[a-z0-9-]+)*)(?=[/?#]|\Z)")
_LONGEST_NAME = 253  # not inspection: no name is longer (RFC 1035)
_AUTHORITY_END = re.compile(r"[/?#\\]")
_DROPPED = {ord(character): None for character in "\t\r\n\u00ad\u200b\u200c\u200d\u2060\ufeff"}
_TO_DROP = re.compile(f"[{''.join(map(chr, _DROPPED))}]")
_AROUND = "".join(map(chr, range(0x21)))  # characters that browsers strip from both ends of an address
_REMEMBERED = 1_000  # characters of a URL whose host is kept
_WEB_SCHEME = re.compile(r"^(h)tt(ps?)$", re.IGNORECASE)
_WEB = frozenset({"http", "https", "ftp"})
# Schemes without a host, even after two slashes.
_HOSTLESS = frozenset({"javascript", "vbscript", "data", "cid", "mid", "about", "blob", "mailto", "tel", "sms", "urn"})


def _start_of(match: re.Match[str]) -> int:
    return match.start()


def find_urls(text: str, coverage: Coverage | None = None, place: Place = WHOLE_MESSAGE) -> tuple[str, ...]:
    """Find the URLs of a text in order, each once; trailing punctuation of the sentence is no part of them."""
    if not (_COLON.search(text) or _WWW.search(text)):
        return ()
    coverage = coverage or Coverage()
    found: dict[str, None] = {}
    for url in coverage.first(_written_urls(text), "urls_written", place):
        found[_trim(coverage.cut(url, "url", place))] = None
    if "<" in text:
        for match in coverage.first(_ANGLED.finditer(text), "urls_written", place):
            if _SPACE.search(match[1]):
                found[_SPACE.sub("", match[1])] = None
    return tuple(coverage.first(found, "urls", place))


def _written_urls(text: str) -> Iterator[str]:
    """Yield what `_URL.finditer` finds: a search at the marks alone is several times as fast."""
    end = 0
    for mark in merge(_COLON.finditer(text), _WWW.finditer(text), key=_start_of):
        start = mark.start()
        if mark[0] == "://":
            scheme = _SCHEME_BEFORE.search(text[max(start - _SCHEME_LENGTH, end, 0) : start])
            if scheme is None:
                continue
            start -= len(scheme[0])
        if start >= end and (match := _URL.match(text, start)):
            end = match.end()
            yield match[0]


def find_bare_links(text: str, coverage: Coverage | None = None, place: Place = WHOLE_MESSAGE) -> tuple[str, ...]:
    """Find links without a scheme that mail clients make clickable, such as `shop.example.com/pay`."""
    coverage = coverage or Coverage()
    return tuple(coverage.first(dict.fromkeys(_bare_links(text, coverage, place)), "urls", place))


def _bare_links(text: str, coverage: Coverage, place: Place) -> Iterator[str]:
    names = _top_names()
    for match in _last_labels(text):
        if match[1].lower() not in names:
            continue
        dot = match.start()
        before = _NAME_BACKWARDS.match(text[max(dot - 253, 0) : dot][::-1])
        start = dot - (before.end() if before else 1)
        name = text[start : match.end()].lstrip(".-_\u3002\uff0e\uff61")
        if not _is_bare(text, start, name):
            continue
        tail = _TAIL.match(text, match.end())
        yield _trim(coverage.cut(f"http://{name}{tail.group() if tail else ''}", "url", place))
    for match in _BARE_ADDRESS.finditer(text) if _FOUR_NUMBERS.search(text) else ():
        yield _trim(coverage.cut(f"http://{match.group()}", "url", place))


def _last_labels(text: str) -> Iterator[re.Match[str]]:
    """Yield the last labels of names; a label begins no other name."""
    end = 0
    for match in _LAST_LABEL.finditer(text):
        if match.start() > end or not end:
            end = match.end()
            yield match


def _is_bare(text: str, start: int, name: str) -> bool:
    """Return whether a name stands alone, and is not part of an address, a path or a longer word."""
    if not name or ".." in name or name[:4].lower() == "www.":
        return False
    return not (start and text[start - 1] in _NO_NAME_AFTER)


def host_of(url: str) -> str:
    """Return the host of a URL as browsers see it: lower case A-labels, without userinfo, port and trailing dot."""
    if len(url) <= _REMEMBERED:
        return _known_host(url)
    return _read_host(url)


@lru_cache(maxsize=4_096)  # many look at the same link one after the other
def _known_host(url: str) -> str:
    return _read_host(url)


def _read_host(url: str) -> str:
    plain = _PLAIN_HOST.match(url)
    if plain and len(plain[1]) <= _LONGEST_NAME:
        return plain[1]
    url = (url.translate(_DROPPED) if _TO_DROP.search(url) else url).strip(_AROUND).strip()
    scheme = _SCHEME.match(url)
    if scheme and scheme[1].lower() in _WEB:
        rest = url[scheme.end() :].lstrip("/\\")
    elif scheme and url.startswith("//", scheme.end()) and scheme[1].lower() not in _HOSTLESS:
        rest = url[scheme.end() :].lstrip("/\\")  # such as smb, webcal, intent: another program goes to that host
    elif url[:2] in ("//", "\\\\", "/\\", "\\/"):
        rest = url.lstrip("/\\")
    elif url[:4].lower() == "www.":
        rest = url
    else:
        return ""
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0].rpartition("@")[2]
    if authority.startswith("["):
        return authority.partition("]")[0].lower() + "]"
    return normalize_host(authority.partition(":")[0])


def addresses_inside(url: str) -> tuple[str, ...]:
    """Return the web addresses inside a link of another scheme, such as `microsoft-edge:https://...`."""
    scheme = _SCHEME.match(url)
    if scheme is None or scheme[1].lower() in _WEB or scheme[1].lower() in ("data", "mailto"):
        return ()
    return find_urls(unquote(url) if "%" in url else url)


def defang(url: str) -> str:
    """Return a defanged link or host, which no client makes clickable."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0]
    plain = authority.replace(".", "[.]").replace("@", "[@]")
    return _WEB_SCHEME.sub(r"\1xx\2", scheme) + separator + plain + rest[len(authority) :]


@lru_cache(maxsize=4_096)
def normalize_host(host: str) -> str:
    """Bring a host to lower-case A-labels; a host that IDNA rejects is only lowered."""
    host = (
        (unquote(host) if "%" in host else host).strip().strip(".").lower()[:1_000]
    )  # not inspection: no name is longer (RFC 1035)
    if host.isascii():
        return host if len(host) <= 253 else ""
    try:
        return idna.encode(host[:253], uts46=True).decode("ascii")  # not inspection: no name is longer (RFC 1035)
    except (idna.IDNAError, UnicodeError):
        return host[:253].replace("\u3002", ".").replace("\uff0e", ".")  # not inspection: no name is longer (RFC 1035)


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


def written_domain(host: str) -> str:
    """Return the registrable domain of a host as a message writes it, or ""."""
    return registrable_domain(normalize_host(host))


@lru_cache(maxsize=4_096)
def registrable_domain(host: str) -> str:
    """Return the registrable domain, such as `shop.example.co.uk` -> `example.co.uk`, or ""."""
    if not host or host.startswith("[") or host.replace(".", "").isdigit():
        return ""
    found = _suffixes().privatesuffix(host)
    return str(found) if found else ""


def has_known_ending(host: str) -> bool:
    """Return whether a name ends in a public suffix."""
    return _suffixes().publicsuffix(host, accept_unknown=False) is not None


def is_public_suffix(domain: str) -> bool:
    """Return whether a domain is a public suffix, such as `co.uk`; unknown names are not."""
    rules = _suffix_rules()
    if domain in rules or f"*.{domain}" in rules:
        return f"!{domain}" not in rules
    return f"*.{domain.partition('.')[2]}" in rules and f"!{domain}" not in rules


def may_be_public_suffixes(names: Sequence[str]) -> bool:
    """Return whether one of many names may be a public suffix; False is certain and cheap."""
    exact, above = _suffix_names()
    return not (exact.isdisjoint(names) and above.isdisjoint([name.partition(".")[2] for name in names]))


@lru_cache(maxsize=1)
def _suffix_names() -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a rule has, and those of them below which every name is a public suffix."""
    above = frozenset(rule[2:] for rule in _suffix_rules() if rule.startswith("*."))
    return _suffix_rules() | above, above


@lru_cache(maxsize=1)
def _suffix_rules() -> frozenset[str]:
    """Return the lines of the public suffix list: asked of one whole name, they answer in a sixth of the time."""
    return frozenset(map(encode_idn, _suffix_lines()))


@lru_cache(maxsize=1)
def _top_names() -> frozenset[str]:
    """Return the public suffixes as U-labels and as A-labels."""
    names = {line.rpartition(".")[2] for line in _suffix_lines()}
    return frozenset((*names, *map(encode_idn, names)))


def _suffix_lines() -> list[str]:
    lines = Path(PSLFILE).read_text("utf-8").splitlines()
    return [line.split()[0] for line in lines if line.strip() and not line.startswith("//")]


def _trim(url: str) -> str:
    url = url.rstrip(".,;:!?*_~")
    while url.endswith((")", "]", ">")) and url.count("(") < url.count(")") + url.count("]"):
        shorter = url[:-1].rstrip(".,;:!?")
        if url.endswith("]") and "[" in url:
            break
        url = shorter
    return url
