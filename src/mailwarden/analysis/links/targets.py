"""Finds the real target of a link, and what is suspicious about it, its sender and its recipients.

Security: works on hostile addresses; every pattern is linear and bounded, an address grows shorter with every step, and
it never raises.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from msgspec import Struct

from mailwarden.analysis.links.companies import same_company
from mailwarden.analysis.links.fetched_files import (
    fetched_name,
    is_archive,
    is_installer,
    is_program,
    is_remote_control,
)
from mailwarden.analysis.links.hosts import HostKind, false_name, has_cheap_ending, kind_of, public_ip
from mailwarden.analysis.links.recipient_marks import RecipientMarks
from mailwarden.analysis.shipped_data import read_shipped
from mailwarden.analysis.view import View
from mailwarden.files.file_types import has_double_ending
from mailwarden.message.addresses import Address
from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import host_of, registrable_domain
from mailwarden.model.evidence import Fact, Finding
from mailwarden.model.place import Place, area

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

# Shares of a known organisation where every user publishes files.
_SHARES = frozenset(
    {"dropbox.com", "drive.google.com", "docs.google.com", "onedrive.live.com", "1drv.ms", "box.com", "wetransfer.com",
     "raw.githubusercontent.com", "bitbucket.org"}
)  # fmt: skip

Noticed = tuple[str, dict[str, Fact]]

_TELLING = 5  # letters of a name that hardly occurs by chance
_REMEMBERED = 1_000  # characters of an address whose destination is kept for the next analyzer
_TRUSTED = frozenset({HostKind.KNOWN, HostKind.SENDING, HostKind.GATEWAY})
_RENTED = {
    HostKind.SHORTENER: "shortener",
    HostKind.HOSTING: "free-hosting",
    HostKind.STORAGE: "object-storage",
    HostKind.DYNAMIC: "dynamic-dns",
    HostKind.FORM: "form-service",
}
# Attackers misuse redirects of known organisations; click counters of sending services are normal.
_REDIRECTIONS = {HostKind.KNOWN: "open-redirect", HostKind.SENDING: ""}
_AUTHORITY = re.compile(r"\s*[a-z]{1,10}:[/\\]{0,9}([^/\\?#]{0,1000})", re.IGNORECASE)
_PORT = re.compile(r":(\d{1,5})$")
_USUAL_PORTS = frozenset({"80", "443", "21", "8080", "8443"})
_OPAQUE = re.compile(r"[A-Za-z0-9+=]{24,2000}")
_NUMBERS = re.compile(r"(?:/[0-9]{1,12}(?:_[a-z]{2})?){4}")
_AFFILIATE = re.compile(r"[?&](?:oc|aff_?id|affiliate_?id|offer_?id|s1|s2|sub1|sub_?id1?|aff_sub)=", re.IGNORECASE)
_HIDDEN_LETTER = re.compile(r"%(?:3[0-9]|[46][1-9a-f]|[57][0-9a])", re.IGNORECASE)
_SITE_INSIDES = re.compile(
    r"/(?:wp-content|wp-includes|wp-admin|wp-json|\.well-known|plugins|cgi-sys|vendor/phpunit)/", re.IGNORECASE
)
_NUMBERED = re.compile(r"(?:^|[.-])\d{1,3}[.-]\d{1,3}[.-]\d{1,3}[.-]\d{1,3}(?=[.-])|^(?:vps|vmi|srv|ip|host)-?\d{3,}")
# Device-login pages: a typed code logs another machine in.
_DEVICE_LOGIN = re.compile(
    r"https?://(?:(?:www\.|login\.)?microsoft\.com/device(?:login)?\b|login\.microsoftonline\.com/[\w.-]{1,60}/oauth2/"
    r"(?:v2\.0/)?deviceauth|aka\.ms/devicelogin|(?:www\.)?google\.com/device\b|github\.com/login/device\b)",
    re.IGNORECASE,
)
# Redirectors of known organisations whose addresses do not contain the target.
_BLIND = re.compile(
    r"https?://(?:(?:[a-z]{2,3}\.)?linkedin\.com/slink\?|(?:www\.)?baidu\.com/link\?|share\.google/|search\.app/)",
    re.IGNORECASE,
)
_VOWELS = frozenset("aeiouy0123456789-")


class LinkWords(Struct, frozen=True):
    buttons: re.Pattern[str]
    calls: re.Pattern[str]
    goodbyes: re.Pattern[str]
    paths: re.Pattern[str]
    hosts: re.Pattern[str]
    kits: re.Pattern[str]


class _File(Struct, frozen=True):
    buttons: dict[str, str]
    calls: str
    goodbyes: str
    paths: str
    hosts: str
    kits: tuple[str, ...]


@lru_cache(maxsize=1)
def load_link_words() -> LinkWords:
    read = read_shipped("links/words.yml", _File)
    return LinkWords(
        buttons=_pattern(word for words in read.buttons.values() for word in _words(words)),
        calls=_pattern(_words(read.calls)),
        goodbyes=_pattern(_words(read.goodbyes)),
        paths=_whole(_words(read.paths)),
        hosts=_whole(_words(read.hosts)),
        kits=re.compile("|".join(read.kits)),
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in (part.strip() for part in text.split("|")) if word)


def _pattern(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for stems: each begins a word, where its script has words."""
    stems = sorted(set(words), key=lambda word: (-len(word), word))
    spaced = "|".join(re.escape(word) for word in stems if word < "\u3000")
    unspaced = "|".join(re.escape(word) for word in stems if word >= "\u3000")
    return re.compile(rf"(?<!\w)(?:{spaced})|(?:{unspaced})")


