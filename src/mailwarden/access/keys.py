"""API keys: their rows in PostgreSQL, and their check on each call.

Security: secrets pass through here. The proof in a key's text does not replace the stored digest: only keys in the
database are valid.
"""

import time
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import cast
from uuid import UUID

from msgspec import Struct

from mailwarden.access.audit import record_event
from mailwarden.access.key_texts import KeyTexts
from mailwarden.access.permissions import KeyScope
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import Mac
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.errors import (
    CommandError,
    GlobalScopeForbidden,
    InvalidCredentials,
    KeyNotFound,
    SchemaViolation,
    TenantForbidden,
    TenantNotFound,
)
from mailwarden.events.catalogue import KeyCreated, KeyRevoked
from mailwarden.events.outbox import new_event, record
from mailwarden.model.scope import Actor, Scope
from mailwarden.telemetry.logs import get_logger

KEY_PURPOSE = b"mailwarden api keys 1"  # derives the key of stored digests from the pepper

Network = IPv4Network | IPv6Network

_COLUMNS = """
key_id, name, scopes, tenants, is_global, networks, created, created_by, expires, revoked, last_used, replaces,
replaced_by, first_used, first_address
"""
_INSERT = """
INSERT INTO api_keys (key_id, name, secret, scopes, tenants, is_global, networks, created_by, expires)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
"""
_MISSING = (
    "SELECT uid FROM unnest($1::uuid[]) AS uid WHERE NOT EXISTS (SELECT FROM tenants WHERE tenants.uid = uid.uid)"
)
_FIND = f"SELECT {_COLUMNS}, secret FROM api_keys WHERE key_id = $1"  # noqa: S608 -- constants of this file
# A tenant administrator sees keys whose tenants are all in the scope.
_SEEN = "($1::uuid[] IS NULL OR (NOT is_global AND tenants <@ $1))"
_LIST = f"SELECT {_COLUMNS} FROM api_keys WHERE {_SEEN} ORDER BY created, key_id LIMIT 10000"  # noqa: S608
_REVOKE = (
    f"UPDATE api_keys SET revoked = now() WHERE key_id = $2 AND revoked IS NULL AND {_SEEN} RETURNING name, tenants"  # noqa: S608
)
# The new key keeps the expiry of the old one.
_ROTATE = """
INSERT INTO api_keys (key_id, name, secret, scopes, tenants, is_global, networks, created_by, expires, replaces)
SELECT $2, name, $3, scopes, tenants, is_global, networks, $4, now() + (expires - created), key_id
FROM api_keys WHERE key_id = $1
"""
_END = """
UPDATE api_keys SET expires = least(expires, now() + make_interval(secs => $2)), replaced_by = $3 WHERE key_id = $1
"""
_TOUCH = """
UPDATE api_keys SET last_used = now(), first_used = coalesce(first_used, now()),
    first_address = CASE WHEN first_used IS NULL THEN $2::text::inet ELSE first_address END
WHERE key_id = $1 AND (last_used IS NULL OR last_used < now() - interval '1 minute')
"""

