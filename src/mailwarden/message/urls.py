"""URLs in text: found in linear time, and brought to the form in which hosts are compared.

Security: works on hostile text; bounded by number and length, and it never raises.
"""

import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote

import idna
from publicsuffixlist import PSLFILE, PublicSuffixList, encode_idn

from mailwarden.message.limits import LIMITS, Limits

_URL = re.compile(r"(?:https?|ftp)://[^\s<>\"'`\\{}|^\x00-\x20]{1,8192}|\bwww\.[^\s<>\"'`\\{}|^/]{3,255}[^\s<>\"']{0,4096}",
                  re.IGNORECASE)  # fmt: skip
# A name with dots, where nothing beside it makes it something else: an address, a path, a longer word.
_BARE = re.compile(
    r"(?<![\w@./:=&%+-])((?:[\w-]{1,63}\.){1,30}(?:xn--[a-z0-9-]{1,59}|[^\W\d_]{2,63}))(?![\w@-])((?::\d{1,5})?(?:[/?#][^\s<>\"'`\\{}|^]{0,2000})?)"
)
_BARE_TEXT = 524_288  # characters of a text that are looked through for such names
_HINT = re.compile(r"://|www\.", re.IGNORECASE)
_SCHEME = re.compile(r"\s*([a-z][a-z0-9+.-]{0,30}):", re.IGNORECASE)
_AUTHORITY_END = re.compile(r"[/?#\\]")
_DROPPED = {ord(sign): None for sign in "\t\r\n\u00ad\u200b\u200c\u200d\u2060\ufeff"}
_TO_DROP = re.compile(f"[{''.join(map(chr, _DROPPED))}]")
_REMEMBERED = 1_000  # characters of a URL whose host is kept
_WEB_SCHEME = re.compile(r"^(h)tt(ps?)$", re.IGNORECASE)
_WEB = frozenset({"http", "https", "ftp"})


def find_urls(text: str, limits: Limits = LIMITS) -> tuple[str, ...]:
    """Find the URLs of a text in order, each once; trailing punctuation of the sentence is no part of them."""
    if not _HINT.search(text):
        return ()
    found: dict[str, None] = {}
    for match in _URL.finditer(text):
        found[_trim(match.group())] = None
        if len(found) >= limits.urls:
            break
    return tuple(found)


def find_bare_links(text: str, limits: Limits = LIMITS) -> tuple[str, ...]:
    """Find what readers' programs make links of though no scheme stands before it, such as `shop.example.com/pay`."""
    found: dict[str, None] = {}
    for match in _BARE.finditer(_URL.sub(" ", text[:_BARE_TEXT])):
        if match[1].rpartition(".")[2].lower() in _top_names():
            found[_trim(f"http://{match[1]}{match[2]}")] = None
            if len(found) >= limits.urls:
                break
    return tuple(found)


def host_of(url: str) -> str:
    """Return the host of a URL as browsers see it: lower case A-labels, without userinfo, port and trailing dot."""
    if len(url) <= _REMEMBERED:
        return _known_host(url)
    return _read_host(url[:8_192])


@lru_cache(maxsize=1_024)  # many look at the same link one after the other
def _known_host(url: str) -> str:
    return _read_host(url)


def _read_host(url: str) -> str:
    url = (url.translate(_DROPPED) if _TO_DROP.search(url) else url).strip()
    scheme = _SCHEME.match(url)
    if scheme and scheme[1].lower() in _WEB:
        rest = url[scheme.end() :].lstrip("/\\")
    elif url.startswith(("//", "\\\\")):
        rest = url.lstrip("/\\")
    elif url[:4].lower() == "www.":
        rest = url
    else:
        return ""
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0].rpartition("@")[2]
    if authority.startswith("["):
        return authority.partition("]")[0].lower() + "]"
    return normalize_host(authority.partition(":")[0])


def defang(url: str) -> str:
    """Return a link or a host so that no reader and no program takes it for one to follow."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    authority = _AUTHORITY_END.split(rest, maxsplit=1)[0]
    plain = authority.replace(".", "[.]").replace("@", "[@]")
    return _WEB_SCHEME.sub(r"\1xx\2", scheme) + separator + plain + rest[len(authority) :]


@lru_cache(maxsize=4_096)
def normalize_host(host: str) -> str:
    """Bring a host to lower-case A-labels; what IDNA refuses is kept in lower case as it is."""
    host = (unquote(host) if "%" in host else host).strip().strip(".").lower()[:1_000]
    if host.isascii():
        return host if len(host) <= 253 else ""
    try:
        return idna.encode(host[:253], uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        return host[:253].replace("\u3002", ".").replace("\uff0e", ".")


@lru_cache(maxsize=1)
def _suffixes() -> PublicSuffixList:
    return PublicSuffixList()


@lru_cache(maxsize=4_096)
def registrable_domain(host: str) -> str:
    """Return the domain that somebody registered, such as `shop.example.co.uk` -> `example.co.uk`, or ""."""
    if not host or host.startswith("[") or host.replace(".", "").isdigit():
        return ""
    found = _suffixes().privatesuffix(host)
    return str(found) if found else ""


def has_known_ending(host: str) -> bool:
    """Tell whether a name ends as names of the public Internet do."""
    return _suffixes().publicsuffix(host, accept_unknown=False) is not None


def is_public_suffix(domain: str) -> bool:
    """Tell whether a domain is one under which many owners register, such as `co.uk`; unknown names are none."""
    rules = _suffix_rules()
    if domain in rules or f"*.{domain}" in rules:
        return f"!{domain}" not in rules
    return f"*.{domain.partition('.')[2]}" in rules and f"!{domain}" not in rules


@lru_cache(maxsize=1)
def _suffix_rules() -> frozenset[str]:
    """Return the lines of the public suffix list: asked of one whole name, they answer in a sixth of the time."""
    return frozenset(map(encode_idn, _suffix_lines()))


@lru_cache(maxsize=1)
def _top_names() -> frozenset[str]:
    """Return what names of the public Internet end in, in the letters that people see and as A-labels."""
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
