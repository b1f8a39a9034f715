"""API keys in PostgreSQL: the one place that reads and writes them. Every change leaves its line in the audit."""

from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import cast
from uuid import UUID

from msgspec import Struct

from mailwarden.access.audit import record_deed
from mailwarden.access.scope_value import uids_of
from mailwarden.database.pool import Database, Row
from mailwarden.errors import GlobalScopeForbidden, KeyNotFound, TenantForbidden, TenantNotFound
from mailwarden.model.actor import Actor
from mailwarden.model.scope import Scope

Network = IPv4Network | IPv6Network

_COLUMNS = """
key_id, name, scopes, tenants, is_global, networks, created, created_by, expires, revoked, last_used, replaces,
replaced_by
"""
_INSERT = """
INSERT INTO api_keys (key_id, name, secret, scopes, tenants, is_global, networks, created_by, expires)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_MISSING = (
    "SELECT uid FROM unnest($1::uuid[]) AS uid WHERE NOT EXISTS (SELECT FROM tenants WHERE tenants.uid = uid.uid)"
)
_FIND = f"SELECT {_COLUMNS}, secret FROM api_keys WHERE key_id = $1"  # noqa: S608 -- constants of this file
# A tenant's administrator sees the keys that are bound to nothing but tenants of that scope.
_SEEN = "($1::uuid[] IS NULL OR (NOT is_global AND tenants <@ $1))"
_LIST = f"SELECT {_COLUMNS} FROM api_keys WHERE {_SEEN} ORDER BY created, key_id LIMIT 10000"  # noqa: S608
_REVOKE = (
    f"UPDATE api_keys SET revoked = now() WHERE key_id = $2 AND revoked IS NULL AND {_SEEN} RETURNING name, tenants"  # noqa: S608
)
# The new key is good for as long as the old one was meant to be.
_ROTATE = """
INSERT INTO api_keys (key_id, name, secret, scopes, tenants, is_global, networks, created_by, expires, replaces)
SELECT $2, name, $3, scopes, tenants, is_global, networks, $4, now() + (expires - created), key_id
FROM api_keys WHERE key_id = $1
"""
_END = """
UPDATE api_keys SET expires = least(expires, now() + make_interval(secs => $2)), replaced_by = $3 WHERE key_id = $1
"""
_TOUCH = """
UPDATE api_keys SET last_used = now()
WHERE key_id = $1 AND (last_used IS NULL OR last_used < now() - interval '1 minute')
"""


class KeyScope(StrEnum):
    """What a key may do; each is given by itself, none implies another."""

    READ = "lists:read"
    WRITE = "lists:write"


class ApiKey(Struct, frozen=True):
    """A key without its secret. A deployment key (`is_global`) may use every tenant and the global scope."""

    key_id: str
    name: str
    scopes: frozenset[str]
    tenants: frozenset[UUID]
    is_global: bool
    networks: tuple[Network, ...]
    created: datetime
    created_by: str
    expires: datetime | None = None
    revoked: datetime | None = None
    last_used: datetime | None = None
    replaces: str | None = None  # the key whose place it took
    replaced_by: str | None = None

    def may(self, scope: KeyScope) -> bool:
        return scope in self.scopes

    def may_use(self, tenant: UUID) -> bool:
        return self.is_global or tenant in self.tenants

    def is_valid(self, now: datetime) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def admits(self, address: str | None) -> bool:
        """Tell whether a call may come from there; a key without networks is good everywhere."""
        if not self.networks:
            return True
        try:
            source: IPv4Address | IPv6Address = ip_address(address or "")
        except ValueError:
            return False
        if isinstance(source, IPv6Address) and source.ipv4_mapped is not None:
            source = source.ipv4_mapped
        return any(source in network for network in self.networks)


class NewKey(Struct, frozen=True):
    """What a key is to be."""

    name: str
    scopes: frozenset[KeyScope]
    tenants: frozenset[UUID] = frozenset()
    networks: tuple[Network, ...] = ()
    expires: datetime | None = None

    @property
    def is_global(self) -> bool:
        return not self.tenants


class KeyStore:
    """All SQL about API keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, scope: Scope, key_id: str, digest: bytes, wanted: NewKey, actor: Actor) -> ApiKey:
        """Keep a new key by its digest; nobody makes a key that may more than they may themselves."""
        if wanted.is_global and scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may make a deployment key.")
        if not all(map(scope.allows, wanted.tenants)):
            raise TenantForbidden("This tenant is not yours to make a key for.")
        tenants, scopes = sorted(wanted.tenants), sorted(wanted.scopes)
        async with self._database.connection() as connection, connection.transaction():
            missing = await connection.fetchval(_MISSING, tenants)
            if missing is not None:
                raise TenantNotFound(f"There is no tenant {missing}.")
            await connection.execute(
                _INSERT, key_id, wanted.name, digest, scopes, tenants, wanted.is_global, wanted.networks, actor.name,
                wanted.expires,
            )  # fmt: skip
            details = {"name": wanted.name, "scopes": scopes, "tenants": tenants, "global": wanted.is_global}
            await record_deed(connection, actor, "keys.create", key_id, details, tenant=_only(wanted.tenants))
            row = await connection.fetchrow(_FIND, key_id)
        assert row is not None
        return _key(row)

    async def find(self, scope: Scope, key_id: str) -> tuple[ApiKey, bytes] | None:
        """Return the key and its digest, revoked and expired ones too; None where there is none in the scope."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_FIND, key_id)
        if row is None:
            return None
        key = _key(row)
        if not _sees(scope, key):
            return None
        return key, cast("bytes", row["secret"])

    async def list(self, scope: Scope) -> Sequence[ApiKey]:
        """Return the keys of the scope, oldest first."""
        async with self._database.connection() as connection:
            return [_key(row) for row in await connection.fetch(_LIST, uids_of(scope))]

    async def revoke(self, scope: Scope, key_id: str, actor: Actor) -> bool:
        """Revoke a key for good; tell whether there was one to revoke."""
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_REVOKE, uids_of(scope), key_id)
            if row is None:
                return False
            tenants = frozenset(cast("Sequence[UUID]", row["tenants"]))
            await record_deed(connection, actor, "keys.revoke", key_id, {"name": row["name"]}, tenant=_only(tenants))
        return True

    async def rotate(
        self, scope: Scope, key_id: str, new_id: str, digest: bytes, *, overlap: float, actor: Actor
    ) -> ApiKey:
        """Keep a new key with the rights of another, which ends after the overlap in seconds."""
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(f"{_FIND} FOR UPDATE", key_id)
            key = None if row is None else _key(row)
            if key is None or not _sees(scope, key) or not key.is_valid(datetime.now(UTC)):
                raise KeyNotFound("There is no valid key with this id.")
            if key.replaced_by is not None:
                raise KeyNotFound(f"This key was rotated already; `{key.replaced_by}` took its place.")
            await connection.execute(_ROTATE, key_id, new_id, digest, actor.name)
            await connection.execute(_END, key_id, overlap, new_id)
            rows = [await connection.fetchrow(_FIND, each) for each in (key_id, new_id)]
            ended, made = (_key(each) for each in rows if each is not None)
            details = {
                "name": key.name,
                "before": {"id": key_id, "expires": key.expires},
                "after": {"id": new_id, "expires": made.expires, "oldExpires": ended.expires},
            }
            await record_deed(connection, actor, "keys.rotate", key_id, details, tenant=_only(key.tenants))
        return made

    async def touch(self, scope: Scope, key_id: str) -> None:
        """Note that a key was used just now, at most once a minute."""
        async with self._database.connection() as connection:
            await connection.execute(_TOUCH, key_id)


def _key(row: Row) -> ApiKey:
    return ApiKey(
        key_id=str(row["key_id"]),
        name=str(row["name"]),
        scopes=frozenset(cast("Sequence[str]", row["scopes"])),
        tenants=frozenset(cast("Sequence[UUID]", row["tenants"])),
        is_global=bool(row["is_global"]),
        networks=tuple(cast("Sequence[Network]", row["networks"])),
        created=cast("datetime", row["created"]),
        created_by=str(row["created_by"]),
        expires=cast("datetime | None", row["expires"]),
        revoked=cast("datetime | None", row["revoked"]),
        last_used=cast("datetime | None", row["last_used"]),
        replaces=cast("str | None", row["replaces"]),
        replaced_by=cast("str | None", row["replaced_by"]),
    )


def _sees(scope: Scope, key: ApiKey) -> bool:
    return scope.tenants is None or (not key.is_global and key.tenants <= scope.tenants)


def _only(tenants: frozenset[UUID]) -> UUID | None:
    """Return the tenant that a deed belongs to, where it is one."""
    return next(iter(tenants)) if len(tenants) == 1 else None
