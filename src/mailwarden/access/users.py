"""Users of the console: name, role, tenants, and their rows in PostgreSQL with an audit event for every change."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import cast
from uuid import UUID
from zoneinfo import available_timezones

import asyncpg
from msgspec import Struct

from mailwarden.access.audit import record_event
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.errors import Forbidden, LastAdministrator, NameTaken, SchemaViolation, TenantNotFound, UserNotFound
from mailwarden.events.catalogue import UserLogin, UserLoginFailed
from mailwarden.events.outbox import new_event, record
from mailwarden.model.scope import Actor, Scope

MAX_NAME = 100
MAX_EMAIL = 254
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}")
_ZONE = re.compile(r"(?=.{1,64}$)[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8}){0,2}", re.ASCII)

MAX_USERS = 1_000

USER_COLUMNS = """
users.uid, users.name, users.email, users.role, users.tenants, users.created AS user_created, users.disabled,
users.last_login, users.issuer, users.time_zone, users.language, users.password IS NOT NULL AS has_password,
users.totp IS NOT NULL AS has_totp,
(SELECT count(*) FROM passkeys WHERE passkeys.user_id = users.uid) AS passkeys
"""
# A tenant administrator sees users whose tenants are all in the scope.
_SEEN = "($1::uuid[] IS NULL OR (cardinality(tenants) > 0 AND tenants <@ $1))"
_INSERT = """
INSERT INTO users (name, email, role, tenants, password, issuer, subject, created_by, uid)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, coalesce($9, gen_random_uuid())) RETURNING uid
"""
_LIST = f"SELECT {USER_COLUMNS} FROM users WHERE {_SEEN} ORDER BY lower(name) LIMIT $2"  # noqa: S608 -- constants
_FIND = f"SELECT {USER_COLUMNS} FROM users WHERE {_SEEN} AND uid = $2"  # noqa: S608
_BY_NAME = f"SELECT {USER_COLUMNS}, password FROM users WHERE {_SEEN} AND lower(name) = lower($2)"  # noqa: S608
_BY_SUBJECT = f"SELECT {USER_COLUMNS} FROM users WHERE {_SEEN} AND issuer = $2 AND subject = $3"  # noqa: S608
_MISSING = (
    "SELECT uid FROM unnest($1::uuid[]) AS uid WHERE NOT EXISTS (SELECT FROM tenants WHERE tenants.uid = uid.uid)"
)
_HIDDEN = "SELECT unnest(hidden_steps) AS step FROM users WHERE uid = $1"
_HIDE = "UPDATE users SET hidden_steps = $2 WHERE uid = $1"
_SET_LANGUAGE = "UPDATE users SET language = $2 WHERE uid = $1"
_SET_ZONE = "UPDATE users SET time_zone = $2 WHERE uid = $1"
_ADMINISTRATORS = """
SELECT count(*) FROM users WHERE role = 'deployment-administrator' AND disabled IS NULL AND uid <> $1
"""
# The lock serialises changes of administrators, so that two of them cannot remove the last two.
_LOCK = "SELECT pg_advisory_xact_lock(6, 1)"


class Role(StrEnum):
    """The role of a user; `console/permissions.py` has the permissions."""

    DEPLOYMENT_ADMINISTRATOR = "deployment-administrator"
    TENANT_ADMINISTRATOR = "tenant-administrator"
    ANALYST = "analyst"
    AUDITOR = "auditor"


class User(Struct, frozen=True):
    """One user, without secrets."""

    uid: UUID
    name: str
    role: Role
    tenants: frozenset[UUID]
    created: datetime
    email: str = ""
    disabled: bool = False
    last_login: datetime | None = None
    has_password: bool = False
    has_totp: bool = False
    passkeys: int = 0
    issuer: str | None = None
    time_zone: str = ""  # for times in the console; empty: that of the browser
    language: str = ""  # of the console; empty: that of the browser

    @property
    def scope(self) -> Scope:
        """Return the user's scope: an analyst or auditor without tenants has the deployment."""
        if self.role is Role.DEPLOYMENT_ADMINISTRATOR:
            return Scope.deployment()
        if self.role is Role.TENANT_ADMINISTRATOR or self.tenants:
            return Scope(self.tenants)
        return Scope.deployment()


