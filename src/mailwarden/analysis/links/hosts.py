"""Classifies hosts and the host that a link shows: rented to anyone, or one well-known organisation.

Security: works on hostile text; every pattern is linear and every text is bounded by its reader.
"""

import re
from enum import StrEnum
from functools import lru_cache
from ipaddress import ip_address

from mailwarden.analysis.links.popular import DomainKind, domain_kind
from mailwarden.analysis.shipped_data import read_shipped
from mailwarden.message.urls import host_of, normalize_host, registrable_domain

LABELS = 12  # of a host, from its end, that are looked up

_SHOWN_URL = re.compile(r"(?:https?://|www\.)[^\s<>\"'@]{1,500}", re.IGNORECASE)
_SHOWN_HOST = re.compile(r"((?:[a-z0-9-]{1,63}\.){1,20}([a-z]{2,24}))(?:[/:?#]\S{0,500})?$", re.IGNORECASE)
_AUTHORITY = re.compile(r"\s*(?:https?|ftp):[/\\]{1,20}([^/\\?#@]{1,2000})@", re.IGNORECASE)
_NUMERIC_HOST = re.compile(r"\[|(?:0x[0-9a-f]+|\d+)(?:\.(?:0x[0-9a-f]+|\d+)){0,3}$")

# A lone `name.ending` is far more often the name of a file than a host.
_FILE_ENDINGS = frozenset(
    (  # noqa: SIM905 - sixty quoted words would fill the screen
        "7z asp aspx avi bat bin bmp cfg conf cpp css csv dat doc docx eml exe gif gz htm html ics ini jar java "
        "jpeg jpg js json jsp log lua md mov mp3 mp4 msg odt pdf php png ppt pptx py rar rst rtf sh sql svg tar "
        "tex tgz tif ts txt vcf wav xls xlsx xml yaml yml zip"
    ).split()
)
# Mail gateways put these before the real address; the text then shows the address that was meant.
_REWRITERS = (
    ".safelinks.protection.outlook.com",
    ".urldefense.com",
    ".urldefense.proofpoint.com",
    ".linkprotect.cudasvc.com",
    ".mimecastprotect.com",
    ".protection.sophos.com",
)


class HostKind(StrEnum):
    SHORTENER = "shortener"
    HOSTING = "hosting"
    STORAGE = "storage"
    DYNAMIC = "dynamic"
    FORM = "form"
    SENDING = "sending"
    GATEWAY = "gateway"
    KNOWN = "known"
    OTHER = "other"


@lru_cache(maxsize=1)
def _facts() -> dict[str, frozenset[str]]:
    lines = read_shipped("links/hosts.yml", dict[str, str])
    return {name: frozenset(words.split()) for name, words in lines.items()}


@lru_cache(maxsize=1)
def _kinds() -> dict[str, HostKind]:
    """Return every name with its kind; of two kinds the later of the enumeration holds."""
    return {name: kind for kind in HostKind if kind is not HostKind.OTHER for name in _facts()[kind]}


@lru_cache(maxsize=4_096)
def kind_of(host: str) -> HostKind:
    """Return the kind of a host by the longest name known above it."""
    kinds = _kinds()
    labels = host.split(".")[-LABELS:]
    for start in range(len(labels)):
        if found := kinds.get(".".join(labels[start:])):
            return found
    return HostKind.DYNAMIC if _is_below_dynamic(labels) else HostKind.OTHER


def is_known_name(host: str) -> bool:
    """Return whether the host itself is known, not only a name above it."""
    return host in _kinds()


def _is_below_dynamic(labels: list[str]) -> bool:
    """Return whether a host is below a domain that gives names to any user; the domain's own site is none."""
    start = 2 if labels[0] == "www" else 1
    names = (".".join(labels[at:]) for at in range(start, len(labels) - 1))
    return any(domain_kind(name) is DomainKind.DYNAMIC for name in names)


def has_cheap_ending(host: str) -> bool:
    cheap = _facts()["cheap"]
    first, _, last = host.rpartition(".")
    return bool(first) and (last in cheap or f"{first.rpartition('.')[2]}.{last}" in cheap)


def shown_host(text: str) -> str:
    """Return the host that a link's text shows to its reader, or "" where it shows none."""
    text = text.strip()
    if "." not in text:
        return ""
    for url in _SHOWN_URL.finditer(text):
        if not text.startswith("@", url.end()):  # before an @ it is the user's name, and the host comes after
            return host_of(url.group())
    match = _SHOWN_HOST.match(text)
    return normalize_host(match[1]) if match and match[2].lower() not in _FILE_ENDINGS else ""


def names_file(host: str) -> bool:
    """Return whether a bare name is more likely the name of a file than a host, such as `setup.py`."""
    return host.count(".") == 1 and host.rpartition(".")[2] in _FILE_ENDINGS


def misleading(href: str, text: str) -> tuple[str, str] | None:
    """Return the host shown and the host led to, where they belong to different organisations."""
    shown = shown_host(text)
    organisation = registrable_domain(shown) if shown else ""
    host = host_of(href) if organisation else ""
    if not host or registrable_domain(host) == organisation or f".{host}".endswith(_REWRITERS):
        return None
    return shown, host


def public_ip(host: str) -> bool:
    """Return whether a host is a bare address of the public network, in any of the spellings that browsers take."""
    if not _NUMERIC_HOST.match(host):
        return False
    try:
        return not ip_address(host.strip("[]")).is_private
    except ValueError:
        # Octal, hexadecimal and single-number spellings are chosen to hide. Other words in brackets are no address:
        # "[unsubscribe]" is a placeholder that was never filled in.
        return not host.startswith("[")


def false_name(href: str) -> str:
    """Return the userinfo before the @ in the address of a link, or ""."""
    match = _AUTHORITY.match(href)
    return match[1] if match else ""
