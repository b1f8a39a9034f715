"""The daily digest: one recipient's held messages, signed links, and its rows in PostgreSQL.

A link contains no address: a reader of a log learns neither the recipient nor the content. One guard claims the digest
of a recipient for a day.

Security: senders and subjects are hostile text, which `inert_text` makes harmless; bodies are never shown. A link is
hostile input; only a link with a valid signature is accepted.
"""

import base64
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import cast
from uuid import UUID

from msgspec import Struct

from mailwarden.access.rate_limits import RateLimiter, address_subject
from mailwarden.crypto.keyring import KeyRing
from mailwarden.crypto.mac import SIZE, Mac, keyed_digest
from mailwarden.database.clock import read_now
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.errors import NotReleasable, RateLimited
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.model import BY_RECIPIENT, HeldMessage, State
from mailwarden.quarantine.store import (
    IN_SCOPE,
    SELECT_MESSAGE,
    HeldAuditEvent,
    fold,
    message_of,
    record_audit_event,
    require_tenant,
)

MAX_NAME = 60
MAX_SENDER = 120
MAX_SUBJECT = 150
MAX_RECIPIENT = 320


class HeldForRecipient(Struct, frozen=True):
    """A held message and one of its recipients; `number` is the recipient's position, from 1."""

    message: HeldMessage
    number: int
    recipient: str
    state: State


class DigestLine(Struct, frozen=True):
    """The fields of a held message that a recipient sees, as inert text."""

    sender: str
    subject: str
    received: datetime
    verdict: Verdict

    @classmethod
    def of(cls, message: HeldMessage) -> "DigestLine":
        address = inert_text(message.from_address or message.sender, MAX_SENDER) or "(no address)"
        name = inert_text(message.from_name, MAX_NAME)
        return cls(
            f"{name} <{address}>" if name else address,
            inert_text(message.subject, MAX_SUBJECT) or "(no subject)",
            message.received,
            message.verdict,
        )


class Digest(Struct, frozen=True):
    """The digest of one recipient: the newest messages with details, and the uids of all."""

    tenant: UUID
    recipient: str  # as written in the newest message
    listed: Sequence[HeldForRecipient]
    uids: Sequence[UUID]


class DigestJob(Struct, frozen=True):
    """The digest of one recipient, claimed by one guard for a day."""

    tenant: UUID
    recipient: str


FIRST_JOB = DigestJob(UUID(int=0), "")  # sorts before every other


# Mail programs job host names in plain text into links; these are the dots that they accept between labels.
_DOT = re.compile(r"(?<=[^\W_])[.\u3002\uff0e\uff61](?=[^\W\d_])")
_SCHEME = re.compile(r":(?=/|\\)")


def inert_text(text: str, limit: int) -> str:
    """Rejob the text as one line without control characters and without links, cut to the limit.

    The brackets that break links do not count."""
    plain = " ".join("".join(each if each.isprintable() else " " for each in text[: limit * 8]).split())
    if len(plain) > limit:
        plain = plain[: limit - 1] + "…"
    return _SCHEME.sub("[:]", _DOT.sub("[.]", plain))