class Position(Struct, frozen=True):
    """A role and its tenants; no tenant means the deployment."""

    role: Role
    tenants: frozenset[UUID] = frozenset()

    def check(self) -> None:
        """Reject an invalid combination of role and tenants."""
        if self.role is Role.DEPLOYMENT_ADMINISTRATOR and self.tenants:
            raise SchemaViolation("A deployment administrator is bound to no tenant.")
        if self.role is Role.TENANT_ADMINISTRATOR and not self.tenants:
            raise SchemaViolation("A tenant administrator needs at least one tenant.")

    def is_within(self, scope: Scope) -> bool:
        """Return whether a caller of that scope may give it: callers cannot give more rights than their own."""
        if scope.tenants is None:
            return True
        return self.role is not Role.DEPLOYMENT_ADMINISTRATOR and bool(self.tenants) and self.tenants <= scope.tenants


def checked_name(text: str) -> str:
    """Return a login name or raise; the ASCII alphabet excludes names that look alike."""
    name = text.strip()
    if not _NAME.fullmatch(name):
        raise SchemaViolation(f"A name has 1 to {MAX_NAME} letters, digits or . _ @ + -, a letter or digit first.")
    return name


def checked_email(text: str) -> str:
    """Return the normalised address; only weekly reports are sent to it, if an administrator chooses that."""
    email = unicodedata.normalize("NFC", text.strip())
    if email and (len(email) > MAX_EMAIL or not email.isprintable() or "@" not in email or " " in email):
        raise SchemaViolation("This is no e-mail address.")
    return email


def checked_time_zone(text: str) -> str:
    """Return the name of a zone in the IANA database, or an empty text; raise SchemaViolation for another text.

    A host without that database accepts every name of the right form; a browser ignores a zone that it does not know.
    """
    zone = text.strip()
    known = available_timezones()
    if zone and (not _ZONE.fullmatch(zone) or (known and zone not in known)):
        raise SchemaViolation(f"`{zone[:64]}` is no time zone. Use a name such as Europe/Berlin or UTC.")
    return zone


def checked_language(text: str) -> str:
    """Return the code of a language (RFC 5646), or an empty text; raise SchemaViolation for another text."""
    code = text.strip()
    if code and not _LANGUAGE.fullmatch(code):
        raise SchemaViolation(f"`{code[:64]}` is no language. Use a code such as en or de.")
    return code


class NewUser(Struct, frozen=True):
    """The data of a new user; without a password a passkey or an OpenID provider authenticates the user."""

    name: str
    position: Position
    email: str = ""
    password_hash: str | None = None
    issuer: str | None = None
    subject: str | None = None
    uid: UUID | None = None  # chosen beforehand if a secret is encrypted for it


