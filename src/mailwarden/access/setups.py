"""Setting a person up from a link: a name and a password, then a second factor, then they are in.

Security: strangers talk to this. Nothing is made and the link stays good until the last step is proven; between the
steps everything lies sealed in the visit's session.
"""

import secrets
from uuid import uuid4

import msgspec

from mailwarden.access.factor_store import NewPasskey
from mailwarden.access.login import Logins
from mailwarden.access.one_time_codes import new_recovery_codes, new_secret, recovery_digest, step_of
from mailwarden.access.passkeys import ask_for_new, read_new
from mailwarden.access.passwords import check_password
from mailwarden.access.people import checked_name
from mailwarden.access.place import Place
from mailwarden.access.registry import Registry
from mailwarden.access.sessions import Notes, Session
from mailwarden.access.setup_links import Credentials, SetupLink
from mailwarden.errors import LinkSpent, LoginFailed, NameTaken
from mailwarden.model.scope import Scope

CODES = "codes"  # the recovery codes among what the next page shows once
_ALL = Scope.deployment()


class Setups:
    """Leads whoever opened a link to their first session."""

    def __init__(self, registry: Registry, logins: Logins) -> None:
        self._links = registry.links
        self._users = registry.users
        self._sessions = registry.sessions
        self._passwords = registry.passwords
        self._pepper = registry.pepper
        self._seal = registry.seal
        self._now = registry.now
        self._logins = logins

    async def open(self, token: str, place: Place) -> tuple[Session, str]:
        """Begin a visit that remembers the link; the link itself is not spent by looking at it."""
        link = await self._links.find(_ALL, token)
        notes = Notes(link=link.digest, uid=link.person or uuid4(), name=link.name or "")
        return await self._sessions.link_visit(place, notes)

    async def link_of(self, visit: Session) -> SetupLink:
        """Return the link that the visit came by, as long as it is good."""
        if visit.notes.link is None:
            raise LinkSpent("Open the setup link again.")
        return await self._links.open(_ALL, visit.notes.link)

    async def choose(self, visit: Session, name: str, password: str) -> Session:
        """Take a name and a password; whom the link lets in again keeps their name."""
        link = await self.link_of(visit)
        chosen = link.name or checked_name(name)
        password = check_password(password, chosen)
        if link.name is None and await self._users.find_name(_ALL, chosen) is not None:
            raise NameTaken(f"The name `{chosen}` is taken.")
        hashed = await self._passwords.hash(password)
        notes = msgspec.structs.replace(visit.notes, name=chosen, password_hash=hashed, totp=new_secret())
        return await self._sessions.remember(visit, notes)

    async def prove_totp(self, visit: Session, code: str, place: Place) -> tuple[Session, str]:
        """Make the person with the authenticator whose code this is; return their first session."""
        notes = visit.notes
        step = step_of(notes.totp, code, self._now()) if notes.totp and notes.uid else None
        if step is None or notes.uid is None:
            raise LoginFailed("The code is wrong. Look at your authenticator and type the newest one.")
        sealed = self._seal.close(notes.totp.encode(), b"totp:" + notes.uid.bytes)
        return await self._finish(visit, place, "password and code", totp=sealed, step=step)

    async def offer_passkey(self, visit: Session, place: Place) -> tuple[Session, str]:
        """Return what a browser needs to make a passkey, and the visit that remembers the challenge."""
        await self.link_of(visit)
        if visit.notes.uid is None or visit.notes.password_hash is None:
            raise LinkSpent("Choose a name and a password first.")
        challenge = secrets.token_bytes(32)
        options = ask_for_new(place, visit.notes.uid.bytes, visit.notes.name, challenge, [])
        return await self._sessions.remember(visit, msgspec.structs.replace(visit.notes, challenge=challenge)), options

    async def prove_passkey(self, visit: Session, answer: str, place: Place) -> tuple[Session, str]:
        """Make the person with the passkey that the browser made; return their first session."""
        challenge = await self._sessions.take_challenge(visit)
        made = read_new(place, answer, challenge, "First passkey")
        return await self._finish(visit, place, "passkey", passkey=made)

    async def _finish(
        self,
        visit: Session,
        place: Place,
        method: str,
        *,
        totp: bytes | None = None,
        step: int = 0,
        passkey: NewPasskey | None = None,
    ) -> tuple[Session, str]:
        notes = visit.notes
        if notes.link is None or notes.uid is None or notes.password_hash is None:
            raise LinkSpent("Open the setup link again.")
        codes = new_recovery_codes()
        digests = tuple(recovery_digest(code, self._pepper) for code in codes)
        chosen = Credentials(notes.uid, notes.name, notes.password_hash, digests, totp, step, passkey)
        user = await self._links.redeem(_ALL, notes.link, chosen, place.actor(notes.name))
        shown = Notes(shown={CODES: "\n".join(codes)})
        return await self._logins.complete(visit, user, method, place, shown)
