"""Setup links in PostgreSQL: each lets one user choose a name, a password and a second factor, once.

Security: secrets pass through here. Only a digest of a link is stored. The transaction that creates the user spends
the link, so that of two concurrent uses one succeeds. A token that was not issued here causes no query.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import cast
from uuid import UUID

from msgspec import Struct

from mailwarden.access.audit import record_event
from mailwarden.access.factors import NewPasskey, insert_passkey, insert_recovery_codes
from mailwarden.access.sessions import SignedTokens
from mailwarden.access.users import (
    USER_COLUMNS,
    NewUser,
    Position,
    Role,
    User,
    check_tenants,
    insert_user,
    lock_user,
    user_of,
)
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.errors import Forbidden, LinkInvalid, UserNotFound
from mailwarden.model.scope import Actor, Scope

FIRST_RUN_HOURS = 24
INVITE_HOURS = 72
MAX_LINKS = 200
_PURPOSE = b"mailwarden setup links 1"
_ALL = Scope.deployment()

_COLUMNS = "link_id, digest, purpose, user_id, email, role, tenants, created, created_by, expires"
_SEEN = "($1::uuid[] IS NULL OR (cardinality(tenants) > 0 AND tenants <@ $1))"
_INSERT = """
INSERT INTO setup_links (digest, purpose, user_id, email, role, tenants, created_by, expires)
VALUES ($1, $2, $3, $4, $5, $6, $7, now() + make_interval(hours => $8))
"""
_FIRST_RUN_IS_OVER = "(purpose = 'first-run' AND EXISTS (SELECT FROM users))"
_OPEN = f"""
SELECT {_COLUMNS}, (SELECT name FROM users WHERE uid = user_id) AS name FROM setup_links
WHERE digest = $1 AND expires > now() AND NOT {_FIRST_RUN_IS_OVER}
    AND NOT EXISTS (SELECT FROM users WHERE uid = user_id
        AND (disabled IS NOT NULL OR users.role <> setup_links.role OR users.tenants <> setup_links.tenants))
