"""IP addresses and networks: compressed, IPv4-mapped as IPv4, host bits zero; one key for each prefix length in use.

An IPv4-mapped address is IPv4 everywhere, so no IPv6 network covers it.
Security: reads addresses that senders choose. An invalid address has no candidates.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv6Address
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton

from msgspec import Struct

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.kinds.domains import (
    DOMAIN,
    check_domain_breadth,
    label_count,
    may_be_broad_domains,
    read_domain,
)
from mailwarden.lists.kinds.kind import Kind, PlainForm, refang

MIN_IPV4_PREFIX = 8
MIN_IPV6_PREFIX = 19
_IPV4 = re.compile(r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}", re.ASCII)
_IPV6 = re.compile(r"[0-9a-f:.]{2,45}", re.IGNORECASE)
_PREFIX = re.compile(r"(?:0|[1-9]\d{0,2})", re.ASCII)
_MAPPED = bytes(10) + b"\xff\xff"
_NUMERIC = re.compile(r"[0-9.]+(?:/.*)?", re.ASCII)


class PrefixLengths(Struct, frozen=True):
    """The prefix lengths that entries use, the longest first: a value is looked up once for each."""

    ipv4: tuple[int, ...] = (32,)
    ipv6: tuple[int, ...] = (128,)

    @classmethod
    def of(cls, entries: Iterable[str]) -> "PrefixLengths":
        """Return the lengths of the networks among the entries."""
        networks = [(":" in entry, prefix_length(entry)) for entry in entries if is_network(entry)]
        ipv4 = {length for six, length in networks if not six}
        ipv6 = {length for six, length in networks if six}
        return cls(tuple(sorted(ipv4, reverse=True)), tuple(sorted(ipv6, reverse=True)))


def pack_ip(text: str) -> bytes | None:
    """Return the 4 or 16 bytes of an address, an IPv4-mapped one as 4, or None where it is none."""
    try:
        if _IPV4.fullmatch(text):
            return inet_pton(AF_INET, text)
        if ":" in text and _IPV6.fullmatch(text):
            packed = inet_pton(AF_INET6, text)
            return packed[12:] if packed.startswith(_MAPPED) else packed
    except OSError:
        pass
    return None


def write_ip(packed: bytes) -> str:
    """Return the one way to write an address."""
    if len(packed) == 4:
        return inet_ntop(AF_INET, packed)
    # The C library writes the last four bytes of `::/96` with dots, which no other address of this form has.
    return str(IPv6Address(packed)) if packed.startswith(bytes(12)) else inet_ntop(AF_INET6, packed)


def read_network(text: str) -> str:
    """Return an address or a network in its one form, or raise InvalidEntry."""
    text = refang(text)
    address, slash, prefix = text.partition("/")
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    packed = pack_ip(address)
    if packed is None:
        raise InvalidEntry(f"`{address[:80]}` is no IPv4 or IPv6 address.")
    if not slash:
        return write_ip(packed)
    bits = len(packed) * 8
    if not _PREFIX.fullmatch(prefix):
        raise InvalidEntry("After the slash comes the length of the prefix as a number, such as `/24`.")
    length = int(prefix)
    if bits == 32 and ":" in address:
        length -= 96  # the prefix counts the bits of the mapped form
    if not 0 <= length <= bits:
        raise InvalidEntry(f"`/{prefix}` is no length of a prefix here.")
    network = _mask(packed, length)
    if network != packed:
        raise InvalidEntry(f"Host bits are set: the network is `{write_ip(network)}/{length}`.")
    return write_ip(packed) if length == bits else f"{write_ip(packed)}/{length}"


def read_domain_or_network(text: str) -> str:
    text = refang(text)
    return read_network(text) if ":" in text or _NUMERIC.fullmatch(text) else read_domain(text)


def is_network(entry: str) -> bool:
    """Return whether an entry is an address or network and not a domain."""
    return ":" in entry or "/" in entry or entry.rpartition(".")[2].isdigit()


def prefix_length(entry: str) -> int:
    _, slash, length = entry.partition("/")
    return int(length) if slash else 128 if ":" in entry else 32


def candidates_for_ip(address: str, lengths: PrefixLengths) -> list[str]:
    """Return the keys under which an address may be stored: one for each length in use, the longest first."""
    packed = pack_ip(address.strip().removeprefix("[").removesuffix("]").removeprefix("IPv6:"))
    if packed is None:
        return []
    bits = len(packed) * 8
    return [
        f"{write_ip(_mask(packed, length))}/{length}" if length < bits else write_ip(packed)
        for length in (lengths.ipv4 if bits == 32 else lengths.ipv6)
    ]


def check_network_breadth(entry: str, *, lets_through: bool) -> None:
    del lets_through
    least = MIN_IPV6_PREFIX if ":" in entry else MIN_IPV4_PREFIX
    if prefix_length(entry) < least:
        raise EntryTooBroad(f"A network has a prefix of at least /{least}.")


def check_domain_or_network_breadth(entry: str, *, lets_through: bool) -> None:
    check = check_network_breadth if is_network(entry) else check_domain_breadth
    check(entry, lets_through=lets_through)


def domain_or_network_specificity(entry: str) -> int:
    return 1_000 + prefix_length(entry) if is_network(entry) else label_count(entry)


def _mask(packed: bytes, length: int) -> bytes:
    bits = len(packed) * 8
    kept = int.from_bytes(packed, "big") >> (bits - length) << (bits - length)
    return kept.to_bytes(len(packed), "big")


IP = Kind(
    name="ip",
    form="An IPv4 or IPv6 address, or a network with its prefix length and host bits zero.",
    examples=(
        ("192.0.2.7", "192.0.2.7"),
        ("192[.]0[.]2[.]7", "192.0.2.7"),
        ("192.0.2.7/32", "192.0.2.7"),
        ("198.51.100.0/24", "198.51.100.0/24"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:0DB8:0:0::1", "2001:db8::1"),
        ("2001:db8::/32", "2001:db8::/32"),
    ),
    read=read_network,
    specificity=prefix_length,
    check_breadth=check_network_breadth,
    plain=PlainForm(_IPV4.pattern),
)
DOMAIN_OR_IP = Kind(
    name="domain-or-ip",
    form="A domain, an IP address, or a network with its prefix length.",
    examples=(
        ("training.example.com", "training.example.com"),
        ("203.0.113.25", "203.0.113.25"),
        ("203.0.113.0/24", "203.0.113.0/24"),
    ),
    read=read_domain_or_network,
    specificity=domain_or_network_specificity,
    check_breadth=check_domain_or_network_breadth,
    plain=DOMAIN.plain,
    may_be_broad=may_be_broad_domains,
)
