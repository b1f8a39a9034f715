"""Sessions of the console: a random cookie value, and a new one at every login.

A visit is a session before login: it is encrypted in its cookie and has no row. It gets a row after a valid setup link
or password. So a request without a valid credential causes no query. Signed tokens carry a MAC, so that a forged token
is rejected before any query.

Security: secrets pass through here. The cookie value is never stored or logged. A login replaces the visit with a new
session, value and CSRF token.
"""

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import msgspec
from msgspec import Struct

from mailwarden.access.session_store import SessionRow, SessionStore
from mailwarden.access.users import User
from mailwarden.crypto.keyring import ID, BrokenSeal, KeyRing
from mailwarden.crypto.mac import SIZE, Mac, equal
from mailwarden.crypto.seal import Seal
from mailwarden.model.scope import Actor

_RANDOM = 30  # bytes; with the MAC they need no base64 padding, so that each token has one form
TOKEN_LENGTH = (_RANDOM + SIZE) * 4 // 3
_TOKEN_FORM = re.compile(rf"[A-Za-z0-9_-]{{{TOKEN_LENGTH}}}")


COOKIE = "__Host-mailwarden"
COOKIE_ATTRIBUTES = "Path=/; Secure; HttpOnly; SameSite=Lax"
VISIT_SECONDS = 30 * 60.0  # seconds for a whole login or setup
TOUCH_SECONDS = 60.0
MAX_AGENT = 200
MAX_GOAL = 1_500  # bytes; browsers drop a cookie beyond 4,096
_COOKIE_PURPOSE = b"mailwarden console cookies 1"
_VISIT_PURPOSE = b"mailwarden console visits 1"
_CLOCKS = timedelta(minutes=5)  # tolerated clock difference between abby and PostgreSQL
_VISIT = re.compile(r"v\.([A-Za-z0-9_-]{1,4096})")


class ClientOrigin(Struct, frozen=True):
    """The client's address and user agent; `site` is the origin in the browser, `https://mail.example:9081`."""

    site: str
    address: str | None = None
    agent: str = ""
    request_id: str = ""

    @property
    def host(self) -> str:
        try:
            return urlsplit(self.site).hostname or ""
        except ValueError:  # a malformed Host header
            return ""

    @property
    def takes_passkeys(self) -> bool:
        """Return whether the site supports passkeys: browsers need a host name, not an IP address."""
        try:
            ip_address(self.host)
        except ValueError:
            return bool(self.host)
        return False

    def actor(self, name: str) -> Actor:
        return Actor(f"user:{name}", self.address, self.request_id)


class SignedTokens:
    """Issues and verifies tokens of one purpose, also after a rotation of the pepper."""

    def __init__(self, pepper: KeyRing, purpose: bytes) -> None:
        self._mac = Mac(pepper, purpose)

    def new(self) -> str:
        random = secrets.token_bytes(_RANDOM)
        return base64.urlsafe_b64encode(random + self._mac.sign(random)).decode("ascii")

    def digest(self, token: str) -> bytes | None:
        """Return the digest to store and to search for: key id and SHA-256. None for a token not issued here."""
        if not _TOKEN_FORM.fullmatch(token):
            return None
        raw = base64.urlsafe_b64decode(token)
        random, signed = raw[:_RANDOM], raw[_RANDOM:]
        if not self._mac.verify(random, signed):
            return None
        return signed[:ID] + hashlib.sha256(raw).digest()


class SessionLimits(Struct, frozen=True):
    """Seconds without a request, and seconds in all, after which a session ends."""

    idle: float = 30 * 60.0
    absolute: float = 12 * 3600.0


class Notes(Struct, frozen=True, omit_defaults=True):
    """The state of a session between two requests; encrypted at rest."""

    user_id: UUID | None = None  # the user with a valid password, who owes a code
    link: bytes | None = None  # the opened setup link
    uid: UUID | None = None  # the user of the setup link
    name: str = ""
    password_hash: str | None = None
    totp: str = ""  # a secret that no code has confirmed yet
    challenge: bytes | None = None  # of a passkey
    state: str = ""  # of OpenID Connect, with the next two
    nonce: str = ""
    verifier: str = ""
    goal: str = ""  # the page after login
    shown: dict[str, str] = {}  # secrets that the next page shows once


class Session(Struct, frozen=True):
    """The session of a request; without a user it is a visit before login."""

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
    stored: bool = True  # False for a visit without a row

    def admits(self, csrf: str) -> bool:
        """Return whether this is the session's CSRF token, in constant time."""
        return equal(self.csrf.encode(), csrf.encode("utf-8", "replace"))


class _Carried(Struct, frozen=True):
    """The encrypted content of a visit's cookie."""

    visit_id: UUID
    csrf: str
    created: datetime
    expires: datetime
    notes: Notes