def _whole(words: Iterable[str]) -> re.Pattern[str]:
    """Return a pattern for whole words: `login` and `my-login`, never `blogging`."""
    return re.compile(rf"(?<![a-z])(?:{'|'.join(map(re.escape, words))})(?![a-z])")


class Parties(Struct, frozen=True):
    """The sender and the recipients of a message: their domains, and the forms of a recipient's address in a link."""

    own: frozenset[str]
    marks: RecipientMarks
    home: frozenset[str] = frozenset()  # those of the recipients alone
    sender_names: frozenset[str] = frozenset()  # the sender's names: a site of that name under any TLD is its own
    sender: str = ""  # the registered domain in From

    coverage: Coverage | None = None

    def is_third_party(self, host: str) -> bool:
        """Return whether a host belongs neither to the sender or recipients nor to a well-known organisation."""
        kind = kind_of(host)
        if kind in _RENTED:
            return _domain(host) not in self.own
        domain = registrable_domain(host)
        if not domain:
            return public_ip(host)
        if domain in self.own or domain.partition(".")[0] in self.sender_names or same_company(self.sender, domain):
            return False
        return kind not in _TRUSTED or bool(_NUMBERED.search(host))

    def is_recipients(self, host: str) -> bool:
        return _domain(host) in self.home


_PARTIES: WeakKeyDictionary[View, tuple[tuple[str, ...], Parties]] = WeakKeyDictionary()


def parties_of(view: View) -> Parties:
    """Return sender and recipients; several analyzers ask for those of one message."""
    recipients = view.recipients  # each of them depends on these
    known = _PARTIES.get(view)
    if known is None or known[0] != recipients:
        home = _domains(recipients)
        sender = _domains((view.sender.address,))
        names = _sender_names(view.sender)
        marks = RecipientMarks(recipients)
        known = recipients, Parties(sender | home, marks, home, names, next(iter(sender), ""), view.coverage)
        _PARTIES[view] = known
    return known[1]