class UserStore:
    """All SQL about users, except factors, sessions and setup links."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, scope: Scope, wanted: NewUser, actor: Actor) -> User:
        """Create a user; a caller cannot give more rights than its own."""
        async with self._database.connection() as connection, connection.transaction():
            return await insert_user(connection, scope, wanted, actor)

    async def list(self, scope: Scope, limit: int = MAX_USERS) -> Sequence[User]:
        """Return the users of the scope by name."""
        async with self._database.connection() as connection:
            rows = await connection.fetch(_LIST, scope.uids(), min(limit, MAX_USERS))
        return [user_of(row) for row in rows]

    async def find(self, scope: Scope, uid: UUID) -> User | None:
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_FIND, scope.uids(), uid)
        return None if row is None else user_of(row)

    async def find_name(self, scope: Scope, name: str) -> tuple[User, str | None] | None:
        """Return the user of that name in any case, and the password hash."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_BY_NAME, scope.uids(), name)
        return None if row is None else (user_of(row), cast("str | None", row["password"]))

    async def find_subject(self, scope: Scope, issuer: str, subject: str) -> User | None:
        """Return the user of an OpenID issuer and subject."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_BY_SUBJECT, scope.uids(), issuer, subject)
        return None if row is None else user_of(row)

    async def is_empty(self, scope: Scope) -> bool:
        """Return whether no user exists in the deployment: only then the first setup link is valid."""
        async with self._database.connection() as connection:
            return not await connection.fetchval("SELECT EXISTS (SELECT FROM users)")

    async def hidden_steps(self, scope: Scope, uid: UUID) -> frozenset[str]:
        """Return the first steps that the user has hidden; users ask for their own."""
        async with self._database.connection() as connection:
            return frozenset(str(row["step"]) for row in await connection.fetch(_HIDDEN, uid))

    async def hide_steps(self, scope: Scope, uid: UUID, steps: frozenset[str]) -> None:
        """Store which first steps the user has hidden."""
        async with self._database.connection() as connection:
            await connection.execute(_HIDE, uid, sorted(steps))

    async def set_time_zone(self, scope: Scope, uid: UUID, zone: str) -> None:
        """Store the zone for the user's times; users set their own."""
        checked = checked_time_zone(zone)
        async with self._database.connection() as connection:
            await connection.execute(_SET_ZONE, uid, checked)

    async def set_language(self, scope: Scope, uid: UUID, language: str) -> None:
        """Store the language of the console for the user; users set their own."""
        checked = checked_language(language)
        async with self._database.connection() as connection:
            await connection.execute(_SET_LANGUAGE, uid, checked)

    async def move(self, scope: Scope, uid: UUID, position: Position, actor: Actor) -> User:
        """Change a user's role or tenants."""
        _check_position(scope, position)
        async with self._database.connection() as connection, connection.transaction():
            before = await lock_user(connection, scope, uid)
            await check_tenants(connection, position)
            if before.role is Role.DEPLOYMENT_ADMINISTRATOR and position.role is not before.role:
                await _keep_an_administrator(connection, uid)
            tenants = sorted(position.tenants)
            await connection.execute(
                "UPDATE users SET role = $2, tenants = $3 WHERE uid = $1", uid, position.role.value, tenants
            )
            # Sessions and links from before the change must not get the new rights.
            await connection.execute("DELETE FROM sessions WHERE user_id = $1", uid)
            await _withdraw_links(connection, before)
            after = await _found(connection, scope, uid)
            await _record(connection, actor, "users.move", after, {"before": _shown(before), "after": _shown(after)})
        return after

    async def disable(self, scope: Scope, uid: UUID, actor: Actor, *, disabled: bool = True) -> User:
        """Disable a user and end the user's sessions, or enable the user again."""
        async with self._database.connection() as connection, connection.transaction():
            before = await lock_user(connection, scope, uid)
            if before.disabled == disabled:
                await confirm_earlier(connection)
                return before
            if disabled and before.role is Role.DEPLOYMENT_ADMINISTRATOR:
                await _keep_an_administrator(connection, uid)
            moment = "now()" if disabled else "NULL"
            await connection.execute(f"UPDATE users SET disabled = {moment} WHERE uid = $1", uid)  # noqa: S608
            await connection.execute("DELETE FROM sessions WHERE user_id = $1", uid)
            await _withdraw_links(connection, before)
            after = await _found(connection, scope, uid)
            action = "users.disable" if disabled else "users.enable"
            await _record(connection, actor, action, after, {"before": _shown(before), "after": _shown(after)})
        return after

    async def set_password(self, scope: Scope, uid: UUID, password_hash: str, actor: Actor | None) -> None:
        """Store a new password hash; without an actor it is a new hash of the same password."""
        async with self._database.connection() as connection, connection.transaction():
            user = await lock_user(connection, scope, uid)
            await connection.execute("UPDATE users SET password = $2 WHERE uid = $1", uid, password_hash)
            if actor is not None:
                await connection.execute("DELETE FROM setup_links WHERE user_id = $1", uid)
                details = {"before": {"password": user.has_password}, "after": {"password": True}}
                await _record(connection, actor, "users.password", user, details)

    async def note_failed_login(self, scope: Scope, step: str, user: User | None, address: str | None) -> None:
        """Record a rejected login, as an event."""
        uid, tenant = (user.uid, _only(user)) if user else (None, None)
        failed = new_event(UserLoginFailed(step, uid, address), tenant, uid or address or "unknown")
        async with self._database.connection() as connection:
            await record(connection, [failed])

    async def note_login(self, scope: Scope, uid: UUID, actor: Actor, method: str) -> None:
        """Record a login and its method."""
        async with self._database.connection() as connection, connection.transaction():
            user = await _found(connection, scope, uid)
            await connection.execute("UPDATE users SET last_login = now() WHERE uid = $1", uid)
            await _record(connection, actor, "users.login", user, {"method": method})
            login = UserLogin(uid, user.name, method, actor.address)
            await record(connection, [new_event(login, _only(user), uid)])


