"""Login by password and code or by passkey, and the setup of a user through a setup link.

Security: unauthenticated callers use this. Attempts are counted before they are made, an unknown name costs as much
work as a known one, every failed login gets the same error, and a login always starts a new session. Setup creates the
user only after the last step; until then the choices are encrypted in the visit's session.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import msgspec

from mailwarden.access.factors import (
    FactorStore,
    NewPasskey,
    Passwords,
    check_password,
    creation_options,
    credential_in,
    looks_like_recovery,
    new_recovery_codes,
    new_totp_secret,
    recovery_candidates,
    recovery_digest,
    request_options,
    totp_context,
    totp_step,
    verify_assertion,
    verify_creation,
)
from mailwarden.access.rate_limits import PER_ADDRESS, PER_CODE, PER_NAME, ThrottleStore, address_subject, name_subject
from mailwarden.access.session_store import SessionStore
from mailwarden.access.sessions import ClientOrigin, Notes, Session, SessionLimits, Sessions
from mailwarden.access.setup_links import Credentials, LinkStore, SetupLink
from mailwarden.access.users import User, UserStore, checked_name
from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.crypto.seal import Seal
from mailwarden.database.pool import Database
from mailwarden.errors import LinkInvalid, LoginFailed, NameTaken
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger

CONSOLE_SEAL = b"mailwarden console seal 1"

_ALL = Scope.deployment()
_log = get_logger("access.login")

CODES = "codes"  # the name under which the next page shows the recovery codes


@dataclass(frozen=True, slots=True)
class Registry:
    """The stores and secrets that login, setup and accounts share."""

    users: UserStore
    factors: FactorStore
    links: LinkStore
    sessions: Sessions
    throttle: ThrottleStore
    passwords: Passwords
    pepper: KeyRing
    seal: Seal
    now: Callable[[], float] = time.time


def build_registry(
    database: Database,
    pepper: KeyRing,
    limits: SessionLimits | None = None,
    *,
    passwords: Passwords | None = None,
    now: Callable[[], float] = time.time,
) -> Registry:
    """Return the registry over one database; close its passwords at the end."""
    seal = Seal(pepper, CONSOLE_SEAL)
    return Registry(
        users=UserStore(database),
        factors=FactorStore(database),
        links=LinkStore(database, pepper),
        sessions=Sessions(SessionStore(database), seal, pepper, limits),
        throttle=ThrottleStore(database),
        passwords=passwords or Passwords(),
        pepper=pepper,
        seal=seal,
        now=now,
    )


class Logins:
    """Turns a visit into a user's session."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def check_password(
        self, visit: Session, name: str, password: str, origin: ClientOrigin
    ) -> tuple[Session, str]:
        """Return a new visit that waits for a code, and its cookie value; or raise LoginFailed."""
        named, addressed = name_subject(name), address_subject(origin.address)
        by_address, _ = await self._registry.throttle.take((addressed, PER_ADDRESS), (named, PER_NAME))
        found = await self._registry.users.find_name(_ALL, name.strip())
        user, stored = found or (None, None)
        matched = await self._registry.passwords.matches(stored, password)
        if user is None or not matched or user.disabled:
            await self._refuse("password", user, origin)
            raise LoginFailed("The name or the password is wrong.")
        await self._registry.throttle.forget(named)
        await self._registry.throttle.give_back(by_address)
        if stored is not None and self._registry.passwords.is_outdated(stored):
            await self._registry.users.set_password(_ALL, user.uid, await self._registry.passwords.hash(password), None)
        notes = Notes(user_id=user.uid, goal=visit.notes.goal)
        return await self._registry.sessions.renew(visit, origin, notes)

    async def check_code(self, visit: Session, code: str, origin: ClientOrigin) -> tuple[Session, str]:
        """Return the user's session if the code is valid after a valid password."""
        user_id = visit.notes.user_id
        if user_id is None:
            raise LoginFailed("Begin with your name and password.")
        subject = f"code:{user_id}"
        by_address, _ = await self._registry.throttle.take(
            (address_subject(origin.address), PER_ADDRESS), (subject, PER_CODE)
        )
        user = await self._registry.users.find(_ALL, user_id)
        method = None if user is None or user.disabled else await self._method_of(user, code)
        if user is None or method is None:
            await self._refuse("code", user, origin)
            raise LoginFailed("The code is wrong, or it was used already. Wait for the next one.")
        await self._registry.throttle.forget(subject)
        await self._registry.throttle.give_back(by_address)
        return await self.complete(visit, user, method, origin)

    async def offer_passkey(self, visit: Session, origin: ClientOrigin) -> tuple[Session, str | None, str]:
        """Return the visit with the challenge, its new cookie value or None, and the browser's options."""
        challenge = secrets.token_bytes(32)
        options = request_options(origin, challenge)
        notes = msgspec.structs.replace(visit.notes, challenge=challenge)
        return *await self._registry.sessions.note(visit, notes), options

    async def check_passkey(self, visit: Session, answer: str, origin: ClientOrigin) -> tuple[Session, str]:
        """Return the session of the user whose passkey answered the visit's single-use challenge.

        Attempts count separately from passwords, so that password guesses do not block passkeys.
        """
        credential = credential_in(answer)
        if visit.notes.challenge is None:
            raise LoginFailed("This passkey was not accepted; try again.")
        (attempt,) = await self._registry.throttle.take(("passkey:" + address_subject(origin.address), PER_ADDRESS))
        challenge = await self._registry.sessions.take_challenge(visit)
        passkey = await self._registry.factors.find_passkey(credential)
        user = None if passkey is None else await self._registry.users.find(_ALL, passkey.user_id)
        if passkey is None or user is None or user.disabled:
            await self._refuse("passkey", user, origin)
            raise LoginFailed("This passkey was not accepted; try again.")
        if visit.notes.user_id is not None and visit.notes.user_id != user.uid:
            raise LoginFailed("This passkey belongs to another user.")
        counter = verify_assertion(origin, answer, challenge, passkey)
        if not await self._registry.factors.use_passkey(passkey, counter):
            raise LoginFailed("This passkey was not accepted; try again.")
        await self._registry.throttle.give_back(attempt)
        return await self.complete(visit, user, "passkey", origin)

    async def complete(
        self, visit: Session, user: User, method: str, origin: ClientOrigin, notes: Notes | None = None
    ) -> tuple[Session, str]:
        """Start the session of an authenticated user, with an audit event."""
        try:
            opened = await self._registry.sessions.log_in(visit, user, method, origin, notes)
        except LookupError:
            raise LoginFailed("The name or the password is wrong.") from None
        await self._registry.users.note_login(_ALL, user.uid, origin.actor(user.name), method)
        return opened

    async def _refuse(self, step: str, user: User | None, origin: ClientOrigin) -> None:
        """Log a rejected login and record its event; the attempts are limited before."""
        _log.info("login_refused", step=step, address=origin.address)
        await self._registry.users.note_failed_login(_ALL, step, user, origin.address)

    async def _method_of(self, user: User, code: str) -> str | None:
        """Spend the code and return its kind; None for a wrong code."""
        if looks_like_recovery(code):
            spent = await self._registry.factors.spend_recovery_code(
                user.uid, recovery_candidates(code, self._registry.pepper)
            )
            return "recovery code" if spent else None
        sealed = await self._registry.factors.totp(user.uid)
        if sealed is None:
            return None
        try:
            secret = self._registry.seal.open(sealed, totp_context(user.uid)).decode()
        except BrokenSeal as error:
            _log.error("totp_not_opened", user_id=str(user.uid), reason=str(error))
            return None
        step = totp_step(secret, code, self._registry.now())
        if step is None or not await self._registry.factors.spend_step(user.uid, step):
            return None
        return "password and code"


