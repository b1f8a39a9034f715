"""Tenants and their domains in PostgreSQL: the one place that reads and writes them."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.access.audit import record_deed
from mailwarden.access.domains import NotADomain, normalise_domain
from mailwarden.access.scope_value import uids_of
from mailwarden.database.pool import Connection, Database, Row
from mailwarden.errors import DomainTaken, GlobalScopeForbidden, NameTaken, SchemaViolation, TenantNotFound
from mailwarden.model.actor import Actor
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import Profile, Tenant

MAX_NAME = 100
MAX_DOMAINS = 1_000
MAX_RETENTION = 100_000
MAX_WEIGHTS = 50  # they travel with each message, in one header

_LIST = """
SELECT uid, name, is_default, profile, retention_days, weights, quarantine_days, quarantine_digest,
       ARRAY(SELECT domain FROM tenant_domains WHERE tenant = uid ORDER BY domain) AS domains
FROM tenants WHERE $1::uuid[] IS NULL OR uid = ANY($1)
ORDER BY lower(name)
"""
_INSERT = "INSERT INTO tenants (name, profile, retention_days, quarantine_digest) VALUES ($1, $2, $3, $4) RETURNING uid"
_LOCK = "SELECT uid FROM tenants WHERE uid = $1 FOR UPDATE"
_UPDATE = "UPDATE tenants SET name = $2, profile = $3, retention_days = $4, quarantine_digest = $5 WHERE uid = $1"
_WEIGH = "UPDATE tenants SET weights = $2 WHERE uid = $1"
_HOLD = "UPDATE tenants SET quarantine_days = $2 WHERE uid = $1"
_DROP_DOMAINS = "DELETE FROM tenant_domains WHERE tenant = $1 AND domain <> ALL ($2::text[])"
_TAKEN = """
SELECT domain, name FROM tenant_domains JOIN tenants ON tenant = uid WHERE domain = ANY($1::text[]) ORDER BY domain
"""
_INSERT_DOMAINS = "INSERT INTO tenant_domains (domain, tenant) SELECT unnest($1::text[]), $2"


NOBODY = Actor("system")


class Wishes(Struct, frozen=True):
    """What a tenant is to be; without a retention its history is kept as long as the deployment's."""

    name: str
    domains: Sequence[str] = ()
    profile: Profile = Profile.BALANCED
    retention_days: int | None = None
    quarantine_digest: bool = False

    @classmethod
    def of(cls, tenant: Tenant) -> "Wishes":
        return cls(tenant.name, tenant.domains, tenant.profile, tenant.retention_days, tenant.quarantine_digest)

    def checked(self) -> "Wishes":
        """Return them in their one form, or say what cannot be."""
        days = self.retention_days
        if days is not None and not 1 <= days <= MAX_RETENTION:
            raise SchemaViolation(f"History is kept for 1 to {MAX_RETENTION:,} days.")
        return replace(self, name=_checked_name(self.name), domains=_checked_domains(self.domains))

    def tenant(self, uid: UUID, *, is_default: bool = False) -> Tenant:
        return Tenant(
            uid,
            self.name,
            is_default,
            self.profile,
            tuple(self.domains),
            self.retention_days,
            quarantine_digest=self.quarantine_digest,
        )


