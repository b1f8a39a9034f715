"""Accounts: a user's own password, authenticator, passkeys and recovery codes, and the administration of users.

Security: secrets pass through here. An open session is not enough to take over an account: every change of a
credential asks for the password first, if the user has one.
"""

import secrets
from collections.abc import Sequence
from uuid import UUID

import msgspec

from mailwarden.access.factors import (
    Passkey,
    check_password,
    creation_options,
    new_recovery_codes,
    new_totp_secret,
    recovery_digest,
    totp_context,
    totp_step,
    verify_creation,
)
from mailwarden.access.login import CODES, Registry
from mailwarden.access.rate_limits import PER_NAME, name_subject
from mailwarden.access.sessions import ClientOrigin, Session
from mailwarden.access.setup_links import SetupLink
from mailwarden.access.users import Position, User, checked_email
from mailwarden.errors import LoginFailed, SchemaViolation, UserNotFound
from mailwarden.model.scope import Actor, Scope

_ALL = Scope.deployment()


class Account:
    """Changes a logged-in user's own credentials; each method takes the user's session."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def confirm(self, session: Session, password: str) -> User:
        """Return the user after a check of the password, if the user has one."""
        user = _user(session)
        if user.has_password:
            await self._registry.throttle.take((name_subject(user.name), PER_NAME))
            found = await self._registry.users.find_name(_ALL, user.name)
            if found is None or not await self._registry.passwords.matches(found[1], password):
                raise LoginFailed("The password is wrong.")
            await self._registry.throttle.forget(name_subject(user.name))
        return user

    async def change_password(self, session: Session, current: str, wanted: str, origin: ClientOrigin) -> None:
        """Set a new password and end the user's other sessions."""
        user = await self.confirm(session, current)
        if user.issuer is not None and not user.has_password:
            raise SchemaViolation("Your organisation's login vouches for you; you have no password here.")
        hashed = await self._registry.passwords.hash(check_password(wanted, user.name))
        await self._registry.users.set_password(_ALL, user.uid, hashed, origin.actor(user.name))
        await self._registry.sessions.end_others(session)

    async def propose_totp(self, session: Session, password: str) -> Session:
        """Return the session with a new secret to show; the old secret is valid until a code confirms the new one."""
        await self.confirm(session, password)
        return await self._registry.sessions.remember(
            session, msgspec.structs.replace(session.notes, totp=new_totp_secret())
        )

    async def prove_totp(self, session: Session, code: str, origin: ClientOrigin) -> None:
        """Store the new secret if the code belongs to it."""
        user, secret = _user(session), session.notes.totp
        await self._registry.throttle.take((name_subject(user.name), PER_NAME))
        step = totp_step(secret, code, self._registry.now()) if secret else None
        if step is None:
            raise LoginFailed("The code is wrong. Look at your authenticator and type the newest one.")
        await self._registry.throttle.forget(name_subject(user.name))
        sealed = self._registry.seal.close(secret.encode(), totp_context(user.uid))
        await self._registry.factors.set_totp(user, sealed, step, origin.actor(user.name))
        await self._registry.sessions.remember(session, msgspec.structs.replace(session.notes, totp=""))

    async def passkeys(self, session: Session) -> Sequence[Passkey]:
        return await self._registry.factors.passkeys(_user(session).uid)

    async def offer_passkey(self, session: Session, password: str, origin: ClientOrigin) -> tuple[Session, str]:
        """Return the session with a challenge, and the browser's options for another passkey."""
        user = await self.confirm(session, password)
        challenge = secrets.token_bytes(32)
        known = [passkey.credential for passkey in await self._registry.factors.passkeys(user.uid)]
        options = creation_options(origin, user.uid.bytes, user.name, challenge, known)
        notes = msgspec.structs.replace(session.notes, challenge=challenge)
        return await self._registry.sessions.remember(session, notes), options

    async def add_passkey(self, session: Session, answer: str, name: str, origin: ClientOrigin) -> None:
        challenge = await self._registry.sessions.take_challenge(session)
        made = verify_creation(origin, answer, challenge, name)
        user = _user(session)
        await self._registry.factors.add_passkey(user, made, origin.actor(user.name))

    async def remove_passkey(self, session: Session, passkey_id: UUID, origin: ClientOrigin) -> bool:
        """Remove a passkey, unless it is the user's only second factor."""
        user = _user(session)
        if not user.has_totp and user.passkeys <= 1 and user.issuer is None:
            raise SchemaViolation("This is your only second factor. Add another passkey or an authenticator first.")
        return await self._registry.factors.remove_passkey(user, passkey_id, origin.actor(user.name))

    async def renew_recovery_codes(self, session: Session, password: str, origin: ClientOrigin) -> None:
        """Create ten codes for the next page to show once; earlier codes become invalid."""
        user = await self.confirm(session, password)
        codes = new_recovery_codes()
        digests = [recovery_digest(code, self._registry.pepper) for code in codes]
        await self._registry.factors.set_recovery_codes(user, digests, origin.actor(user.name))
        await self._registry.sessions.show_next(session, {CODES: "\n".join(codes)})

    async def recovery_codes_left(self, session: Session) -> int:
        return await self._registry.factors.recovery_codes_left(_user(session).uid)


def _user(session: Session) -> User:
    if session.user is None:
        raise LoginFailed("Log in first.")
    return session.user


class UserAdministration:
    """Manages the users of the caller's scope; users outside it are reported as missing."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def list(self, scope: Scope) -> Sequence[User]:
        return await self._registry.users.list(scope)

    async def links(self, scope: Scope) -> Sequence[SetupLink]:
        """Return the unused setup links."""
        return await self._registry.links.list(scope)

    async def find(self, scope: Scope, uid: UUID) -> User:
        user = await self._registry.users.find(scope, uid)
        if user is None:
            raise UserNotFound("There is no such user.")
        return user

    async def invite(self, scope: Scope, position: Position, email: str, actor: Actor) -> str:
        """Return the token of a setup link for a new user, to be shown once."""
        return await self._registry.links.invite(scope, position, checked_email(email), actor)

    async def withdraw(self, scope: Scope, link_id: UUID, actor: Actor) -> bool:
        return await self._registry.links.withdraw(scope, link_id, actor)

    async def renew(self, scope: Scope, uid: UUID, actor: Actor) -> str:
        """Return the token of a link to set new credentials, to be shown once."""
        return await self._registry.links.renew(scope, await self.find(scope, uid), actor)

    async def move(self, scope: Scope, uid: UUID, position: Position, actor: Actor) -> User:
        return await self._registry.users.move(scope, uid, position, actor)

    async def disable(self, scope: Scope, uid: UUID, actor: Actor, *, disabled: bool = True) -> User:
        return await self._registry.users.disable(scope, uid, actor, disabled=disabled)