def _sender_names(sender: Address) -> frozenset[str]:
    """Return the sender's names as labels of a domain; short names are left out."""
    organisation = registrable_domain(sender.domain.lower()).partition(".")[0]
    shown = "".join(character for character in sender.name.lower() if character.isalnum())
    return frozenset(name for name in (organisation, shown) if len(name) >= _TELLING)


def _domains(addresses: Iterable[str]) -> frozenset[str]:
    found = (registrable_domain(address.rpartition("@")[2].lower()) for address in addresses)
    return frozenset(domain for domain in found if domain)


def destination(url: str) -> str:
    """Return the real target of a link, behind gateways and open redirects of known organisations."""
    return _known_destination(url) if len(url) <= _REMEMBERED else _find_destination(url)


@lru_cache(maxsize=1_024)  # several analyzers ask for the same link
def _known_destination(url: str) -> str:
    return _find_destination(url)


def _find_destination(url: str) -> str:
    url = unwrap(url)
    further = follow(url)
    while kind_of(host_of(url)) is HostKind.KNOWN and (inner := next(further, "")):
        url = inner
    return url


def look_at_address(url: str, parties: Parties) -> Iterator[Noticed]:
    """Yield suspicious properties of a link and of every address that it redirects through."""
    real = unwrap(url)
    chain = (real, *follow(real, parties.coverage))
    for position, address in enumerate(chain):
        host = host_of(address)
        if not host:
            continue
        over = host_of(chain[position - 1]) if position else ""
        if over and parties.is_third_party(host) and (what := _REDIRECTIONS.get(kind_of(over), "redirect")):
            yield what, {"over": over, "host": host}
        yield from _look_at_host(address, host, parties)
        if parties.is_third_party(host):
            yield from _look_at_stranger(address, host, parties)


def _look_at_host(url: str, host: str, parties: Parties) -> Iterator[Noticed]:
    if public_ip(host):
        yield "ip-host", {"host": host}
    if name := false_name(url):
        yield "userinfo", {"userinfo": name[:60], "host": host}
    if (what := _RENTED.get(kind_of(host))) and _domain(host) not in parties.own:
        yield what, {"host": host}
    elif host == "docs.google.com" and "/forms/" in url:
        yield "form-service", {"host": host}
    if name := fetched_name(url):
        yield from _look_at_file(name, host, parties)
    if _DEVICE_LOGIN.match(url):
        yield "device-code-login", {"host": host}
    if _BLIND.match(url) and _domain(host) not in parties.own:
        yield "opaque-redirect", {"host": host}
    if load_link_words().kits.search(url):
        yield "spam-kit", {"host": host}
    if len(_HIDDEN_LETTER.findall(url)) >= 6:
        yield "percent-encoded-letters", {"host": host}


def _look_at_file(name: str, host: str, parties: Parties) -> Iterator[Noticed]:
    base_facts: dict[str, Fact] = {"file": name, "host": host}
    if _domain(host) not in parties.own and is_program(name):
        yield "program-link", base_facts
        if has_double_ending(name):
            yield "program-type-mismatch", base_facts
        if is_remote_control(name):
            yield "remote-access-tool", base_facts
    if parties.is_third_party(host) or _is_share(host):
        if is_program(name) or is_installer(name):
            yield "unrelated-program", base_facts
        elif is_archive(name):
            yield "unrelated-archive", base_facts


def _is_share(host: str) -> bool:
    return any(host == share or host.endswith(f".{share}") for share in _SHARES)


