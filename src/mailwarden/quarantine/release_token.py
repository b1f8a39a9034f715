"""The release token: a signed header field that lets a released message pass a guard once without a scan.

The field is the first of the message. It signs the ggrid, the token's uid, the expiry, the recipients of the SMTP
transaction and every byte below the field. An MTA may add trace fields above it. A message with any other field above
it (From, Subject, Content-Type, ...) has no valid token, because such a field would change the signed message.

A guard claims a token in one SQL statement before it delivers, so that of two messages with the same token, at one
guard or at two, only one passes. The claim has a limit; the guard spends the token once the next hop has accepted. If
the guard dies in between, the sender gets no 250 and retries (RFC 5321, section 4.2.5), and the retry gets the token
once the claim ends. If the guard dies after the next hop has accepted, the retry delivers a second time to the same
recipient: SMTP delivers at least once (section 6.1).

Security: reads the header block of hostile messages; a message with a valid token is not scanned.
"""

import asyncio
import base64
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import re2
from msgspec import Struct

from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import Mac
from mailwarden.database.pool import Database
from mailwarden.errors import StorageUnavailable
from mailwarden.model.scope import Scope
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.logs import get_logger

TOKEN_HOURS = 24  # long enough for an MTA on the way to retry

HEADER = "X-Mailwarden-Bypass"
MAX_HEADER = 1_048_576  # bytes of the message to search for the field
CLOCK_SKEW = timedelta(days=1)  # the clocks of guards differ, so a spent token is stored beyond its expiry
TRIES = 3
_FIELD = re.compile(
    rb"(?im)^x-mailwarden-bypass: v=1; g=([0-9a-f-]{36}); p=([0-9a-f-]{36}); e=([0-9]{1,12}); "
    rb"s=([A-Za-z0-9+/]{48})\r\n"
)
_BYTES = re2.Options()
_BYTES.encoding = re2.Options.Encoding.LATIN1
# RE2 needs no memory per line.
_FIELDS = re2.compile(rb"(?:[!-9;-~]+[ \t]*:[^\r\n]*\r\n(?:[ \t][^\r\n]*\r\n)*)*", _BYTES)
_NO_TRACE_FIELD = re.compile(
    rb"(?im)^(?:from|sender|reply-to|to|cc|subject|date|message-id|mime-version|content-[!-9;-~]*)[ \t]*:"
)
# A row blocks its token until the row expires: first for the claim of the guard that delivers, then for good.
_CLAIM = """
INSERT INTO quarantine_passes AS known (pass, expires) VALUES ($1, now() + make_interval(secs => $2))
ON CONFLICT (pass) DO UPDATE SET expires = excluded.expires WHERE known.expires < now()
RETURNING expires
"""
_IS_CLAIMED = "SELECT expires <= now() + make_interval(secs => $2) FROM quarantine_passes WHERE pass = $1"
_GIVE_BACK = "DELETE FROM quarantine_passes WHERE pass = $1 AND expires = $2"
_SPEND = """
INSERT INTO quarantine_passes (pass, expires) VALUES ($1, $2)
ON CONFLICT (pass) DO UPDATE SET expires = excluded.expires
"""
_ALL = Scope.deployment()

_log = get_logger("quarantine.release_token")


class ReleaseToken(Struct, frozen=True):
    """The ggrid of the released message, the token's own uid, and its expiry."""

    ggrid: UUID
    uid: UUID
    expires: datetime


class UnverifiedToken(Struct, frozen=True):
    """A token as found in a message; the signed bytes start at `end`."""

    token: ReleaseToken
    signature: bytes
    end: int


class ReleaseTokenSigner:
    def __init__(self, ring: KeyRing) -> None:
        self._mac = Mac(ring, b"mailwarden bypass 1")

    def field(self, token: ReleaseToken, recipients: Iterable[str], digest: bytes) -> bytes:
        """Return the header field for a message with this SHA-256."""
        signature = base64.b64encode(self._mac.sign(_signed_text(token, recipients, digest))).decode("ascii")
        moment = int(token.expires.timestamp())
        return f"{HEADER}: v=1; g={token.ggrid}; p={token.uid}; e={moment}; s={signature}\r\n".encode("ascii")

    def verify(
        self, found: UnverifiedToken, recipients: Iterable[str], digest: bytes, now: datetime
    ) -> ReleaseToken | None:
        """Return the token if it matches the message, the recipients and the time; it may be spent already."""
        signed = _signed_text(found.token, recipients, digest)
        if not self._mac.verify(signed, found.signature) or now >= found.token.expires:
            return None
        return found.token

    async def verify_message(self, raw: Spooled, recipients: Iterable[str], now: datetime) -> ReleaseToken | None:
        """Return the verified token of a message; without a token only the header block is read."""
        found = find_token(raw)
        if found is None:
            return None
        below = raw.window(found.end, raw.size - found.end)
        return self.verify(found, recipients, await asyncio.to_thread(below.sha256), now)


