"""URLs: a host, everything below it, one page, or everything below a path; and the keys that match a link.

Security: works on hostile text. Every step is linear, the number of keys is bounded, and a link never raises.
"""

import re
from typing import NamedTuple
from unicodedata import normalize
from urllib.parse import quote, unquote

from mailwarden.errors import InvalidEntry
from mailwarden.lists.kinds.domains import (
    DOMAIN_PATTERN,
    MAX_DOMAIN,
    check_domain_breadth,
    fold_domain,
    label_count,
    may_be_broad_domains,
    read_domain,
    wildcards_above,
)
from mailwarden.lists.kinds.kind import MAX_ENTRY, Kind, PlainForm, drop_invisible, refang
from mailwarden.lists.kinds.networks import pack_ip, write_ip

_NUMBER = re.compile(r"0x[0-9a-f]{0,16}|[0-9]{1,16}", re.ASCII)

MAX_URL = 8_192  # longer URLs of messages are cut there, after the host and the path steps that count
MAX_STEPS = 20  # of a path below which everything is meant
_SCHEME = re.compile(r"(h(?:tt|xx|\*\*)ps?|ftp|fxp):[/\\]*|[/\\]{2}", re.IGNORECASE)
_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+-]*:(?!\d)", re.IGNORECASE)
_NOT_WEB = re.compile(r"^\s*(?!h(?:tt|xx|\*\*)ps?:|ftp:|fxp:)[a-z][a-z0-9+-]*://", re.IGNORECASE)
_HIDDEN_SCHEME = re.compile(r"(h(?:tt|xx|\*\*)ps?|ftp|fxp) ?[\[({] ?:(?://)? ?[\])}] ?[/\\]*", re.IGNORECASE)
_HIDING = frozenset({"hxxp", "hxxps", "h**p", "h**ps", "fxp"})
_AUTHORITY_END = re.compile(r"(?<![\[({ ])[/?#](?![\])} ])")
_DEFAULT_PORTS = frozenset({80, 443})
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]")
_ODD_PATH = re.compile(r"[^A-Za-z0-9_.~!$&'()+,;=:@/-]|//|(?:^|/)\.")
_ODD = re.compile(r"%[0-9A-Fa-f]{2}|[^A-Za-z0-9_.~!$&'()+,;=:@/?-]")
# Most links need no folding. Links that this pattern does not match take the long way, with the same result.
_PLAIN = re.compile(
    r"h(?:tt|xx)ps?://((?:[a-z0-9_-]+\.)+[a-z][a-z0-9-]*)"
    r"(?:/((?:[A-Za-z0-9_~!$&'()+,;=:@-][A-Za-z0-9_.~!$&'()+,;=:@-]*(?:/(?=[^/.?#])|(?=/?(?:[?#]|$))))*)/?)?"
    r"(?:\?([A-Za-z0-9_.~!$&'()+,;=:@/?-]*))?(?:#[ -~]*)?"
)
# An entry whose host, path and query stay as they are.
_PLAIN_ENTRY = PlainForm(
    rf"(?:https?://)?{DOMAIN_PATTERN}(?:/[A-Za-z0-9_~-][A-Za-z0-9_.~-]*)*(?:\?[A-Za-z0-9_.~&=-]+)?",
    dropped=("https://", "http://"),
)
_QUERY, _PAGE, _BELOW_PATH, _HOST, _BELOW_HOST = (rank * 100_000 for rank in (5, 4, 3, 2, 1))


def read_ipv4_as_browsers_do(host: str) -> str | None:
    """Return the address with dots that a host of numbers leads to, or None where it is no address."""
    pieces = host.split(".", 4)
    if len(pieces) > 4 or not all(map(_NUMBER.fullmatch, pieces)):
        return None
    numbers = [_read_number(piece) for piece in pieces]
    *heads, last = numbers
    if any(number is None or number > 255 for number in heads) or last is None or last >= 256 ** (5 - len(numbers)):
        return None
    value = last
    for place, head in enumerate(heads):
        value += (head or 0) << (8 * (3 - place))
    return ".".join(str(value >> shift & 255) for shift in (24, 16, 8, 0))


def _read_number(piece: str) -> int | None:
    if piece.startswith("0x"):
        return int(piece[2:] or "0", 16)
    if len(piece) > 1 and piece[0] == "0":
        return int(piece, 8) if not set(piece) & {"8", "9"} else None
    return int(piece)