class Sessions:
    """Starts, finds and ends sessions."""

    def __init__(self, store: SessionStore, seal: Seal, pepper: KeyRing, limits: SessionLimits | None = None) -> None:
        self._store = store
        self._seal = seal
        self._tokens = SignedTokens(pepper, _COOKIE_PURPOSE)
        self._visits = Seal(pepper, _VISIT_PURPOSE)
        self.limits = limits or SessionLimits()

    def visit(self, notes: Notes | None = None) -> tuple[Session, str]:
        """Start a visit; return it and the cookie value that holds it."""
        now = datetime.now(UTC)
        expires = now + timedelta(seconds=VISIT_SECONDS)
        return self._carry(_Carried(uuid4(), secrets.token_urlsafe(32), now, expires, notes or Notes()))

    async def link_visit(self, origin: ClientOrigin, notes: Notes) -> tuple[Session, str]:
        """Start a stored visit for a valid setup link."""
        return await self._open(None, origin, notes)

    async def note(self, visit: Session, notes: Notes) -> tuple[Session, str | None]:
        """Store new notes in a visit; return it, and the new cookie value of a visit without a row."""
        if visit.stored:
            return await self.remember(visit, notes), None
        return self._carry(_Carried(uuid4(), visit.csrf, visit.created, visit.expires, notes))

    async def spend(self, visit: Session) -> bool:
        """Return whether this is the first use of a visit's cookie; of two concurrent requests one is first."""
        return await self._store.spend(visit.digest, visit.expires + _CLOCKS)

    async def renew(self, visit: Session, origin: ClientOrigin, notes: Notes) -> tuple[Session, str]:
        """Replace a visit with a stored one after a successful step."""
        return await self._open(None, origin, notes, instead_of=visit)

    async def log_in(
        self, visit: Session, user: User, method: str, origin: ClientOrigin, notes: Notes | None = None
    ) -> tuple[Session, str]:
        """Start the session of an authenticated user in place of the visit."""
        return await self._open(user.uid, origin, notes, method=method, instead_of=visit)

    async def find(self, value: str) -> Session | None:
        """Return the session of a cookie value with the current user; None if it has ended.

        Only a value that was issued here causes a query.
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
        """Store new notes, if no other request changed them meanwhile."""
        sealed = self._sealed(session.digest, notes)
        if not await self._store.write_notes(session.digest, sealed, session.sealed):
            return session
        return msgspec.structs.replace(session, notes=notes, sealed=sealed)

    async def show_next(self, session: Session, shown: dict[str, str]) -> None:
        """Let the next page show a secret once; this overrides notes of concurrent requests."""
        notes = msgspec.structs.replace(session.notes, shown=shown)
        await self._store.force_notes(session.digest, self._sealed(session.digest, notes))

    async def take_shown(self, session: Session, name: str) -> dict[str, str]:
        """Return and delete the secret of this name; one request gets it."""
        shown = session.notes.shown
        if name not in shown:
            return {}
        notes = msgspec.structs.replace(session.notes, shown={})
        kept = await self.remember(session, notes)
        return shown if kept is not session else {}

    async def take_challenge(self, session: Session) -> bytes | None:
        """Return and delete the browser's challenge: it is valid for one answer."""
        challenge = session.notes.challenge
        if challenge is None:
            return None
        if not session.stored:
            return challenge if await self.spend(session) else None
        kept = await self.remember(session, msgspec.structs.replace(session.notes, challenge=None))
        return challenge if kept is not session else None

    async def list(self, user: User) -> Sequence[Session]:
        """Return the user's sessions, last used first."""
        return [self._session(row) for row in await self._store.list(user.uid, self.limits.idle)]

    async def end(self, session: Session) -> None:
        await self._store.end(session.digest)

    async def end_one(self, user: User, session_id: UUID) -> bool:
        return await self._store.end_one(user.uid, session_id)

    async def end_others(self, session: Session) -> None:
        """End the user's other sessions."""
        assert session.user is not None
        await self._store.end_all(session.user.uid, but=session.digest)

    async def end_all(self, uid: UUID) -> None:
        await self._store.end_all(uid)

    async def _open(
        self,
        user_id: UUID | None,
        origin: ClientOrigin,
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
            user_id,
            method=method,
            csrf=secrets.token_urlsafe(32),
            notes=self._sealed(digest, notes or Notes()),
            address=origin.address,
            agent="".join(letter for letter in origin.agent if letter.isprintable())[:MAX_AGENT],
            seconds=VISIT_SECONDS if user_id is None else self.limits.absolute,
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
        """Return the visit in a cookie, if it decrypts and has not expired."""
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
            notes = Notes()  # the pepper changed: the login starts again
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
    """Return the Set-Cookie header of a session cookie with the value."""
    return f"{COOKIE}={value}; {COOKIE_ATTRIBUTES}"


def end_cookie_header() -> str:
    """Return the Set-Cookie header that deletes the cookie."""
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
