"""The pieces of configuration that abby and guard have in common."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

PORTS = Meta(ge=0, le=65535)


class Listen(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where a process listens."""

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, PORTS, Meta(description="Port to listen on; 0 takes a free one.")] = 0


class Tls(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The authority of the deployment; paths are relative to the configuration folder."""

    ca: Annotated[str, Meta(description="Authority that signs the certificates of abby and guard, PEM.")] = "tls/ca.crt"


class Database(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    url: Annotated[str, Meta(description="PostgreSQL address: `postgresql://user:password@host:port/name`.")] = (
        "postgresql://mailwarden@127.0.0.1:5432/mailwarden"
    )
    pool_size: Annotated[int, Meta(ge=1, le=64, description="Connections this process may hold.")] = 4

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not self.url.startswith(("postgresql://", "postgres://")):
            yield "url", "must start with postgresql://"


class Contents(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What is kept of messages is sealed with one key, which abby and every guard have."""

    key: Annotated[str, Meta(description="File with the secret that kept messages are sealed with.")] = (
        "secrets/contents"
    )


class Log(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    level: Annotated[
        str, Meta(pattern="^(debug|info|warning|error)$", description="debug, info, warning or error.")
    ] = "info"
