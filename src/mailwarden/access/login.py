"""Logging in: a password and a code, or a passkey by itself; every refusal says the same.

Security: strangers talk to this. Attempts are counted before they are made, an unknown name costs as much as a known
one, and whoever logs in gets another session than the one they came with.
"""

import secrets

import msgspec

from mailwarden.access.one_time_codes import looks_like_recovery, recovery_candidates, step_of
from mailwarden.access.passkeys import ask_for_known, credential_in, read_known
from mailwarden.access.people import User
from mailwarden.access.place import Place
from mailwarden.access.registry import Registry
from mailwarden.access.sessions import Notes, Session
from mailwarden.access.throttle import ADDRESS, CODE, NAME, address_subject, name_subject
from mailwarden.crypto.keyring import BrokenSeal
from mailwarden.errors import LoginFailed
from mailwarden.model.scope import Scope
from mailwarden.telemetry.logs import get_logger

_ALL = Scope.deployment()
_log = get_logger("access.login")


class Logins:
    """Turns a visit into a session of a person."""

    def __init__(self, registry: Registry) -> None:
        self._users = registry.users
        self._factors = registry.factors
        self._sessions = registry.sessions
        self._throttle = registry.throttle
        self._passwords = registry.passwords
        self._pepper = registry.pepper
        self._seal = registry.seal
        self._now = registry.now

    async def check_password(self, visit: Session, name: str, password: str, place: Place) -> tuple[Session, str]:
        """Return another visit, which awaits a code, and its cookie's value; or raise LoginFailed."""
        named, addressed = name_subject(name), address_subject(place.address)
        by_address, _ = await self._throttle.take((addressed, ADDRESS), (named, NAME))
        found = await self._users.find_name(_ALL, name.strip())
        user, stored = found or (None, None)
        matched = await self._passwords.matches(stored, password)
        if user is None or not matched or user.disabled:
            _log.info("login_refused", step="password", address=place.address)
            raise LoginFailed("The name or the password is wrong.")
        await self._throttle.forget(named)
        await self._throttle.give_back(by_address)
        if stored is not None and self._passwords.is_outdated(stored):
            await self._users.set_password(_ALL, user.uid, await self._passwords.hash(password), None)
        notes = Notes(person=user.uid, goal=visit.notes.goal)
        return await self._sessions.renew(visit, place, notes)

    async def check_code(self, visit: Session, code: str, place: Place) -> tuple[Session, str]:
        """Return the session of the person whose password was right, if the code is theirs."""
        person = visit.notes.person
        if person is None:
            raise LoginFailed("Begin with your name and password.")
        subject = f"code:{person}"
        by_address, _ = await self._throttle.take((address_subject(place.address), ADDRESS), (subject, CODE))
        user = await self._users.find(_ALL, person)
        method = None if user is None or user.disabled else await self._method_of(user, code)
        if user is None or method is None:
            _log.info("login_refused", step="code", address=place.address)
            raise LoginFailed("The code is wrong, or it was used already. Wait for the next one.")
        await self._throttle.forget(subject)
        await self._throttle.give_back(by_address)
        return await self.complete(visit, user, method, place)

    async def offer_passkey(self, visit: Session, place: Place) -> tuple[Session, str | None, str]:
        """Return the visit that remembers the challenge, its cookie's new value or None, and the browser's options."""
        challenge = secrets.token_bytes(32)
        options = ask_for_known(place, challenge)
        notes = msgspec.structs.replace(visit.notes, challenge=challenge)
        return *await self._sessions.note(visit, notes), options

    async def check_passkey(self, visit: Session, answer: str, place: Place) -> tuple[Session, str]:
        """Return the session of the person whose passkey answered the visit's challenge, which is good once.

        Attempts are counted apart from passwords, so that guesses at passwords lock no passkey out.
        """
        credential = credential_in(answer)
        if visit.notes.challenge is None:
            raise LoginFailed("This passkey was not accepted; try again.")
        (attempt,) = await self._throttle.take(("passkey:" + address_subject(place.address), ADDRESS))
        challenge = await self._sessions.take_challenge(visit)
        passkey = await self._factors.find_passkey(credential)
        user = None if passkey is None else await self._users.find(_ALL, passkey.person)
        if passkey is None or user is None or user.disabled:
            _log.info("login_refused", step="passkey", address=place.address)
            raise LoginFailed("This passkey was not accepted; try again.")
        if visit.notes.person is not None and visit.notes.person != user.uid:
            raise LoginFailed("This passkey belongs to another user.")
        counter = read_known(place, answer, challenge, passkey)
        if not await self._factors.use_passkey(passkey, counter):
            raise LoginFailed("This passkey was not accepted; try again.")
        await self._throttle.give_back(attempt)
        return await self.complete(visit, user, "passkey", place)

    async def complete(
        self, visit: Session, user: User, method: str, place: Place, notes: Notes | None = None
    ) -> tuple[Session, str]:
        """Begin the session of a person who has proven who they are, and write it down."""
        try:
            opened = await self._sessions.log_in(visit, user, method, place, notes)
        except LookupError:
            raise LoginFailed("The name or the password is wrong.") from None
        await self._users.note_login(_ALL, user.uid, place.actor(user.name), method)
        return opened

    async def _method_of(self, user: User, code: str) -> str | None:
        """Return what the code is of, having spent it; None where it is wrong."""
        if looks_like_recovery(code):
            spent = await self._factors.spend_recovery_code(user.uid, recovery_candidates(code, self._pepper))
            return "recovery code" if spent else None
        sealed = await self._factors.totp(user.uid)
        if sealed is None:
            return None
        try:
            secret = self._seal.open(sealed, b"totp:" + user.uid.bytes).decode()
        except BrokenSeal as error:
            _log.error("totp_not_opened", person=str(user.uid), problem=str(error))
            return None
        step = step_of(secret, code, self._now())
        if step is None or not await self._factors.spend_step(user.uid, step):
            return None
        return "password and code"
