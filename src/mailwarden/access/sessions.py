"""Sessions of the console: a random value in a cookie, its digest in PostgreSQL, a new one at every login.

A visit, which has not logged in, is sealed into its cookie and has no row. It gets one after the first proof: a setup
link or a right password. So a request without a valid credential causes no query.

Security: secrets pass through here. The value is never stored or logged; a session that has not logged in never
becomes one that has: its place is taken by another with another value and another CSRF token.
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from mailwarden.access.people import User
from mailwarden.access.place import Place
from mailwarden.access.proven_token import ProvenTokens
from mailwarden.access.session_store import SessionRow, SessionStore
from mailwarden.crypto.keyring import BrokenSeal, KeyRing
from mailwarden.crypto.mac import equal
from mailwarden.crypto.seal import Seal

COOKIE = "__Host-mailwarden"
COOKIE_ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Lax"
VISIT_SECONDS = 30 * 60.0  # for a login or a setup, from its first page to its last
TOUCH_SECONDS = 60.0
MAX_AGENT = 200
MAX_GOAL = 1_500  # bytes; browsers drop a cookie beyond 4,096
_COOKIE_PURPOSE = b"mailwarden console cookies 1"
_VISIT_PURPOSE = b"mailwarden console visits 1"
_CLOCKS = timedelta(minutes=5)  # how far the clocks of abby and PostgreSQL may differ
_VISIT = re.compile(r"v\.([A-Za-z0-9_-]{1,4096})")


class SessionLimits(Struct, frozen=True):
    """Seconds without a request, and seconds in all, after which a session ends."""

    idle: float = 30 * 60.0
    absolute: float = 12 * 3600.0


class Notes(Struct, frozen=True, omit_defaults=True):
    """What a session remembers between two steps; sealed at rest."""

    person: UUID | None = None  # whose password was right: a code is awaited
    link: bytes | None = None  # the setup link that was opened
    uid: UUID | None = None  # whom it makes, or lets in again
    name: str = ""
    password_hash: str | None = None
    totp: str = ""  # a secret that was shown and not proven yet
    challenge: bytes | None = None  # of a passkey
    state: str = ""  # of OpenID Connect, with the next two
    nonce: str = ""
    verifier: str = ""
    goal: str = ""  # where to go after the login
    shown: dict[str, str] = {}  # what the next page shows once


class Session(Struct, frozen=True):
    """One session as a request sees it; without a user it has not logged in."""

    session_id: UUID
    digest: bytes
    csrf: str
    method: str
    created: datetime
    last_seen: datetime
    expires: datetime
    address: str | None
    agent: str
    notes: Notes
    sealed: bytes
    user: User | None
    stored: bool = True  # False: a visit that only its cookie holds

    def admits(self, csrf: str) -> bool:
        """Tell whether this is the session's CSRF token, in constant time."""
        return equal(self.csrf.encode(), csrf.encode("utf-8", "replace"))


class _Carried(Struct, frozen=True):
    """A visit as its cookie holds it, sealed."""

    visit_id: UUID
    csrf: str
    created: datetime
    expires: datetime
    notes: Notes