MEMORY_SECONDS = 2.0  # cache time of a key: a revoked key is rejected after it at the latest
MAX_REMEMBERED = 10_000
MAX_NAME = 100
MAX_NETWORKS = 100
TOUCH_AFTER = timedelta(minutes=1)
MAX_OVERLAP = timedelta(days=30)  # after a rotation both keys are valid for a time
_ALL = Scope.deployment()
log = get_logger("access.keys")


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
    replaces: str | None = None  # the key that it replaced
    replaced_by: str | None = None
    first_used: datetime | None = None
    first_address: str | None = None  # the client address of the first request

    def may(self, scope: KeyScope) -> bool:
        return scope in self.scopes

    @property
    def scope(self) -> Scope:
        """The tenants that the key may use."""
        return Scope.deployment() if self.is_global else Scope(self.tenants)

    def is_valid(self, now: datetime) -> bool:
        return self.revoked is None and (self.expires is None or now < self.expires)

    def admits(self, address: str | None) -> bool:
        """Return whether the key allows the client address; a key without networks allows all."""
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
    """The settings of a new key."""

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
        """Store a new key by its digest; a caller cannot create a key with more rights than its own."""
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
            await record_event(connection, actor, "keys.create", key_id, details, tenant=_only(wanted.tenants))
            row = await connection.fetchrow(_FIND, key_id)
            assert row is not None
            await _record_created(connection, _key(row), actor)
        return _key(row)

    async def find(self, scope: Scope, key_id: str) -> tuple[ApiKey, bytes] | None:
        """Return the key and its digest, also if revoked or expired; None outside the scope."""
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
            return [_key(row) for row in await connection.fetch(_LIST, scope.uids())]

    async def revoke(self, scope: Scope, key_id: str, actor: Actor) -> bool:
        """Revoke a key; return whether a key was revoked."""
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_REVOKE, scope.uids(), key_id)
            if row is None:
                await confirm_earlier(connection)
                return False
            tenants = frozenset(cast("Sequence[UUID]", row["tenants"]))
            await record_event(connection, actor, "keys.revoke", key_id, {"name": row["name"]}, tenant=_only(tenants))
            revoked = KeyRevoked(key_id, str(row["name"]), actor.name)
            await record(connection, [new_event(revoked, _only(tenants), key_id)])
        return True

    async def rotate(
        self, scope: Scope, key_id: str, new_id: str, digest: bytes, *, overlap: float, actor: Actor
    ) -> ApiKey:
        """Store a new key with the rights of the old one, which expires after the overlap in seconds."""
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(f"{_FIND} FOR UPDATE", key_id)
            key = None if row is None else _key(row)
            if key is None or not _sees(scope, key) or not key.is_valid(datetime.now(UTC)):
                raise KeyNotFound("There is no valid key with this id.")
            if key.replaced_by is not None:
                raise KeyNotFound(f"This key was rotated already; `{key.replaced_by}` replaced it.")
            await connection.execute(_ROTATE, key_id, new_id, digest, actor.name)
            await connection.execute(_END, key_id, overlap, new_id)
            rows = [await connection.fetchrow(_FIND, each) for each in (key_id, new_id)]
            ended, made = (_key(each) for each in rows if each is not None)
            details = {
                "name": key.name,
                "before": {"id": key_id, "expires": key.expires},
                "after": {"id": new_id, "expires": made.expires, "oldExpires": ended.expires},
            }
            await record_event(connection, actor, "keys.rotate", key_id, details, tenant=_only(key.tenants))
            await _record_created(connection, made, actor)
        return made

    async def touch(self, scope: Scope, key_id: str, address: str | None) -> None:
        """Record the use of a key, at most once a minute, and the address of its first use."""
        async with self._database.connection() as connection:
            await connection.execute(_TOUCH, key_id, address)


async def _record_created(connection: Connection, key: ApiKey, actor: Actor) -> None:
    """Write the event of a new key; a key of several tenants concerns the deployment."""
    scopes, tenants = tuple(sorted(key.scopes)), tuple(sorted(key.tenants))
    created = KeyCreated(key.key_id, key.name, scopes, tenants, key.expires, key.replaces, actor.name)
    await record(connection, [new_event(created, _only(key.tenants), key.key_id)])


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
        first_used=cast("datetime | None", row["first_used"]),
        first_address=None if row["first_address"] is None else str(row["first_address"]),
    )


def _sees(scope: Scope, key: ApiKey) -> bool:
    return scope.tenants is None or (not key.is_global and key.tenants <= scope.tenants)


def _only(tenants: frozenset[UUID]) -> UUID | None:
    """Return the tenant for the audit event, if it is only one."""
    return next(iter(tenants)) if len(tenants) == 1 else None


