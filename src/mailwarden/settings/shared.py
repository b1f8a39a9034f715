"""The configuration that abby and guard share, and networks as an operator writes them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Annotated, Literal

from msgspec import Meta, Struct

Count = Annotated[int, Meta(ge=1, le=100_000)]
Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]

LOOPBACK = ("127.0.0.0/8", "::1/128")

# An address that stands in messages of ours as it is written.
PLAIN_ADDRESS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@[A-Za-z0-9][A-Za-z0-9.-]{0,252}")
PORTS = Meta(ge=0, le=65535)
_SCHEMES = ("postgresql://", "postgres://")

Address = IPv4Address | IPv6Address


def is_loopback(host: str) -> bool:
    """Return whether a host is an IP address of loopback."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Listen(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The address that a process listens on."""

    host: Annotated[
        str, Meta(description="Address to listen on: `::` is every address, IPv4 and IPv6; `0.0.0.0` IPv4.")
    ] = "127.0.0.1"
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 0


class Tls(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The authority of the deployment; paths are relative to the configuration folder."""

    ca: Annotated[str, Meta(description="CA of the certificates of abby and guard, PEM.")] = "tls/ca.crt"


class Database(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    url: Annotated[str, Meta(description="PostgreSQL address: `postgresql://user:password@host:port/name`.")] = (
        "postgresql://mailwarden@127.0.0.1:5432/mailwarden"
    )
    pool_size: Annotated[int, Meta(ge=1, le=64, description="Database connections of this process.")] = 4
    pooler: Annotated[
        Literal["none", "transaction"],
        Meta(
            description="`transaction` if `url` is PgBouncer, or another pooler that lends connections per transaction."
        ),
    ] = "none"
    direct_url: Annotated[
        str, Meta(description="Address of PostgreSQL past the pooler, for `backup` and `restore`. Empty: `url`.")
    ] = ""

    @property
    def pooled(self) -> bool:
        return self.pooler == "transaction"

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not self.url.startswith(_SCHEMES):
            yield "url", "must start with postgresql://"
        if self.direct_url and not self.direct_url.startswith(_SCHEMES):
            yield "directUrl", "must start with postgresql://"


class Contents(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The key ring of stored messages, the same on abby and every guard."""

    key: Annotated[str, Meta(description="File with the keys that encrypt stored messages.")] = "secrets/contents"


class Quarantine(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The store of held messages; the same on abby and every guard that shares it."""

    store: Annotated[
        str,
        Meta(
            description="A folder, or `s3://bucket/prefix`. Guards of several hosts share a store, or each has its own."
        ),
    ] = "quarantine"
    endpoint: Annotated[
        str, Meta(description="Address of an S3-compatible store that is not Amazon's: `https://host:port`.")
    ] = ""
    region: Annotated[str, Meta(description="Region of the bucket.")] = "us-east-1"
    credentials: Annotated[
        str, Meta(description="File with two lines: the access key's id, and the access key's secret.")
    ] = "secrets/s3"

    @property
    def bucket(self) -> tuple[str, str] | None:
        """Return the bucket and the prefix in it, or None if the store is a folder."""
        if not self.store.startswith("s3://"):
            return None
        bucket, _, prefix = self.store.removeprefix("s3://").partition("/")
        return bucket, prefix.strip("/")

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not self.store or self.bucket == ("", "") or ("://" in self.store and self.bucket is None):
            yield "store", f"`{self.store}` is neither a folder nor s3://bucket/prefix"
        if self.endpoint and not self.endpoint.startswith(("https://", "http://")):
            yield "endpoint", "must start with https:// or http://"


class Log(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Lines below this level are not logged.")
    ] = "info"


class TracingSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """OpenTelemetry traces; needs the extra `mailwarden[tracing]`."""

    endpoint: Annotated[
        str,
        Meta(
            description="Collector for traces, OTLP over HTTP: `https://host:4318/v1/traces`; no traces if empty.",
        ),
    ] = ""
    sample_ratio: Annotated[
        float, Meta(ge=0, le=1, description="Share of messages to trace; guard follows abby's choice.")
    ] = 0.1

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.endpoint and not self.endpoint.startswith(("https://", "http://")):
            yield "endpoint", "must start with https:// or http://"


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


def network_mistakes(key: str, texts: Iterable[str], *, allow_all: bool = True) -> Iterator[tuple[str, str]]:
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
        elif network.prefixlen == 0 and not allow_all:
            yield key, f"`{text}` matches every address: name the networks"