class TenantStore:
    """All SQL about tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        scope: Scope,
        name: str,
        domains: Sequence[str] = (),
        profile: Profile = Profile.BALANCED,
        *,
        retention_days: int | None = None,
        quarantine_digest: bool = False,
        actor: Actor = NOBODY,
    ) -> Tenant:
        """Make a tenant with its domains, all or nothing."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may make a tenant.")
        wanted = Wishes(name, domains, profile, retention_days, quarantine_digest).checked()
        async with self._database.connection() as connection, connection.transaction():
            try:
                given = (wanted.name, profile, retention_days, quarantine_digest)
                uid = cast("UUID", await connection.fetchval(_INSERT, *given))
            except asyncpg.UniqueViolationError:
                raise _name_taken(wanted.name) from None
            await _give_domains(connection, uid, wanted.domains)
            await record_deed(connection, actor, "tenants.create", wanted.name, {"after": wanted}, tenant=uid)
        return wanted.tenant(uid)

    async def change(self, scope: Scope, uid: UUID, wishes: "Wishes", actor: Actor) -> Tenant:
        """Give a tenant another name, profile, retention and other domains, all or nothing."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may change a tenant.")
        wanted = wishes.checked()
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, uid)
            try:
                given = (wanted.name, wanted.profile, wanted.retention_days, wanted.quarantine_digest)
                await connection.execute(_UPDATE, uid, *given)
            except asyncpg.UniqueViolationError:
                raise _name_taken(wanted.name) from None
            await connection.execute(_DROP_DOMAINS, uid, wanted.domains)
            await _give_domains(connection, uid, [each for each in wanted.domains if each not in before.domains])
            details = {"before": Wishes.of(before), "after": wanted}
            await record_deed(connection, actor, "tenants.change", wanted.name, details, tenant=uid)
        kept = {"weights": before.weights, "quarantine_days": before.quarantine_days}
        return replace(wanted.tenant(uid, is_default=before.is_default), **kept)

    async def weigh(self, scope: Scope, uid: UUID, weights: Mapping[str, int], actor: Actor) -> Tenant:
        """Let these rules, and no others, weigh otherwise for a tenant; what a rule may weigh is checked before."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may change a tenant.")
        if len(weights) > MAX_WEIGHTS:
            raise SchemaViolation(f"A tenant has at most {MAX_WEIGHTS} weights of its own.")
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, uid)
            wanted = dict(sorted(weights.items()))
            await connection.execute(_WEIGH, uid, msgspec.json.encode(wanted).decode())
            details = {"before": {"weights": before.weights}, "after": {"weights": wanted}}
            await record_deed(connection, actor, "tenants.weigh", before.name, details, tenant=uid)
        return replace(before, weights=wanted)

    async def hold(self, scope: Scope, uid: UUID, days: Mapping[str, int], actor: Actor) -> Tenant:
        """Keep a tenant's held messages for these days, by verdict or `default`, and else for the deployment's."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may change a tenant.")
        wanted = _checked_days(days)
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, uid)
            await connection.execute(_HOLD, uid, msgspec.json.encode(wanted).decode())
            details = {"before": {"quarantineDays": before.quarantine_days}, "after": {"quarantineDays": wanted}}
            await record_deed(connection, actor, "tenants.hold", before.name, details, tenant=uid)
        return replace(before, quarantine_days=wanted)

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


async def _give_domains(connection: Connection, uid: UUID, domains: Sequence[str]) -> None:
    taken = await connection.fetch(_TAKEN, domains)
    if taken:
        sentences = [f"`{row['domain']}` belongs to the tenant `{row['name']}`" for row in taken]
        raise DomainTaken(f"A domain belongs to one tenant: {', '.join(sentences)}.")
    try:
        await connection.execute(_INSERT_DOMAINS, domains, uid)
    except asyncpg.UniqueViolationError:  # another call took it since we looked
        raise DomainTaken("A domain belongs to one tenant: one of these was given to another just now.") from None


def _name_taken(name: str) -> NameTaken:
    return NameTaken(f"A tenant named `{name}` exists already.")


def _tenant(row: Row) -> Tenant:
    return Tenant(
        uid=cast("UUID", row["uid"]),
        name=str(row["name"]),
        is_default=bool(row["is_default"]),
        profile=Profile(str(row["profile"])),
        domains=tuple(cast("Sequence[str]", row["domains"])),
        retention_days=cast("int | None", row["retention_days"]),
        weights=msgspec.json.decode(cast("str", row["weights"]), type=dict[str, int]),
        quarantine_days=msgspec.json.decode(cast("str", row["quarantine_days"]), type=dict[str, int]),
        quarantine_digest=bool(row["quarantine_digest"]),
    )


async def _locked(connection: Connection, uid: UUID) -> Tenant:
    """Return a tenant whom nobody else changes until the transaction ends."""
    await connection.fetchval(_LOCK, uid)
    rows = await connection.fetch(_LIST, [uid])
    if not rows:
        raise TenantNotFound(f"There is no tenant {uid}.")
    return _tenant(rows[0])


def _checked_days(days: Mapping[str, int]) -> dict[str, int]:
    for verdict, number in days.items():
        if verdict not in (*Verdict, "default"):
            raise SchemaViolation(f"`{verdict}` is no verdict; `default` means all others.")
        if not 1 <= number <= MAX_RETENTION:
            raise SchemaViolation(f"Held messages are kept for 1 to {MAX_RETENTION:,} days.")
    return dict(sorted(days.items()))


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