class ApiKeys:
    """Creates, checks, rotates and revokes keys; caches checked keys for two seconds."""

    def __init__(self, store: KeyStore, pepper: KeyRing, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._texts = KeyTexts(pepper)
        self._mac = Mac(pepper, KEY_PURPOSE)
        self._clock = clock
        self._remembered: dict[str, tuple[float, tuple[ApiKey, bytes] | None]] = {}

    async def create(self, scope: Scope, wanted: NewKey, actor: Actor) -> tuple[ApiKey, str]:
        """Create a key; return it and its text, which cannot be shown again."""
        checked = _checked(wanted)
        key_id, text = self._texts.new()
        return await self._store.create(scope, key_id, self._mac.sign(text.encode()), checked, actor), text

    async def list(self, scope: Scope) -> Sequence[ApiKey]:
        """Return the keys of the scope, oldest first."""
        return await self._store.list(scope)

    async def find(self, scope: Scope, key_id: str) -> ApiKey:
        """Return a key of the scope, valid or not."""
        found = await self._store.find(scope, key_id)
        if found is None:
            raise KeyNotFound("There is no key with this id.")
        return found[0]

    async def rotate(self, scope: Scope, key_id: str, overlap: timedelta, actor: Actor) -> tuple[ApiKey, str]:
        """Create a key with the same rights; the old key is valid until the overlap ends."""
        if not timedelta(0) <= overlap <= MAX_OVERLAP:
            raise SchemaViolation(f"The old key stays good for at most {MAX_OVERLAP.days} days.")
        new_id, text = self._texts.new()
        digest = self._mac.sign(text.encode())
        made = await self._store.rotate(scope, key_id, new_id, digest, overlap=overlap.total_seconds(), actor=actor)
        self._remembered.pop(key_id, None)
        return made, text

    async def revoke(self, scope: Scope, key_id: str, actor: Actor) -> bool:
        """Revoke a key, effective everywhere within seconds; return whether it existed."""
        revoked = await self._store.revoke(scope, key_id, actor)
        self._remembered.pop(key_id, None)
        return revoked

    async def authenticate(self, text: str, address: str | None) -> ApiKey:
        """Return the valid key of this text for this client address, or raise InvalidCredentials.

        Only texts with a valid proof cause a query: see `KeyTexts`.
        """
        key_id = self._texts.id_in(text)
        found = await self._find(key_id) if key_id is not None else None
        if found is None:
            raise _unknown_key()
        key, digest = found
        now = datetime.now(UTC)
        if not self._mac.verify(text.encode(), digest) or not key.is_valid(now):
            raise _unknown_key()
        if not key.admits(address):
            raise InvalidCredentials("This API key is not valid from this address.", scheme="apikey")
        if key.last_used is None or now - key.last_used >= TOUCH_AFTER:
            await self._store.touch(_ALL, key.key_id, address)
            self._remembered.pop(key.key_id, None)  # the next call must read the new time
        return key

    async def _find(self, key_id: str) -> tuple[ApiKey, bytes] | None:
        now = self._clock()
        remembered = self._remembered.get(key_id)
        if remembered is not None and now < remembered[0]:
            return remembered[1]
        found = await self._store.find(_ALL, key_id)
        if len(self._remembered) >= MAX_REMEMBERED:
            self._remembered.clear()
        # The cache time starts before the query, so that it is never exceeded.
        self._remembered[key_id] = (now + MEMORY_SECONDS, found)
        return found


def _checked(wanted: NewKey) -> NewKey:
    name = unicodedata.normalize("NFC", wanted.name.strip())
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise SchemaViolation(f"A key's name has 1 to {MAX_NAME} printable characters.")
    if not wanted.scopes:
        raise CommandError("A key without a scope has no use. Give it at least one scope.")
    if len(wanted.networks) > MAX_NETWORKS:
        raise SchemaViolation(f"A key has at most {MAX_NETWORKS} networks.")
    if wanted.expires is not None and wanted.expires <= datetime.now(UTC):
        raise SchemaViolation("A key cannot expire before it is made.")
    return NewKey(name, wanted.scopes, wanted.tenants, wanted.networks, wanted.expires)


def _unknown_key() -> InvalidCredentials:
    return InvalidCredentials("This API key is not known, or no longer valid.", scheme="apikey")
