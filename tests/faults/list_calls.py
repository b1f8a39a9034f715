"""Callers of the List API, many at once: their keys and tenants, and every answer as it came."""

import itertools
import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

import aiohttp
import msgspec

from mailwarden.access.keys import ApiKeys, KeyStore, NewKey
from mailwarden.access.permissions import KeyScope
from mailwarden.access.tenant_store import TenantStore
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.pool import Database
from mailwarden.model.scope import Actor, Scope
from workshop.rig.caller import NoAnswerError, caller_context
from workshop.rig.engines import Engines
from workshop.rig.product import Overrides, Product

# `make check-long` runs these tests at full length; everywhere else they take seconds.
FULL = os.environ.get("MAILWARDEN_FULL") == "1"
PREFIX = "/api/public/lists/v1"
READ_WRITE = (KeyScope.READ, KeyScope.WRITE)
EVERYTHING = Scope.deployment()
# The tests call more often than a caller should.
NO_RATE_LIMIT: Overrides = {"listsRateLimit": 1_000_000}


class Line(msgspec.Struct, frozen=True):
    """What these tests look at in a record of a stream."""

    entry: str
    comment: str


_decode_lines = msgspec.json.Decoder(Line).decode_lines


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """One answer, read whole, and the seconds it took."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def modified(self) -> int:
        """Return the count of a change, having checked that the answer is one."""
        assert self.status == 200, str(self)
        record = json.loads(self.body)
        assert set(record) == {"modifiedEntries"}, str(self)
        return int(record["modifiedEntries"])

    @property
    def error(self) -> str:
        return "" if self.status == 200 else str(json.loads(self.body)["error"])

    @property
    def lines(self) -> Sequence[Line]:
        """Return the records of a stream: as many as announced, in the order of their entries, none twice."""
        assert self.status == 200, str(self)
        lines = _decode_lines(self.body)
        assert len(lines) == int(self.headers["X-Entry-Count"])
        entries = [line.entry.encode() for line in lines]
        assert all(one < other for one, other in itertools.pairwise(entries)), "not in order"
        return lines

    def __str__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


@dataclass(frozen=True, slots=True)
class ListCaller:
    """Calls with one key for one scope; `tenant` None is the global scope."""

    session: aiohttp.ClientSession
    url: str
    key: str
    tenant: str | None = None

    async def call(self, operation: str, **fields: object) -> ListAnswer:
        scope = {} if self.tenant is None else {"tenantUid": self.tenant}
        began = time.monotonic()
        try:
            async with self.session.post(
                f"{self.url}{PREFIX}/{operation}",
                data=msgspec.json.encode({**fields, **scope}),
                headers={"Authorization": f"apikey {self.key}", "Content-Type": "application/json"},
            ) as response:
                body = await response.read()
                return ListAnswer(response.status, response.headers, body, time.monotonic() - began)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoAnswerError(f"{operation}: {error!r}") from error

    async def add(self, name: str, entries: Sequence[str], comment: str) -> ListAnswer:
        records = [{"entry": entry, "comment": comment} for entry in entries]
        return await self.call("addEntries", listName=name, entries=records)

    async def delete(self, name: str, entries: Sequence[str]) -> ListAnswer:
        return await self.call("deleteEntries", listName=name, entries=entries)

    async def stream(self, name: str) -> ListAnswer:
        return await self.call("listEntries", listName=name)


@asynccontextmanager
async def open_session(product: Product, patience: float = 60.0) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a pool of connections as wide as there are callers."""
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=caller_context(product.ca), limit=0),
        timeout=aiohttp.ClientTimeout(total=patience),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
    ) as session:
        yield session


async def make_tenants(database_url: str, domains: Mapping[str, str]) -> dict[str, str]:
    """Make a tenant with one domain for each name, and return their ids."""
    database = Database(database_url, 1)
    try:
        store = TenantStore(database)
        return {name: str((await store.create(EVERYTHING, name, [domain])).uid) for name, domain in domains.items()}
    finally:
        await database.close()


async def make_key(
    product: Product, database_url: str, name: str, *tenants: str, scopes: Sequence[KeyScope] = READ_WRITE
) -> str:
    """Make a key bound to these tenants, or to the deployment where none is named."""
    pepper = read_ring(product.abby.folder / "secrets" / "pepper", "apiKeyPepper")
    database = Database(database_url, 1)
    try:
        wanted = NewKey(name, frozenset(scopes), frozenset(map(UUID, tenants)))
        _, text = await ApiKeys(KeyStore(database), pepper).create(EVERYTHING, wanted, Actor("test"))
        return text
    finally:
        await database.close()


def name_of(database_url: str) -> str:
    return database_url.rpartition("/")[2]


def rows_of(engines: Engines, database_url: str, query: str) -> list[list[str]]:
    """Ask the test's database as the superuser, whom row-level security does not touch."""
    return [line.split("|") for line in engines.postgresql.execute(query, name_of(database_url)).splitlines()]


def deadlocks(engines: Engines, database_url: str) -> int:
    query = f"SELECT deadlocks FROM pg_stat_database WHERE datname = '{name_of(database_url)}'"
    return int(engines.postgresql.execute(query))
