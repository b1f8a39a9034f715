"""Tenants and their domains in PostgreSQL: the one place that reads and writes them."""

import unicodedata
from collections.abc import Sequence
from typing import cast
from uuid import UUID

import asyncpg

from mailwarden.access.domains import NotADomain, normalise_domain
from mailwarden.database.pool import Connection, Database, Row
from mailwarden.errors import CommandError, GlobalScopeForbidden, SchemaViolation
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant

MAX_NAME = 100
MAX_DOMAINS = 1_000

_LIST = """
SELECT uid, name, is_default, profile,
       ARRAY(SELECT domain FROM tenant_domains WHERE tenant = uid ORDER BY domain) AS domains
FROM tenants WHERE $1::uuid[] IS NULL OR uid = ANY($1)
ORDER BY lower(name)
"""
_INSERT = "INSERT INTO tenants (name, profile) VALUES ($1, $2) RETURNING uid"
_TAKEN = """
SELECT domain, name FROM tenant_domains JOIN tenants ON tenant = uid WHERE domain = ANY($1::text[]) ORDER BY domain
"""
_INSERT_DOMAINS = "INSERT INTO tenant_domains (domain, tenant) SELECT unnest($1::text[]), $2"


class TenantStore:
    """All SQL about tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, scope: Scope, name: str, domains: Sequence[str] = (), profile: Profile = Profile.BALANCED
    ) -> Tenant:
        """Make a tenant with its domains, all or nothing."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may make a tenant.")
        name, wanted = _checked_name(name), _checked_domains(domains)
        async with self._database.connection() as connection, connection.transaction():
            try:
                uid = cast("UUID", await connection.fetchval(_INSERT, name, profile))
            except asyncpg.UniqueViolationError:
                raise CommandError(f"A tenant named `{name}` exists already.") from None
            await _give_domains(connection, uid, wanted)
        return Tenant(uid, name, profile=profile, domains=wanted)

    async def list(self, scope: Scope) -> Sequence[Tenant]:
        """Return the tenants of the scope with their domains, by name."""
        async with self._database.connection() as connection:
            return [_tenant(row) for row in await connection.fetch(_LIST, uids_of(scope))]

    async def version(self, scope: Scope) -> int:
        """Return the number that changes whenever a tenant or a domain does; it is the same in every scope."""
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval("SELECT version FROM tenants_version"))

    async def snapshot(self, scope: Scope) -> tuple[int, Sequence[Tenant]]:
        """Return the tenants of the scope together with the version they belong to."""
        async with (
            self._database.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            version = cast("int", await connection.fetchval("SELECT version FROM tenants_version"))
            return version, [_tenant(row) for row in await connection.fetch(_LIST, uids_of(scope))]


def uids_of(scope: Scope) -> Sequence[UUID] | None:
    """Return the scope as a parameter of SQL: NULL is every tenant, and no tenant is an empty array."""
    return None if scope.tenants is None else sorted(scope.tenants)


async def _give_domains(connection: Connection, uid: UUID, domains: Sequence[str]) -> None:
    taken = await connection.fetch(_TAKEN, domains)
    if taken:
        sentences = [f"`{row['domain']}` belongs to the tenant `{row['name']}`" for row in taken]
        raise CommandError(f"A domain belongs to one tenant: {', '.join(sentences)}.")
    try:
        await connection.execute(_INSERT_DOMAINS, domains, uid)
    except asyncpg.UniqueViolationError:  # another call took it since we looked
        raise CommandError("A domain belongs to one tenant: one of these was given to another just now.") from None


def _tenant(row: Row) -> Tenant:
    return Tenant(
        uid=cast("UUID", row["uid"]),
        name=str(row["name"]),
        is_default=bool(row["is_default"]),
        profile=Profile(str(row["profile"])),
        domains=tuple(cast("Sequence[str]", row["domains"])),
    )


def _checked_name(name: str) -> str:
    trimmed = unicodedata.normalize("NFC", name.strip())
    if not 1 <= len(trimmed) <= MAX_NAME or not trimmed.isprintable():
        raise SchemaViolation(f"A tenant's name has 1 to {MAX_NAME} printable characters.")
    return trimmed


def _checked_domains(domains: Sequence[str]) -> tuple[str, ...]:
    """Return the domains in their one form, sorted so that concurrent calls lock in one order."""
    if len(domains) > MAX_DOMAINS:
        raise SchemaViolation(f"A tenant has at most {MAX_DOMAINS} domains.")
    found = set()
    for domain in domains:
        try:
            found.add(normalise_domain(domain))
        except NotADomain as error:
            raise SchemaViolation(f"`{domain}` cannot be a tenant's domain. {error}") from None
    return tuple(sorted(found))