def _look_at_stranger(url: str, host: str, parties: Parties) -> Iterator[Noticed]:
    base_facts: dict[str, Fact] = {"host": host}
    if has_cheap_ending(host):
        yield "risky-tld", base_facts
    if how := parties.marks.find(url):
        yield "recipient-address", {"how": how, **base_facts}
    authority = _AUTHORITY.match(url)
    port = _PORT.search(authority[1]) if authority else None
    if port and port[1] not in _USUAL_PORTS:
        yield "unusual-port", {"port": port[1], **base_facts}
    tail = url[authority.end() :] if authority else ""
    words = load_link_words()
    if word := words.paths.search(unquote(tail).lower()):
        yield "login-path", {"word": word.group(), **base_facts}
    domain = _domain(host)
    if word := words.hosts.search(host):
        yield "login-host", {"word": word.group(), **base_facts}
    if is_counted(tail):
        yield "click-tracking", base_facts
    if _SITE_INSIDES.search(tail):
        yield "site-internal-path", base_facts
    if _NUMBERED.search(host) and not public_ip(host):
        yield "numbered-host", base_facts
    names = (domain.partition(".")[0], *host.removesuffix(domain).split("."))
    if kind_of(host) is not HostKind.STORAGE and any(
        map(is_random, names)
    ):  # object stores use random labels for their customers
        yield "random-host", base_facts
    if host.removesuffix(domain).count(".") >= 4:
        yield "deep-subdomain", base_facts


def is_counted(tail: str) -> bool:
    """Return whether an address identifies the clicker: a long token, a row of numbers, an affiliate parameter."""
    return bool(_NUMBERS.search(tail) or _AFFILIATE.search(tail)) or any(
        _is_mixed(run) for run in _OPAQUE.findall(tail)
    )


def _is_mixed(run: str) -> bool:
    return all(sum(map(test, run)) >= 3 for test in (str.isdigit, str.isupper, str.islower))


def is_random(label: str) -> bool:
    """Return whether a label of a host is random: many consonants in a row, or letters and digits mixed."""
    if len(label) < 8 or label.startswith("xn--"):
        return False
    changes = sum(left.isdigit() != right.isdigit() for left, right in pairwise(label) if "-" not in (left, right))
    if changes >= 4:
        return True
    run = longest = 0
    for character in label:
        run = 0 if character in _VOWELS else run + 1
        longest = max(longest, run)
    return longest >= 7


def merge(noticed: Iterable[Noticed], url: str, longest: int) -> Iterator[Noticed]:
    """Add the link to all facts, so that a list can allow it; a link too long for a fact is left out."""
    for what, facts in noticed:
        yield what, {**facts, "url": url} if len(url) <= longest else facts


def _domain(host: str) -> str:
    return registrable_domain(host) or host


def look_at_links_of(place: Place, links: Sequence[str], parties: Parties) -> Iterator[Finding]:
    """Yield suspicious properties of the links to third parties, each property once for each host.

    The caller limits the findings of each name, and reports the omitted ones.
    """
    seen: set[tuple[str, Fact]] = set()
    for link in (link for link in links if _is_to_third_party(link, parties)):
        for what, facts in look_at_address(link, parties):
            key = (what, facts.get("host", ""))
            if key not in seen:
                seen.add(key)
                cut = {name: value[: SHOWN.fact] if isinstance(value, str) else value for name, value in facts.items()}
                yield Finding(f"urls.{what}", place.link(), cut | ({"url": link} if len(link) <= SHOWN.fact else {}))


def only_third_party(links: Sequence[str], parties: Parties) -> str:
    """Return the host of the only third party that all links lead to, or ""."""
    hosts = [host for link in links if (host := host_of(link))]
    if len({registrable_domain(host) for host in hosts}) != 1:
        return ""
    return next((host for host in hosts if parties.is_third_party(host)), "")


def _is_to_third_party(link: str, parties: Parties) -> bool:
    host = host_of(link)
    return bool(host) and parties.is_third_party(host)


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
        return _decode_address(match[1])
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


def _decode_address(text: str) -> str:
    text = text.replace("-", "+").replace("_", "/")
    text = text[: len(text) - len(text) % 4] if len(text) % 4 == 1 else text
    try:
        decoded = base64.b64decode(text + "=" * (-len(text) % 4)).decode("ascii", "ignore")
    except (ValueError, binascii.Error):
        return ""
    match = _INNER.match(unquote(decoded))
    return match.group() if match else ""