def user_of(row: Row) -> User:
    """Return the user of a row with USER_COLUMNS."""
    return User(
        uid=cast("UUID", row["uid"]),
        name=str(row["name"]),
        role=Role(str(row["role"])),
        tenants=frozenset(cast("Sequence[UUID]", row["tenants"])),
        created=cast("datetime", row["user_created"]),
        email=str(row["email"]),
        disabled=row["disabled"] is not None,
        last_login=cast("datetime | None", row["last_login"]),
        has_password=bool(row["has_password"]),
        has_totp=bool(row["has_totp"]),
        passkeys=cast("int", row["passkeys"]),
        issuer=cast("str | None", row["issuer"]),
        time_zone=str(row["time_zone"]),
        language=str(row["language"]),
    )


async def insert_user(connection: Connection, scope: Scope, wanted: NewUser, actor: Actor) -> User:
    """Create a user inside the caller's transaction."""
    position = wanted.position
    _check_position(scope, position)
    await check_tenants(connection, position)
    try:
        uid = await connection.fetchval(
            _INSERT, wanted.name, wanted.email, position.role.value, sorted(position.tenants), wanted.password_hash,
            wanted.issuer, wanted.subject, actor.name, wanted.uid,
        )  # fmt: skip
    except asyncpg.UniqueViolationError:
        raise NameTaken(f"The name `{wanted.name}` is taken.") from None
    made = await _found(connection, scope, cast("UUID", uid))
    await _record(connection, actor, "users.create", made, {"after": _shown(made)})
    return made


def _check_position(scope: Scope, position: Position) -> None:
    position.check()
    if not position.is_within(scope):
        raise Forbidden("You may give roles for your own tenants only.")


async def check_tenants(connection: Connection, position: Position) -> None:
    missing = await connection.fetchval(_MISSING, sorted(position.tenants))
    if missing is not None:
        raise TenantNotFound(f"There is no tenant {missing}.")


async def lock_user(connection: Connection, scope: Scope, uid: UUID) -> User:
    """Return a user, locked until the caller's transaction ends."""
    await connection.execute(_LOCK)
    return await _found(connection, scope, uid)


async def _found(connection: Connection, scope: Scope, uid: UUID) -> User:
    row = await connection.fetchrow(_FIND, scope.uids(), uid)
    if row is None:
        raise UserNotFound("There is no such user.")
    return user_of(row)


async def _withdraw_links(connection: Connection, user: User) -> None:
    """Delete the links made by and for a user, because they carry the old rights."""
    await connection.execute(
        "DELETE FROM setup_links WHERE created_by = $1 OR user_id = $2", f"user:{user.name}", user.uid
    )


async def _keep_an_administrator(connection: Connection, uid: UUID) -> None:
    if not await connection.fetchval(_ADMINISTRATORS, uid):
        raise LastAdministrator("The deployment needs one administrator who can log in; make another one first.")


async def _record(connection: Connection, actor: Actor, action: str, user: User, details: Mapping[str, object]) -> None:
    await record_event(connection, actor, action, f"user:{user.name}", details, tenant=_only(user))


def _only(user: User) -> UUID | None:
    """Return the tenant for events, if the user has only one."""
    return next(iter(user.tenants)) if len(user.tenants) == 1 else None


def _shown(user: User) -> dict[str, object]:
    return {"role": user.role.value, "tenants": sorted(user.tenants), "disabled": user.disabled}
