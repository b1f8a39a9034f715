"""Tenants in PostgreSQL: their settings and domains, changed with an audit event."""

import unicodedata
from collections.abc import Mapping, Sequence
from typing import cast
from uuid import UUID

import asyncpg
import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from mailwarden.access.audit import record_event
from mailwarden.access.tenant_domains import NotADomain, normalise_domain
from mailwarden.database.pool import Connection, Database, Row
from mailwarden.errors import DomainTaken, GlobalScopeForbidden, NameTaken, SchemaViolation, TenantNotFound
from mailwarden.events.catalogue import TenantChanged, TenantCreated, first
from mailwarden.events.outbox import new_event, record
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.model.tenant import Profile, Tenant

MAX_NAME = 100
MAX_DOMAINS = 1_000
MAX_RETENTION = 100_000
MAX_WEIGHTS = 50  # all are sent with each message to guard
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
SYSTEM = Actor("system")
_SETTING_NAMES = ("name", "domains", "profile", "retentionDays", "quarantineDigest")


class TenantSettings(Struct, frozen=True):
    """The settings of a tenant; without a retention the deployment's applies."""

    name: str
    domains: Sequence[str] = ()
    profile: Profile = Profile.BALANCED
    retention_days: int | None = None
    quarantine_digest: bool = False

    @classmethod
    def of(cls, tenant: Tenant) -> "TenantSettings":
        return cls(tenant.name, tenant.domains, tenant.profile, tenant.retention_days, tenant.quarantine_digest)

    def checked(self) -> "TenantSettings":
        """Return the normalised settings, or raise SchemaViolation."""
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
        actor: Actor = SYSTEM,
    ) -> Tenant:
        """Create a tenant with its domains, atomically."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may make a tenant.")
        wanted = TenantSettings(name, domains, profile, retention_days, quarantine_digest).checked()
        async with self._database.connection() as connection, connection.transaction():
            try:
                given = (wanted.name, profile, retention_days, quarantine_digest)
                uid = cast("UUID", await connection.fetchval(_INSERT, *given))
            except asyncpg.UniqueViolationError:
                raise _name_taken(wanted.name) from None
            await _give_domains(connection, uid, wanted.domains)
            await record_event(connection, actor, "tenants.create", wanted.name, {"after": wanted}, tenant=uid)
            created = TenantCreated(wanted.name, first(wanted.domains), actor.name)
            await record(connection, [new_event(created, uid, uid)])
        return wanted.tenant(uid)

    async def change(self, scope: Scope, uid: UUID, wishes: "TenantSettings", actor: Actor) -> Tenant:
        """Change a tenant's settings and domains, atomically."""
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
            await _give_domains(connection, uid, [domain for domain in wanted.domains if domain not in before.domains])
            details = {"before": TenantSettings.of(before), "after": wanted}
            await record_event(connection, actor, "tenants.change", wanted.name, details, tenant=uid)
            await _record_changed(connection, uid, wanted.name, _differences(TenantSettings.of(before), wanted), actor)
        kept = {"weights": before.weights, "quarantine_days": before.quarantine_days}
        return replace(wanted.tenant(uid, is_default=before.is_default), **kept)

    async def set_weights(self, scope: Scope, uid: UUID, weights: Mapping[str, int], actor: Actor) -> Tenant:
        """Replace a tenant's rule weights; the caller has checked their bounds."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may change a tenant.")
        if len(weights) > MAX_WEIGHTS:
            raise SchemaViolation(f"A tenant has at most {MAX_WEIGHTS} weights of its own.")
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, uid)
            wanted = dict(sorted(weights.items()))
            await connection.execute(_WEIGH, uid, msgspec.json.encode(wanted).decode())
            details = {"before": {"weights": before.weights}, "after": {"weights": wanted}}
            await record_event(connection, actor, "tenants.weights", before.name, details, tenant=uid)
            await _record_changed(connection, uid, before.name, ["weights"], actor)
        return replace(before, weights=wanted)

    async def change_weights(
        self,
        scope: Scope,
        uid: UUID,
        wanted: Mapping[str, int | None],
        actor: Actor,
        *,
        expected: Mapping[str, int | None] | None = None,
        why: Mapping[str, object] | None = None,
    ) -> Tenant | None:
        """Set or remove the weights of some rules; the caller has checked their bounds. All others stay.

        If a weight is not as expected, change nothing and return None. `why` is added to the audit event.
        """
        if not scope.allows(uid):
            raise TenantNotFound(f"There is no tenant {uid}.")
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, uid)
            if any(before.weights.get(rule) != weight for rule, weight in (expected or {}).items()):
                return None
            merged: dict[str, int | None] = {**before.weights, **wanted}
            weights = {rule: weight for rule, weight in sorted(merged.items()) if weight is not None}
            if len(weights) > max(MAX_WEIGHTS, len(before.weights)):
                raise SchemaViolation(f"A tenant has at most {MAX_WEIGHTS} overridden weights. Remove one first.")
            if weights != before.weights:
                await connection.execute(_WEIGH, uid, msgspec.json.encode(weights).decode())
                details = {"before": {"weights": before.weights}, "after": {"weights": weights}, **(why or {})}
                await record_event(connection, actor, "tenants.weights", before.name, details, tenant=uid)
                await _record_changed(connection, uid, before.name, ["weights"], actor)
        return replace(before, weights=weights)

    async def hold(self, scope: Scope, uid: UUID, days: Mapping[str, int], actor: Actor) -> Tenant:
        """Replace a tenant's quarantine retention, by verdict or `default`; the deployment's apply otherwise."""
        if scope.tenants is not None:
            raise GlobalScopeForbidden("Only the whole deployment may change a tenant.")
        wanted = _checked_days(days)
        async with self._database.connection() as connection, connection.transaction():
            before = await _locked(connection, uid)
            await connection.execute(_HOLD, uid, msgspec.json.encode(wanted).decode())
            details = {"before": {"quarantineDays": before.quarantine_days}, "after": {"quarantineDays": wanted}}
            await record_event(connection, actor, "tenants.hold", before.name, details, tenant=uid)
            await _record_changed(connection, uid, before.name, ["quarantineDays"], actor)
        return replace(before, quarantine_days=wanted)

    async def list(self, scope: Scope) -> Sequence[Tenant]:
        """Return the tenants of the scope with their domains, by name."""
        async with self._database.connection() as connection:
            return [_tenant(row) for row in await connection.fetch(_LIST, scope.uids())]

    async def version(self, scope: Scope) -> int:
        """Return the version, which changes with every change of a tenant or domain; it is the same in every scope."""
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval("SELECT version FROM tenants_version"))

    async def snapshot(self, scope: Scope) -> tuple[int, Sequence[Tenant]]:
        """Return the tenants of the scope and their version."""
        async with (
            self._database.connection() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            version = cast("int", await connection.fetchval("SELECT version FROM tenants_version"))
            return version, [_tenant(row) for row in await connection.fetch(_LIST, scope.uids())]


async def _record_changed(connection: Connection, uid: UUID, name: str, changed: Sequence[str], actor: Actor) -> None:
    """Write the event of changed settings; without a difference there is none."""
    if changed:
        await record(connection, [new_event(TenantChanged(name, first(changed), actor.name), uid, uid)])


def _differences(before: TenantSettings, after: TenantSettings) -> list[str]:
    """Return the names of the settings that differ, as the API writes them."""
    old, new = (dict(zip(_SETTING_NAMES, astuple(each), strict=True)) for each in (before, after))
    return [name for name in _SETTING_NAMES if old[name] != new[name]]


async def _give_domains(connection: Connection, uid: UUID, domains: Sequence[str]) -> None:
    taken = await connection.fetch(_TAKEN, domains)
    if taken:
        sentences = [f"`{row['domain']}` belongs to the tenant `{row['name']}`" for row in taken]
        raise DomainTaken(f"A domain belongs to one tenant: {', '.join(sentences)}.")
    try:
        await connection.execute(_INSERT_DOMAINS, domains, uid)
    except asyncpg.UniqueViolationError:  # a concurrent call took it
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
    """Return a tenant, locked until the transaction ends."""
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
    """Return the normalised domains, sorted so that concurrent calls lock in one order."""
    if len(domains) > MAX_DOMAINS:
        raise SchemaViolation(f"A tenant has at most {MAX_DOMAINS} domains.")
    found = set()
    for domain in domains:
        try:
            found.add(normalise_domain(domain))
        except NotADomain as error:
            raise SchemaViolation(f"`{domain}` cannot be a tenant's domain. {error}") from None
    return tuple(sorted(found))