class Setups:
    """Leads the holder of a setup link to a first session."""

    def __init__(self, registry: Registry, logins: Logins) -> None:
        self._registry = registry
        self._logins = logins

    async def open(self, token: str, origin: ClientOrigin) -> tuple[Session, str]:
        """Start a visit with the link; opening does not spend the link."""
        link = await self._registry.links.find(_ALL, token)
        notes = Notes(link=link.digest, uid=link.user_id or uuid4(), name=link.name or "")
        return await self._registry.sessions.link_visit(origin, notes)

    async def link_of(self, visit: Session) -> SetupLink:
        """Return the visit's link while it is valid."""
        if visit.notes.link is None:
            raise LinkInvalid("Open the setup link again.")
        return await self._registry.links.open(_ALL, visit.notes.link)

    async def choose(self, visit: Session, name: str, password: str) -> Session:
        """Store the chosen name and password; an existing user keeps the name."""
        link = await self.link_of(visit)
        chosen = link.name or checked_name(name)
        password = check_password(password, chosen)
        if link.name is None and await self._registry.users.find_name(_ALL, chosen) is not None:
            raise NameTaken(f"The name `{chosen}` is taken.")
        hashed = await self._registry.passwords.hash(password)
        notes = msgspec.structs.replace(visit.notes, name=chosen, password_hash=hashed, totp=new_totp_secret())
        return await self._registry.sessions.remember(visit, notes)

    async def prove_totp(self, visit: Session, code: str, origin: ClientOrigin) -> tuple[Session, str]:
        """Create the user with the authenticator of this code; return the first session."""
        notes = visit.notes
        step = totp_step(notes.totp, code, self._registry.now()) if notes.totp and notes.uid else None
        if step is None or notes.uid is None:
            raise LoginFailed("The code is wrong. Look at your authenticator and type the newest one.")
        sealed = self._registry.seal.close(notes.totp.encode(), totp_context(notes.uid))
        return await self._finish(visit, origin, "password and code", totp=sealed, step=step)

    async def offer_passkey(self, visit: Session, origin: ClientOrigin) -> tuple[Session, str]:
        """Return the visit with the challenge, and the browser's options for a passkey."""
        await self.link_of(visit)
        if visit.notes.uid is None or visit.notes.password_hash is None:
            raise LinkInvalid("Choose a name and a password first.")
        challenge = secrets.token_bytes(32)
        options = creation_options(origin, visit.notes.uid.bytes, visit.notes.name, challenge, [])
        return await self._registry.sessions.remember(
            visit, msgspec.structs.replace(visit.notes, challenge=challenge)
        ), options

    async def prove_passkey(self, visit: Session, answer: str, origin: ClientOrigin) -> tuple[Session, str]:
        """Create the user with the passkey of the browser; return the first session."""
        challenge = await self._registry.sessions.take_challenge(visit)
        made = verify_creation(origin, answer, challenge, "First passkey")
        return await self._finish(visit, origin, "passkey", passkey=made)

    async def _finish(
        self,
        visit: Session,
        origin: ClientOrigin,
        method: str,
        *,
        totp: bytes | None = None,
        step: int = 0,
        passkey: NewPasskey | None = None,
    ) -> tuple[Session, str]:
        notes = visit.notes
        if notes.link is None or notes.uid is None or notes.password_hash is None:
            raise LinkInvalid("Open the setup link again.")
        codes = new_recovery_codes()
        digests = tuple(recovery_digest(code, self._registry.pepper) for code in codes)
        chosen = Credentials(notes.uid, notes.name, notes.password_hash, digests, totp, step, passkey)
        user = await self._registry.links.redeem(_ALL, notes.link, chosen, origin.actor(notes.name))
        shown = Notes(shown={CODES: "\n".join(codes)})
        return await self._logins.complete(visit, user, method, origin, shown)
