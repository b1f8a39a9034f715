"""Networks as an operator writes them in a file: validated, and matched against addresses."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Networks:
    """A set of networks; an IPv4-mapped IPv6 address is treated as its IPv4 address."""

    members: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Networks":
        return cls(tuple(map(ip_network, texts)))

    def __contains__(self, address: Address) -> bool:
        return any(address in network for network in self.members)


def read_address(text: str) -> Address | None:
    """Return the address in a text, or None if it is no address; a zone is invalid, because it is local to one host."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return None if address.scope_id else address.ipv4_mapped or address


def peer_address(peer: str) -> Address | None:
    """Return the peer's address of a connection, without the zone."""
    return read_address(peer.partition("%")[0])


def network_mistakes(key: str, texts: Iterable[str], *, everybody: bool = True) -> Iterator[tuple[str, str]]:
    """Yield the mistakes in the networks of a key; `0.0.0.0/0` and `::/0` are allowed only with `allow_all`."""
    for text in texts:
        try:
            network = ip_network(text, strict=False)
        except ValueError:
            yield key, f"`{text}` is not a network: write 10.0.0.0/24 or 192.0.2.7/32"
            continue
        host = read_address(text.partition("/")[0])
        if host is None or host.version != network.version:
            yield key, f"`{text}` has a zone, or is IPv4 in the form of IPv6: write 2001:db8::/32 or 10.0.0.0/24"
        elif host != network.network_address:
            yield key, f"`{text}` is neither a network nor an address: write {network} or {host}"
        elif network.prefixlen == 0 and not everybody:
            yield key, f"`{text}` matches every address: name the networks"
