"""The settings of the history store: `history` in abby.yml and guard.yml."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")


def checked_name(name: str) -> str:
    """Return a name of a database that needs no quotes, or raise ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"`{name}` is not the name of a database: letters, digits and underscores")
    return name


class ClickhouseSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """ClickHouse, if `store` is `clickhouse`; paths are relative to the configuration folder."""

    urls: Annotated[
        list[str], Meta(max_length=16, description="HTTP addresses of the replicas: `https://host:8443`.")
    ] = []
    database: Annotated[str, Meta(description="Database with the table `history`.")] = "mailwarden"
    user: Annotated[str, Meta(description="User in ClickHouse.")] = "mailwarden"
    password_file: Annotated[str, Meta(description="File with the user's password; empty: no password.")] = ""
    ca: Annotated[str, Meta(description="CA of ClickHouse's certificates, PEM; empty: the system's.")] = ""
    replicated: Annotated[
        bool, Meta(description="`history prepare` makes a replicated table, which needs Keeper or ZooKeeper.")
    ] = False
    quorum: Annotated[
        int, Meta(ge=0, le=16, description="Replicas that must have a row before it is stored; 0: one is enough.")
    ] = 0
    connections: Annotated[int, Meta(ge=1, le=64, description="Connections of this process to ClickHouse.")] = 8

    def mistakes(self) -> Iterator[tuple[str, str]]:
        for url in self.urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                yield "urls", "an address must start with https:// or http:// and name a host"
            elif parts.username or parts.password or parts.query or parts.fragment:
                yield "urls", "an address has neither a user nor a query: set user and passwordFile"
        try:
            checked_name(self.database)
        except ValueError as error:
            yield "database", str(error)
        if len(self.urls) > 1 and not self.replicated:
            yield "urls", "several servers need `replicated: true`: without it each would have a part of history"
        if self.quorum > len(self.urls):
            yield "quorum", f"is {self.quorum}, above the number of urls ({len(self.urls)})"


class HistoryStoreSettings(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The store of history: the same on abby and every guard; see docs/operating.md."""

    store: Annotated[
        Literal["postgresql", "clickhouse"],
        Meta(description="The store of finished requests; `clickhouse` if they are too many for one PostgreSQL."),
    ] = "postgresql"
    clickhouse: ClickhouseSettings = ClickhouseSettings()

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if self.store == "clickhouse" and not self.clickhouse.urls:
            yield "clickhouse", "needs urls: the store is `clickhouse`"