class Sessions:
    """Begins, finds, and ends sessions."""

    def __init__(self, store: SessionStore, seal: Seal, pepper: KeyRing, limits: SessionLimits | None = None) -> None:
        self._store = store
        self._seal = seal
        self._tokens = ProvenTokens(pepper, _COOKIE_PURPOSE)
        self._visits = Seal(pepper, _VISIT_PURPOSE)
        self.limits = limits or SessionLimits()

    def visit(self, notes: Notes | None = None) -> tuple[Session, str]:
        """Begin a session that has not logged in; return it and its cookie's value, which holds all of it."""
        now = datetime.now(UTC)
        expires = now + timedelta(seconds=VISIT_SECONDS)
        return self._carry(_Carried(uuid4(), secrets.token_urlsafe(32), now, expires, notes or Notes()))

    async def link_visit(self, place: Place, notes: Notes) -> tuple[Session, str]:
        """Begin the visit of a valid setup link, which is stored."""
        return await self._open(None, place, notes)

    async def note(self, visit: Session, notes: Notes) -> tuple[Session, str | None]:
        """Keep other notes with a visit; return it, and its cookie's new value where the cookie holds it."""
        if visit.stored:
            return await self.remember(visit, notes), None
        return self._carry(_Carried(uuid4(), visit.csrf, visit.created, visit.expires, notes))

    async def spend(self, visit: Session) -> bool:
        """Tell whether this is the first use of what a visit's cookie holds; of two requests at once one is first."""
        return await self._store.spend(visit.digest, visit.expires + _CLOCKS)

    async def renew(self, visit: Session, place: Place, notes: Notes) -> tuple[Session, str]:
        """Put another visit, which is stored, in the place of one that has come a step further."""
        return await self._open(None, place, notes, instead_of=visit)

    async def log_in(
        self, visit: Session, user: User, method: str, place: Place, notes: Notes | None = None
    ) -> tuple[Session, str]:
        """Begin the session of a person who proved who they are, in the place of the visit that they came with."""
        return await self._open(user.uid, place, notes, method=method, instead_of=visit)

    async def find(self, value: str) -> Session | None:
        """Return the session of a cookie's value with its person as they are now; None where it has ended.

        Only a value that was issued here is searched for in the database.
        """
        if (carried := _VISIT.fullmatch(value)) is not None:
            return self._carried(carried.group(1))
        digest = self._tokens.digest(value)
        if digest is None:
            return None
        row = await self._store.find(digest, self.limits.idle)
        if row is None:
            return None
        now = datetime.now(UTC)
        rare = min(TOUCH_SECONDS, self.limits.idle / 4)
        if row.user is not None and now - row.last_seen >= timedelta(seconds=rare):
            await self._store.touch(row.digest)
        return self._session(row)

    async def remember(self, session: Session, notes: Notes) -> Session:
        """Keep other notes with the session, if nothing changed them since it was read."""
        sealed = self._sealed(session.digest, notes)
        if not await self._store.write_notes(session.digest, sealed, session.sealed):
            return session
        return msgspec.structs.replace(session, notes=notes, sealed=sealed)

    async def show_next(self, session: Session, shown: dict[str, str]) -> None:
        """Have the next page show a secret that nobody can show again; it wins over whatever another request noted."""
        notes = msgspec.structs.replace(session.notes, shown=shown)
        await self._store.force_notes(session.digest, self._sealed(session.digest, notes))

    async def take_shown(self, session: Session, name: str) -> dict[str, str]:
        """Return what the next page shows, if that is the one of this name, and forget it: one request gets it."""
        shown = session.notes.shown
        if name not in shown:
            return {}
        notes = msgspec.structs.replace(session.notes, shown={})
        kept = await self.remember(session, notes)
        return shown if kept is not session else {}

    async def take_challenge(self, session: Session) -> bytes | None:
        """Return the challenge that a browser was given, and forget it: it is good for one answer, wrong or right."""
        challenge = session.notes.challenge
        if challenge is None:
            return None
        if not session.stored:
            return challenge if await self.spend(session) else None
        kept = await self.remember(session, msgspec.structs.replace(session.notes, challenge=None))
        return challenge if kept is not session else None

    async def list(self, user: User) -> Sequence[Session]:
        """Return the person's sessions, the last used first."""
        return [self._session(row) for row in await self._store.list(user.uid, self.limits.idle)]

    async def end(self, session: Session) -> None:
        await self._store.end(session.digest)

    async def end_one(self, user: User, session_id: UUID) -> bool:
        return await self._store.end_one(user.uid, session_id)

    async def end_others(self, session: Session) -> None:
        """End every other session of the person."""
        assert session.user is not None
        await self._store.end_all(session.user.uid, but=session.digest)

    async def end_all(self, uid: UUID) -> None:
        await self._store.end_all(uid)

    async def _open(
        self,
        person: UUID | None,
        place: Place,
        notes: Notes | None,
        *,
        method: str = "",
        instead_of: Session | None = None,
    ) -> tuple[Session, str]:
        value = self._tokens.new()
        digest = self._tokens.digest(value)
        assert digest is not None
        await self._store.create(
            digest,
            person,
            method=method,
            csrf=secrets.token_urlsafe(32),
            notes=self._sealed(digest, notes or Notes()),
            address=place.address,
            agent="".join(letter for letter in place.agent if letter.isprintable())[:MAX_AGENT],
            seconds=VISIT_SECONDS if person is None else self.limits.absolute,
            instead_of=instead_of.digest if instead_of is not None and instead_of.stored else None,
        )
        row = await self._store.find(digest, self.limits.idle)
        if row is None:  # disabled between two statements
            raise LookupError("the session ended at once")
        return self._session(row), value

    def _carry(self, carried: _Carried) -> tuple[Session, str]:
        sealed = self._visits.close(msgspec.json.encode(carried), b"visit")
        value = "v." + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii")
        return _visit(carried, sealed), value

    def _carried(self, text: str) -> Session | None:
        """Return the visit that a cookie holds, if it was sealed here and its time is not over."""
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            carried = msgspec.json.decode(self._visits.open(sealed, b"visit"), type=_Carried)
        except (binascii.Error, BrokenSeal, msgspec.MsgspecError):
            return None
        return _visit(carried, sealed) if datetime.now(UTC) < carried.expires else None

    def _sealed(self, digest: bytes, notes: Notes) -> bytes:
        return self._seal.close(msgspec.json.encode(notes), b"session:" + digest)

    def _session(self, row: SessionRow) -> Session:
        try:
            notes = msgspec.json.decode(self._seal.open(row.notes, b"session:" + row.digest), type=Notes)
        except (BrokenSeal, msgspec.MsgspecError):
            notes = Notes()  # the pepper changed: whatever step it was, it begins anew
        return Session(
            session_id=row.session_id,
            digest=row.digest,
            csrf=row.csrf,
            method=row.method,
            created=row.created,
            last_seen=row.last_seen,
            expires=row.expires,
            address=row.address,
            agent=row.agent,
            notes=notes,
            sealed=row.notes,
            user=row.user,
        )


def cookie_header(value: str) -> str:
    """Return the Set-Cookie header that gives a browser the value; it goes when the browser does."""
    return f"{COOKIE}={value}; {COOKIE_ATTRIBUTES}"


def end_cookie_header() -> str:
    """Return the Set-Cookie header that takes it away."""
    return f"{COOKIE}=; {COOKIE_ATTRIBUTES}; Max-Age=0"


def _visit(carried: _Carried, sealed: bytes) -> Session:
    return Session(
        session_id=carried.visit_id,
        digest=hashlib.sha256(sealed).digest(),
        csrf=carried.csrf,
        method="",
        created=carried.created,
        last_seen=carried.created,
        expires=carried.expires,
        address=None,
        agent="",
        notes=carried.notes,
        sealed=sealed,
        user=None,
        stored=False,
    )