def _signed_text(token: ReleaseToken, recipients: Iterable[str], digest: bytes) -> bytes:
    names = sorted({recipient.lower() for recipient in recipients})
    values = (str(token.ggrid), str(token.uid), str(int(token.expires.timestamp())), str(len(names)), *names)
    return "\n".join(values).encode("utf-8", "surrogateescape") + b"\n" + digest


def find_token(raw: Spooled) -> UnverifiedToken | None:
    """Return the first token in the header block of a message, not verified."""
    head = bytearray()
    for chunk in raw.chunks():
        head += chunk
        if b"\r\n\r\n" in head or len(head) >= MAX_HEADER:
            break
    end = head.find(b"\r\n\r\n")
    match = _FIELD.search(bytes(head[: end + 2] if end >= 0 else head))
    above = b"" if match is None else match.string[: match.start()]
    if match is None or not _FIELDS.fullmatch(above) or _NO_TRACE_FIELD.search(above):
        return None
    try:
        moment = datetime.fromtimestamp(int(match[3]), UTC)
        token = ReleaseToken(UUID(match[1].decode("ascii")), UUID(match[2].decode("ascii")), moment)
    except (ValueError, OverflowError, OSError):
        return None
    return UnverifiedToken(token, base64.b64decode(match[4]), match.end())


class ReleaseTokenStore:
    """Claimed and spent tokens in PostgreSQL; a token belongs to no tenant."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, scope: Scope, token: UUID, seconds: float) -> datetime | None:
        """Claim a token for one delivery; one of all callers gets it. Return the end of the claim, or None."""
        async with self._database.connection() as connection:
            return cast("datetime | None", await connection.fetchval(_CLAIM, token, seconds))

    async def is_claimed(self, scope: Scope, token: UUID, seconds: float) -> bool:
        """Return whether a token that could not be claimed is in use and not spent."""
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_IS_CLAIMED, token, seconds))

    async def give_back(self, scope: Scope, token: UUID, claimed_until: datetime) -> None:
        """End a claim, because nothing was delivered."""
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, token, claimed_until)

    async def spend(self, scope: Scope, token: UUID, until: datetime) -> None:
        """Block a token until then."""
        async with self._database.connection() as connection:
            await connection.execute(_SPEND, token, until)


class TokenInUse(Exception):
    """Another delivery has claimed the token, and its result is not known yet."""


class ClaimedToken(Struct, frozen=True):
    """A token claimed for one delivery, and the end of the claim."""

    token: ReleaseToken
    claimed_until: datetime


class ReleaseTokens:
    """Verifies the token of a message, claims it, and spends it after the delivery."""

    def __init__(self, signer: ReleaseTokenSigner, store: ReleaseTokenStore, claim_seconds: float) -> None:
        """Take the signer and the store; a delivery must take less than `claim_seconds`."""
        self._signer = signer
        self._store = store
        self._claim_seconds = claim_seconds

    async def claim(self, raw: Spooled, recipients: Iterable[str]) -> ClaimedToken | None:
        """Claim the token of a message; return None if it has no valid token or a spent one."""
        token = await self._signer.verify_message(raw, recipients, datetime.now(UTC))
        if token is None:
            return None
        until = await self._store.claim(_ALL, token.uid, self._claim_seconds)
        if until is not None:
            return ClaimedToken(token, until)
        if await self._store.is_claimed(_ALL, token.uid, self._claim_seconds):
            raise TokenInUse
        _log.warning("release_token_spent", ggrid=str(token.ggrid))
        return None

    async def spend(self, claimed: ClaimedToken) -> None:
        """Spend the token, because the message was delivered."""
        _log.info("released_without_scan", ggrid=str(claimed.token.ggrid))
        for _ in range(TRIES):
            try:
                await self._store.spend(_ALL, claimed.token.uid, claimed.token.expires + CLOCK_SKEW)
            except StorageUnavailable:
                continue
            return
        _log.error(
            "release_token_not_spent", ggrid=str(claimed.token.ggrid), usable_from=claimed.claimed_until.isoformat()
        )

    async def give_back(self, claimed: ClaimedToken) -> None:
        """End the claim, because the message was not delivered; if this fails, the claim ends by itself."""
        try:
            await self._store.give_back(_ALL, claimed.token.uid, claimed.claimed_until)
        except StorageUnavailable:
            _log.warning("release_token_not_given_back", ggrid=str(claimed.token.ggrid))