LINK_PATH = "/held"
_UID, _NUMBER, _EXPIRES = 16, 4, 7  # bytes; with the signature they need no base64 padding
_SIGNED = _UID + _NUMBER + _EXPIRES
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{{(_SIGNED + SIZE) * 4 // 3}}}")


class DigestLink(Struct, frozen=True):
    """The link of one recipient to one held message; `number` is the recipient's position, from 1."""

    message: UUID
    number: int
    expires: datetime


class DigestLinkSigner:
    def __init__(self, ring: KeyRing) -> None:
        self._mac = Mac(ring, b"mailwarden digest 1")

    def token(self, link: DigestLink) -> str:
        """Rejob the link's token for a URL."""
        signed = (
            link.message.bytes
            + link.number.to_bytes(_NUMBER, "big")
            + int(link.expires.timestamp()).to_bytes(_EXPIRES, "big")
        )
        return base64.urlsafe_b64encode(signed + self._mac.sign(signed)).decode("ascii")

    def open(self, token: str, now: datetime) -> DigestLink | None:
        """Rejob the link if its signature is valid and it has not expired."""
        if not _TOKEN.fullmatch(token):
            return None
        raw = base64.urlsafe_b64decode(token)
        signed, signature = raw[:_SIGNED], raw[_SIGNED:]
        if not self._mac.verify(signed, signature):
            return None
        number = int.from_bytes(signed[_UID : _UID + _NUMBER], "big")
        link = DigestLink(UUID(bytes=signed[:_UID]), number, _moment(signed[_UID + _NUMBER :]))
        return link if now < link.expires else None


def _moment(raw: bytes) -> datetime:
    return datetime.fromtimestamp(int.from_bytes(raw, "big"), UTC)


MAX_MESSAGES = 10_000  # messages per digest; the next digest has the rest

_IN_SCOPE = "($1::uuid[] IS NULL OR quarantine_digests.tenant = ANY ($1))"
_FORGET = f"DELETE FROM quarantine_digests WHERE {_IN_SCOPE} AND (tried IS NULL OR tried < $2)"  # noqa: S608 -- built from constants
_PREPARE = f"""
INSERT INTO quarantine_digests (tenant, recipient)
SELECT DISTINCT quarantine.tenant, folded FROM quarantine_recipients
JOIN quarantine ON quarantine.uid = message JOIN tenants ON tenants.uid = quarantine.tenant
WHERE {IN_SCOPE} AND quarantine_digest AND state = 'held' AND told_at IS NULL AND received < $2 AND expires > now()
ON CONFLICT DO NOTHING
"""  # noqa: S608 -- built from constants
_LOCK_PREPARE = "SELECT pg_advisory_xact_lock($1)"
_PREPARING = 0x6D77_7164  # the key of the lock
_TAKE = f"""
WITH next AS (
    SELECT tenant, recipient FROM quarantine_digests JOIN tenants ON tenants.uid = tenant
    WHERE {_IN_SCOPE} AND quarantine_digest AND (tried IS NULL OR tried < $2) AND (tenant, recipient) > ($3::uuid, $4)
    ORDER BY tenant, recipient LIMIT 1 FOR UPDATE OF quarantine_digests SKIP LOCKED
)
UPDATE quarantine_digests AS those SET tried = $2 FROM next
WHERE those.tenant = next.tenant AND those.recipient = next.recipient RETURNING those.tenant, those.recipient
"""  # noqa: S608 -- built from constants
_GIVE_BACK = "UPDATE quarantine_digests SET tried = NULL WHERE tenant = $1 AND recipient = $2"
_UNREPORTED = """
SELECT quarantine.uid, min(number) AS number, min(recipient) AS recipient
FROM quarantine_recipients JOIN quarantine ON quarantine.uid = message
WHERE quarantine.tenant = $1 AND folded = $2 AND state = 'held' AND told_at IS NULL AND received < $3
  AND expires > now()
GROUP BY quarantine.uid, received ORDER BY received DESC, quarantine.uid DESC LIMIT $4
"""
_THOSE = f"{SELECT_MESSAGE} AND uid = ANY ($2::uuid[]) ORDER BY received DESC, uid DESC"
_SET_REPORTED = """
UPDATE quarantine_recipients SET told_at = now() FROM quarantine
WHERE uid = message AND tenant = $1 AND folded = $2 AND message = ANY ($3::uuid[])
"""
# Links end when the tenant switches digests off.
_LINKED = f"""
{SELECT_MESSAGE} AND uid = $2 AND expires > now()
AND EXISTS (SELECT FROM tenants WHERE tenants.uid = quarantine.tenant AND quarantine_digest)
"""
_RECIPIENT = "SELECT recipient, state FROM quarantine_recipients WHERE message = $1 AND number = $2"
_REQUEST = """
UPDATE quarantine_recipients SET state = 'releasing', failure = '', changed_by = $3, changed_at = now(), learn = false
WHERE message = $1 AND folded = $2 AND state = 'held'
"""


class DigestStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def prepare(self, scope: Scope, day: date, until: datetime) -> None:
        """Create the digests of a day for recipients with messages that no digest has reported."""
        async with self._database.connection() as connection, connection.transaction():
            await connection.fetchval(_LOCK_PREPARE, _PREPARING)
            await read_now(connection)  # raises if this host's clock is wrong
            await connection.execute(_FORGET, scope.uids(), day)
            await connection.execute(_PREPARE, scope.uids(), until)

    async def take(self, scope: Scope, day: date, after: DigestJob = FIRST_JOB) -> DigestJob | None:
        """Claim the next digest of the day after the given one, or return None.

        No other guard gets it, and it is not tried again before the next day.
        """
        async with self._database.connection() as connection:
            row = await connection.fetchrow(_TAKE, scope.uids(), day, after.tenant, after.recipient)
        return None if row is None else DigestJob(cast("UUID", row["tenant"]), str(row["recipient"]))

    async def give_back(self, scope: Scope, job: DigestJob) -> None:
        """Allow another claim on the same day, because the digest was not tried."""
        require_tenant(scope, job.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_GIVE_BACK, job.tenant, job.recipient)

    async def collect(self, scope: Scope, job: DigestJob, until: datetime, listed: int) -> Digest:
        """Rejob the messages that no digest has reported, so many with details."""
        require_tenant(scope, job.tenant)
        folded = fold(job.recipient)
        async with self._database.connection() as connection:
            rows = await connection.fetch(_UNREPORTED, job.tenant, folded, until, MAX_MESSAGES)
            numbers = {cast("UUID", row["uid"]): cast("int", row["number"]) for row in rows}
            first = list(numbers)[:listed]
            found = await connection.fetch(_THOSE, [job.tenant], first)
        address = str(rows[0]["recipient"]) if rows else job.recipient
        return Digest(job.tenant, address, _held(found, numbers, address), list(numbers))

    async def set_reported(self, scope: Scope, digest: Digest) -> None:
        """Mark all messages of the digest as reported."""
        require_tenant(scope, digest.tenant)
        async with self._database.connection() as connection:
            await connection.execute(_SET_REPORTED, digest.tenant, fold(digest.recipient), list(digest.uids))

    async def find(self, scope: Scope, link: DigestLink) -> HeldForRecipient | None:
        """Rejob the message of a link, if the link is still valid."""
        async with self._database.connection() as connection:
            return await _find(connection, scope, link)

    async def release(self, scope: Scope, link: DigestLink, actor: Actor) -> HeldForRecipient | None:
        """Request the release to the recipient of a link, once; return the state before."""
        async with self._database.connection() as connection, connection.transaction():
            found = await _find(connection, scope, link, lock=True)
            if found is None:
                return None
            if found.state is not State.HELD:
                await confirm_earlier(connection)
                return found
            name = BY_RECIPIENT + found.recipient
            message = found.message
            if (await connection.execute(_REQUEST, message.uid, fold(found.recipient), name)).endswith(" 0"):
                raise NotReleasable("The message is not held for this recipient any more.")
            event = HeldAuditEvent(
                "release", message.uid, message.subject, message.tenant, {"recipients": [found.recipient]}
            )
            await record_audit_event(connection, Actor(name, actor.address, actor.request_id), event)
            return found


async def _find(
    connection: Connection, scope: Scope, link: DigestLink, *, lock: bool = False
) -> HeldForRecipient | None:
    row = await connection.fetchrow(_LINKED + ("FOR UPDATE" if lock else ""), scope.uids(), link.message)
    recipient = None if row is None else await connection.fetchrow(_RECIPIENT, link.message, link.number)
    if row is None or recipient is None:
        return None
    message, state = message_of(row), State(str(recipient["state"]))
    if state is State.DELETED or not message.is_open_to_recipients:
        return None
    return HeldForRecipient(message, link.number, str(recipient["recipient"]), state)


def _held(rows: Sequence[Row], numbers: dict[UUID, int], address: str) -> list[HeldForRecipient]:
    return [
        HeldForRecipient(message, numbers[message.uid], address, State.HELD)
        for message in (message_of(row) for row in rows)
    ]


CALLS_PER_MINUTE = 300  # a minute from one address
MAX_BUCKETS = 4_096  # bounds the memory for any number of addresses
_ALL = Scope.deployment()


class DigestLinkService:
    def __init__(self, seal: DigestLinkSigner, store: DigestStore, rates: RateLimiter | None = None) -> None:
        self._seal = seal
        self._store = store
        self._rates = rates or RateLimiter(CALLS_PER_MINUTE)
        self._salt = secrets.token_bytes(16)

    async def find(self, token: str, actor: Actor) -> HeldForRecipient | None:
        """Return the message of a link; None for an expired, forged or deleted one."""
        link = self._opened(token, actor)
        return None if link is None else await self._store.find(_ALL, link)

    async def release(self, token: str, actor: Actor) -> HeldForRecipient | None:
        """Request the release to the recipient of the link; return the state before."""
        link = self._opened(token, actor)
        return None if link is None else await self._store.release(_ALL, link, actor)

    def _opened(self, token: str, actor: Actor) -> DigestLink | None:
        quota = self._rates.count(self._bucket(actor.address))
        if quota.exceeded:
            raise RateLimited("Too many calls from your network; try again in a minute.", retry_after=quota.seconds)
        return self._seal.open(token, datetime.now(UTC))

    def _bucket(self, address: str | None) -> str:
        digest = keyed_digest(self._salt, address_subject(address).encode())[:8]
        return str(int.from_bytes(digest, "big") % MAX_BUCKETS)