"""  # noqa: S608 -- constants of this file
_LIST = f"""
SELECT {_COLUMNS}, (SELECT name FROM users WHERE uid = user_id) AS name FROM setup_links
WHERE {_SEEN} AND expires > now() AND NOT {_FIRST_RUN_IS_OVER} ORDER BY created DESC LIMIT {MAX_LINKS}
"""  # noqa: S608
_SPEND = f"DELETE FROM setup_links WHERE digest = $1 AND expires > now() RETURNING {_COLUMNS}, NULL AS name"  # noqa: S608
_WITHDRAW = f"DELETE FROM setup_links WHERE {_SEEN} AND link_id = $2 RETURNING email"  # noqa: S608
_ONE = f"SELECT {USER_COLUMNS} FROM users WHERE uid = $1 AND disabled IS NULL"  # noqa: S608
_RENEW = "UPDATE users SET password = $2, totp = $3, totp_step = $4 WHERE uid = $1"


class Purpose(StrEnum):
    FIRST_RUN = "first-run"
    INVITE = "invite"
    RENEW = "renew"


class SetupLink(Struct, frozen=True):
    """A link without its token; `name` is the existing user, if there is one."""

    link_id: UUID
    digest: bytes
    purpose: Purpose
    user_id: UUID | None
    name: str | None
    email: str
    position: Position
    created: datetime
    created_by: str
    expires: datetime


class Credentials(Struct, frozen=True):
    """The chosen credentials: a password and one second factor."""

    uid: UUID  # the uid of the existing or the new user
    name: str
    password_hash: str
    recovery: tuple[bytes, ...]
    totp: bytes | None = None
    totp_step: int = 0
    passkey: NewPasskey | None = None


class LinkStore:
    """All SQL about setup links."""

    def __init__(self, database: Database, pepper: KeyRing) -> None:
        self._database = database
        self._tokens = SignedTokens(pepper, _PURPOSE)

    async def create_first(self, scope: Scope, actor: Actor) -> str:
        """Return the token of a link for the first user; earlier first links become invalid."""
        if scope.tenants is not None:
            raise Forbidden("Only the whole deployment has a first user.")
        position = Position(Role.DEPLOYMENT_ADMINISTRATOR)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute("DELETE FROM setup_links WHERE purpose = 'first-run'")
            return await self._insert(connection, Purpose.FIRST_RUN, position, actor, hours=FIRST_RUN_HOURS)

    async def invite(self, scope: Scope, position: Position, email: str, actor: Actor) -> str:
        """Return the token of a link for a new user; a caller cannot give more rights than its own."""
        position.check()
        if not position.is_within(scope):
            raise Forbidden("You may invite users to your own tenants only.")
        async with self._database.connection() as connection, connection.transaction():
            await check_tenants(connection, position)
            return await self._insert(connection, Purpose.INVITE, position, actor, email=email)

    async def renew(self, scope: Scope, user: User, actor: Actor) -> str:
        """Return the token of a link to set new credentials; an older link of the user becomes invalid."""
        async with self._database.connection() as connection, connection.transaction():
            user = await lock_user(connection, scope, user.uid)  # the current state: the role may have changed
            position = Position(user.role, user.tenants)
            if not position.is_within(scope):
                raise UserNotFound("There is no such user.")
            await connection.execute("DELETE FROM setup_links WHERE user_id = $1", user.uid)
            return await self._insert(connection, Purpose.RENEW, position, actor, email=user.email, user=user)

    async def list(self, scope: Scope) -> Sequence[SetupLink]:
        """Return the unused links of the scope, newest first."""
        async with self._database.connection() as connection:
            return [_link(row) for row in await connection.fetch(_LIST, scope.uids())]

    async def withdraw(self, scope: Scope, link_id: UUID, actor: Actor) -> bool:
        """Withdraw a link; return whether it existed."""
        async with self._database.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_WITHDRAW, scope.uids(), link_id)
            if row is None:
                await confirm_earlier(connection)
                return False
            await record_event(connection, actor, "users.withdraw", str(link_id), {"before": {"email": row["email"]}})
        return True

    async def find(self, scope: Scope, token: str) -> SetupLink:
        """Return the link of a token, or raise LinkInvalid; a token that was not issued here causes no query."""
        return await self.open(scope, self._digest(token))

    async def open(self, scope: Scope, digest: bytes) -> SetupLink:
        """Return the link, or raise LinkInvalid; the token is enough in any scope, and the link stays valid."""
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_OPEN, digest)
        if row is None:
            raise _spent()
        return _link(row)

    async def redeem(self, scope: Scope, digest: bytes, chosen: Credentials, actor: Actor) -> User:
        """Spend the link and create the user, or replace all credentials of an existing user."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(6, 1)")
            row = await connection.fetchrow(_SPEND, digest)
            if row is None:
                raise _spent()
            link = _link(row)
            if link.purpose is Purpose.FIRST_RUN and await connection.fetchval("SELECT EXISTS (SELECT FROM users)"):
                raise _spent()
            if link.user_id is None:
                wanted = NewUser(chosen.name, link.position, link.email, uid=chosen.uid)
                user = await insert_user(connection, _ALL, wanted, actor)
            else:
                user = await _renewed(connection, link.user_id, link.position, actor)
            await connection.execute(_RENEW, user.uid, chosen.password_hash, chosen.totp, chosen.totp_step)
            await insert_recovery_codes(connection, user.uid, chosen.recovery)
            if chosen.passkey is not None:
                await insert_passkey(connection, user, chosen.passkey, actor)
            row = await connection.fetchrow(_ONE, user.uid)
        assert row is not None
        return user_of(row)

    def _digest(self, token: str) -> bytes:
        digest = self._tokens.digest(token)
        if digest is None:
            raise _spent()
        return digest

    async def _insert(
        self,
        connection: Connection,
        purpose: Purpose,
        position: Position,
        actor: Actor,
        *,
        email: str = "",
        user: User | None = None,
        hours: int = INVITE_HOURS,
    ) -> str:
        await connection.execute("DELETE FROM setup_links WHERE expires <= now()")
        token = self._tokens.new()
        tenants = sorted(position.tenants)
        user_id = None if user is None else user.uid
        await connection.execute(
            _INSERT, self._digest(token), purpose.value, user_id, email, position.role.value, tenants, actor.name, hours
        )
        details = {"after": {"purpose": purpose.value, "role": position.role.value, "tenants": tenants, "email": email}}
        subject = "first user" if purpose is Purpose.FIRST_RUN else email or "somebody"
        tenant = tenants[0] if len(tenants) == 1 else None
        subject = subject if user is None else f"user:{user.name}"
        await record_event(connection, actor, "users.link", subject, details, tenant=tenant)
        return token


async def _renewed(connection: Connection, user_id: UUID, position: Position, actor: Actor) -> User:
    """Delete the user's credentials and return the user."""
    row = await connection.fetchrow(_ONE, user_id)
    if row is None:
        raise _spent()
    user = user_of(row)
    if position != Position(user.role, user.tenants):  # the link was made for another role
        raise _spent()
    await connection.execute("DELETE FROM passkeys WHERE user_id = $1", user_id)
    await connection.execute("DELETE FROM sessions WHERE user_id = $1", user_id)
    before = {"password": user.has_password, "totp": user.has_totp, "passkeys": user.passkeys}
    tenant = next(iter(user.tenants)) if len(user.tenants) == 1 else None
    await record_event(connection, actor, "users.renew", f"user:{user.name}", {"before": before}, tenant=tenant)
    return user


def _link(row: Row) -> SetupLink:
    return SetupLink(
        link_id=cast("UUID", row["link_id"]),
        digest=cast("bytes", row["digest"]),
        purpose=Purpose(str(row["purpose"])),
        user_id=cast("UUID | None", row["user_id"]),
        name=cast("str | None", row["name"]),
        email=str(row["email"]),
        position=Position(Role(str(row["role"])), frozenset(cast("Sequence[UUID]", row["tenants"]))),
        created=cast("datetime", row["created"]),
        created_by=str(row["created_by"]),
        expires=cast("datetime", row["expires"]),
    )


def _spent() -> LinkInvalid:
    return LinkInvalid("This link is used up or too old. Ask for a new one.")
