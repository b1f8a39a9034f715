"""Addresses in From, Reply-To, To and Cc, and the sender identity that a mail client shows.

Security: works on hostile text; one pass, no recursion, at most `limits.addresses` pairs, and it never raises.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from mailwarden.message.headers import decode_headers, read_fields
from mailwarden.message.limits import LIMITS, Limits
from mailwarden.message.urls import has_known_ending, normalize_host, registrable_domain

# A quoted string or a comment, closed or not (RFC 5322, 3.2.2 and 3.2.4), an address, a separator, or other text.
_PIECE = re.compile(r'"(?:[^"\\]|\\.)*("?)|\((?:[^()\\]|\\.)*(\)?)|<[^<>]*>|[,;]|[^"(<,;]+|.', re.DOTALL)
_GROUP = re.compile(r"^[^@<>\"]{0,200}:(?!//)")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


LONGEST = 2_000  # not inspection: a longer From is ambiguous, see sender
MAX_NAME = 300  # not inspection: a longer From is ambiguous, see sender
_HOST = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.){1,20}[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?")
_ANGLED = re.compile(r"<[^<>@]{0,300}@[^<>]{1,300}>")
_LOOSE = re.compile(r"[^\s<>()\"',;:@]{1,64}@[^\s<>()\"',;:@]{1,255}")
# Top-level domains for private networks and special use (RFC 6761).
_PRIVATE = frozenset({"arpa", "corp", "example", "home", "internal", "invalid", "lan", "local", "localdomain",
                      "localhost", "onion", "test"})  # fmt: skip
HEAD = LIMITS.header_block
MAX_RECIPIENTS = 100  # not inspection: the correspondents in history


class Address(NamedTuple):
    name: str
    address: str

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2] if "@" in self.address else ""


def read_addresses(value: str, limits: Limits = LIMITS) -> tuple[Address, ...]:
    """Parse a list of mailboxes as lenient clients do; groups are flattened, routes and comments dropped."""
    found: list[Address] = []
    words: list[str] = []
    comment = address = ""
    for piece in _pieces(value[: limits.long_header]):
        character = piece[0]
        if character in ",;":
            _finish(found, words, address, comment)
            words, comment, address = [], "", ""
            if len(found) >= limits.addresses:
                return tuple(found)
        elif character == '"' and len(piece) > 1:
            words.append(_ESCAPE.sub(r"\1", piece[1:-1]))
        elif character == "(" and len(piece) > 1:
            comment = comment or piece[1:-1]
        elif character == "<" and len(piece) > 1:
            address = address or piece[1:-1]
        elif stripped := piece.strip():
            words.append(stripped)
    _finish(found, words, address, comment)
    return tuple(found)


def _pieces(value: str) -> Iterator[str]:
    """Split a value into tokens; an unclosed quote or parenthesis is a token of its own.

    If one does not close, the same characters inside it do not close either, and are not tried again.
    """
    place, end = 0, len(value)
    open_until = {'"': 0, "(": 0}
    while place < end:
        character = value[place]
        if place < open_until.get(character, 0):
            yield character
            place += 1
            continue
        match = _PIECE.match(value, place)
        assert match is not None
        if character in open_until and not (match[1] or match[2]):
            open_until[character] = match.end()
            yield character
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
        # A quoted local part was parsed as a word of the name: join it again.
        joined = text.replace(" @", "@").replace("@ ", "@")
        bare = joined if " " not in joined else next((word for word in joined.split() if "@" in word), joined)
        name = comment if bare == joined else joined.replace(bare, "").strip()
        found.append(Address(name[:1_000], _clean(bare)))  # not inspection: a longer From is ambiguous, see sender
    elif text or comment:
        found.append(Address((text or comment)[:1_000], ""))  # not inspection: a longer From is ambiguous, see sender


def _clean(address: str) -> str:
    """Drop a source route and white space; lower the domain, keep the local part."""
    address = "".join(address.split())[:1_000]  # not inspection: a longer From is ambiguous, see sender
    if address.startswith("@") and ":" in address:
        address = address.partition(":")[2]
    local, at, domain = address.rpartition("@")
    return f"{local}@{domain.lower().rstrip('.')}" if at else address


class Identity(Struct, frozen=True):
    """The sender as shown; `organisation` is the registrable domain, "" if there is none."""

    name: str
    address: str
    domain: str
    organisation: str
    addresses: int = 0  # mailboxes with an address
    torn: bool = False  # name and address are separated, as no mail client writes them

    @property
    def local(self) -> str:
        return self.address.rpartition("@")[0]


@lru_cache(maxsize=16)  # several analyzers look at the same sender
def read_identity(value: str) -> Identity:
    """Parse a From or Reply-To field as mail clients show it."""
    value = value[:LONGEST]  # not inspection: a longer From is ambiguous, see sender
    mailboxes = read_addresses(value)
    addressed = [mailbox for mailbox in mailboxes if "@" in mailbox.address]
    quoted = len(addressed) > 1 and '"' in value and not addressed[0].name and _is_quoted(addressed[0].address, value)
    if quoted:  # `"shown@brand.example", <address>`: clients show the first part as the name
        mailboxes = (
            Address(addressed[0].address, ""),
            *(mailbox for mailbox in mailboxes if mailbox is not addressed[0]),
        )
        addressed = addressed[1:]
    address = addressed[0].address if addressed else _loose_address(value)
    names = [
        mailbox.name for mailbox in mailboxes[: mailboxes.index(addressed[0]) + 1 if addressed else 5] if mailbox.name
    ]
    domain = normalize_host(address.rpartition("@")[2]) if "@" in address else ""
    return Identity(
        name=", ".join(names)[:MAX_NAME],  # not inspection: a longer From is ambiguous, see sender
        address=address,
        domain=domain,
        organisation=registrable_domain(domain) if is_host(domain) else "",
        addresses=len({each.address.lower() for each in addressed}),
        torn=_is_torn(mailboxes) or bool(not addressed and address),
    )


def organisation_of(address: str) -> str:
    """Return the organizational domain of an address (RFC 7489, section 3.2), or its domain where it has none."""
    domain = normalize_host(address.rpartition("@")[2])
    return registrable_domain(domain) or domain


def _is_quoted(address: str, value: str) -> bool:
    return f'"{address.lower()}"' in "".join(value.lower().split()) and bool(_ANGLED.search(value))


def is_host(domain: str) -> bool:
    """Return whether a domain can exist: its suffix is public, or reserved for private networks."""
    if len(domain) > 253 or not _HOST.fullmatch(domain):
        return False
    return is_private(domain) or has_known_ending(domain)


def is_private(domain: str) -> bool:
    return domain.rpartition(".")[2] in _PRIVATE


def _is_torn(mailboxes: tuple[Address, ...]) -> bool:
    """Return True for `Name, <address>`, and False for `Last, First <address>` without its quotation marks."""
    if len(mailboxes) < 2 or mailboxes[0].address:
        return False
    after = next((mailbox for mailbox in mailboxes if "@" in mailbox.address), None)
    return after is not None and not after.name


def _loose_address(value: str) -> str:
    match = _LOOSE.search(value)
    return match.group().lower() if match else ""


def correspondents(head: bytes) -> tuple[str, tuple[str, ...]]:
    """Return the address in From and those in To and Cc, from the start of a message."""
    block = head[:HEAD].replace(b"\r\n", b"\n")
    end = block.find(b"\n\n")
    headers = decode_headers(read_fields(block[:end] if end >= 0 else block))
    sender = next((read_identity(header.value).address for header in headers if header.name == "from"), "")
    found = (
        each.address
        for header in headers
        if header.name in ("to", "cc")
        for each in read_addresses(header.value)
        if "@" in each.address
    )
    return sender, tuple(dict.fromkeys(found))[:MAX_RECIPIENTS]  # not inspection: see above