class Link(NamedTuple):
    """A URL taken apart, each piece in the form entries have; the path has no slash at either end."""

    host: str
    port: int
    path: str
    query: str


def read_url(text: str) -> str:
    """Return a URL entry in its one form, or raise InvalidEntry."""
    text = _refang_url(text)
    if plain := _PLAIN.fullmatch(text):
        host, path, query = plain.groups("")
        return _write(read_domain(host), 0, path, query)
    scheme = _SCHEME.match(text)
    if not scheme and _OTHER_SCHEME.match(text):
        raise InvalidEntry("A URL begins with its host, or with `http://`, `https://` or `ftp://`.")
    authority, path, query = _take_apart(text, scheme)
    if "@" in authority and not scheme:
        raise InvalidEntry("This is an e-mail address: it belongs into a list of senders.")
    if authority.startswith("*."):
        if path.strip("/*") or query or ":" in authority:
            raise InvalidEntry("After `*.` comes a host alone, without port and path.")
        return "*." + read_domain(authority[2:])
    below = not query and (path == "*" or path.endswith("/*"))
    if below:
        path = path[:-1]
    if "*" in path or "*" in query:
        raise InvalidEntry("A star stands for all that is below a host or a path: `*.host` or `host/path/*`.")
    host, port = _split_port(authority, scheme)
    if port < 0:
        raise InvalidEntry("After the host's colon comes a port from 1 to 65535.")
    path = _fold_path(path)
    if below and path:
        if path.count("/") >= MAX_STEPS:
            raise InvalidEntry(f"Before `/*` a path has at most {MAX_STEPS} steps.")
        path += "/*"
    return _write(_read_host(host), port, path, _fold_query(query))


def fold_url(url: str) -> Link | None:
    """Split a URL of a message, in the form of entries; None if it has no host."""
    url = url[:MAX_URL].strip()
    if (plain := _PLAIN.fullmatch(url)) and plain.end(1) - plain.start(1) <= MAX_DOMAIN:
        host, path, query = plain.groups("")
        return Link(host, 0, path, query)
    if not (url.isascii() and url.isprintable()):
        url = normalize("NFC", drop_invisible(url))
    scheme = _SCHEME.match(url)
    authority, path, query = _take_apart(url, scheme)
    host, port = _split_port(authority, scheme)
    host = _fold_host(host)
    if not host or len(host) > MAX_DOMAIN:
        return None
    return Link(host, max(port, 0), _fold_path(path), _fold_query(query))


def candidates_for_url(url: str) -> list[str]:
    """Return the keys of the kind `url`, most specific first.

    A link matches its page with and without its query, each path above it, its host, and each `*.` above its host.
    An entry without a port matches every port; a page matches with any query, scheme and fragment.
    """
    # An entry names a host, however a link gets there: `file://` and `smb://` are looked up as `http://`.
    link = fold_url(_NOT_WEB.sub("http://", url, count=1))
    if link is None:
        return []
    host, port, path, query = link
    tails = _tails(path, query)
    if port:
        keys = [f"{site}{tail}" for tail in tails for site in (f"{host}:{port}", host)]
    else:
        keys = [host + tail for tail in tails]
    if not host.startswith("[") and not host.rpartition(".")[2][:1].isdigit():
        keys.extend(wildcards_above(host))
    return keys if len(url) < MAX_ENTRY // 3 else [key for key in keys if len(key) <= MAX_ENTRY]


def _tails(path: str, query: str) -> list[str]:
    """Return the entry parts after the host that match this path and query, most specific first."""
    page = "/" + path if path else ""
    tails = [f"{page}?{query}"] if query else []
    if page:
        tails.append(page)
        above = page
        if page.count("/") > MAX_STEPS:
            above = "/".join(page.split("/", MAX_STEPS + 1)[: MAX_STEPS + 1])
        while above:
            tails.append(above + "/*")
            above = above[: above.rfind("/")]
    tails.append("")
    return tails


def url_specificity(entry: str) -> int:
    """Order as the candidates are: query, page, longer path, host, closer wildcard; a port before none."""
    if entry.startswith("*."):
        return _BELOW_HOST + label_count(entry)
    site, slash, path = entry.partition("/")
    named_port = ":" in site.rpartition("]")[2]
    if "?" in entry:
        return _QUERY + named_port
    if not slash:
        return _HOST + named_port
    return (_BELOW_PATH + path.count("/") * 2 if path.endswith("/*") else _PAGE) + named_port


def check_url_breadth(entry: str, *, lets_through: bool) -> None:
    """Accept every page; reject a host that is too broad."""
    host = entry.partition(":")[0]
    if "/" not in entry and "?" not in entry and not entry.startswith("["):
        check_domain_breadth(host, lets_through=lets_through)


def _refang_url(text: str) -> str:
    """Make a defanged URL whole. Brackets in the path of a URL whose host is whole are its own."""
    if hidden := _HIDDEN_SCHEME.match(text):
        return f"{hidden[1]}://{refang(text[hidden.end() :])}"
    whole = refang(text)
    if whole == text:
        return text
    scheme = _SCHEME.match(text)
    if scheme and scheme[1] and scheme[1].lower() in _HIDING:
        return whole
    end = _AUTHORITY_END.search(text, scheme.end() if scheme else 0)
    head = text[: end.start()] if end else text
    return whole if refang(head) != head else text


def _take_apart(url: str, scheme: re.Match[str] | None) -> tuple[str, str, str]:
    bare_url = url[scheme.end() :] if scheme else url
    bare_url = bare_url.partition("#")[0]
    bare_url, _, query = bare_url.partition("?")
    if "\\" in bare_url:
        bare_url = bare_url.replace("\\", "/")
    authority, _, path = bare_url.partition("/")
    return authority, path, query


def _split_port(authority: str, scheme: re.Match[str] | None) -> tuple[str, int]:
    """Return the host as written and the port: 0 for 80, 443 and none, in any scheme; -1 if invalid."""
    if "@" in authority:
        authority = authority.rpartition("@")[2]
    host, colon, digits = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        return authority, 0
    if not digits:
        return host, 0
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65_536):
        return host, -1
    port = int(digits)
    default = port in _DEFAULT_PORTS or (port == 21 and scheme is not None and scheme[0][:1] in "fF")
    return host, 0 if default else port


def _read_host(host: str) -> str:
    folded = _fold_host(host)
    if folded.startswith("[") or (":" not in folded and pack_ip(folded) is not None):
        return folded
    return read_domain(folded)


def _fold_host(host: str) -> str:
    """Return a host as browsers see it: an IP address in any spelling as that address, a domain as A-labels."""
    if "%" in host:
        host = unquote(host)
    if host.startswith("["):
        packed = pack_ip(host[1:-1]) if host.endswith("]") else None
        if packed is None:
            return ""
        return f"[{write_ip(packed)}]" if len(packed) == 16 else write_ip(packed)
    domain = fold_domain(host)
    if domain and (domain[-1].isdigit() or "0x" in domain):
        return read_ipv4_as_browsers_do(domain) or domain
    return domain


def _fold_path(path: str) -> str:
    """Return a path with needless escapes undone, needed ones made, and empty and dotted steps taken."""
    if not _ODD_PATH.search(path):
        return path.strip("/")
    steps: list[str] = []
    for step in _ODD.sub(_escape, path.replace("?", "%3F")).split("/"):
        if step == "..":
            del steps[-1:]
        elif step and step != ".":
            steps.append(step)
    return "/".join(steps)


def _fold_query(query: str) -> str:
    return _ODD.sub(_escape, query) if query else ""


def _escape(character_match: re.Match[str]) -> str:
    character = character_match.group()
    if len(character) == 1:
        return quote(character, safe="", errors="replace")
    plain = chr(int(character[1:], 16))
    return plain if _UNRESERVED.fullmatch(plain) else character.upper()


def _write(host: str, port: int, path: str, query: str) -> str:
    site = f"{host}:{port}" if port else host
    page = f"{site}/{path}" if path else site
    return f"{page}?{query}" if query else page


URL = Kind(
    name="url",
    form="A host, `*.host`, host/path for one page, or host/path/* for all pages below; the scheme is ignored.",
    examples=(
        ("login.example.com", "login.example.com"),
        ("hxxps://login[.]example[.]com/", "login.example.com"),
        ("*.example.com", "*.example.com"),
        ("https://user:secret@Example.com:443/Account/Login#top", "example.com/Account/Login"),
        ("example.com/account/*", "example.com/account/*"),
        ("example.com:8080/a/../b/", "example.com:8080/b"),
        ("http://example.com/search?q=1", "example.com/search?q=1"),
        ("http://192.0.2.7/pay", "192.0.2.7/pay"),
    ),
    read=read_url,
    specificity=url_specificity,
    check_breadth=check_url_breadth,
    plain=_PLAIN_ENTRY,
    may_be_broad=may_be_broad_domains,
)
