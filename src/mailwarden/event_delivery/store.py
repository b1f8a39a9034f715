"""All SQL about receivers: their records, the lease of one abby process, the cursor and the failures.

An abby process leases a receiver before it delivers, and renews the lease. When the process ends without returning it,
the lease expires and another process continues after the stored cursor: events that were sent and not yet recorded are
sent again with the same id.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import cast
from uuid import UUID, uuid4

import asyncpg

from mailwarden.access.audit import record_event
from mailwarden.database.pool import Connection, Database, Row, confirm_earlier
from mailwarden.database.rows import read, read_optional
from mailwarden.errors import NameTaken, ReceiverNotFound, SchemaViolation
from mailwarden.event_delivery.model import BY_USER, Format, Kind, NewReceiver, Receiver, Sealed, State, shown_target
from mailwarden.events.catalogue import ReceiverDisabled
from mailwarden.events.outbox import new_event, record
from mailwarden.model.scope import Actor, Scope

LEASE = timedelta(seconds=30)
MAX_RECEIVERS = 100  # of the deployment with all tenants
MAX_OF_TENANTS = 10  # with the same tenants
MAX_ERROR = 500  # characters

_COLUMNS = """uid, name, kind, format, url, types, tenants, batch_size, batch_seconds, created, created_by, state,
cursor, sealed_url, secret, previous_secret, previous_until, failing_since, attempts, next_attempt, last_error,
last_delivery, delivered, failed, lost"""
_SEEN = "($1::uuid[] IS NULL OR tenants <@ $1)"  # a receiver of the deployment has no tenants: NULL is not true
_LIST = f"SELECT {_COLUMNS} FROM event_receivers WHERE {_SEEN} ORDER BY lower(name), uid LIMIT {MAX_RECEIVERS}"  # noqa: S608 -- one constant
_FIND = f"SELECT {_COLUMNS} FROM event_receivers WHERE {_SEEN} AND uid = $2"  # noqa: S608 -- one constant
_LOCK = f"{_FIND} FOR UPDATE"
_COUNTS = """
SELECT count(*) AS everywhere, count(*) FILTER (WHERE tenants IS NOT DISTINCT FROM $1::uuid[]) AS here
FROM event_receivers
"""
_SERIALISE = "SELECT pg_advisory_xact_lock(hashtext('event_receivers'))"
_SAME_FILE = "SELECT name FROM event_receivers WHERE kind = 'file' AND lower(url) = lower($1)"
_CREATE = f"""
INSERT INTO event_receivers (uid, name, kind, format, url, types, tenants, batch_size, batch_seconds, created_by,
                             cursor, secret, sealed_url)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) RETURNING {_COLUMNS}
"""  # noqa: S608 -- one constant
_ROTATE = f"""
UPDATE event_receivers SET previous_secret = secret, previous_until = $3, secret = $2 WHERE uid = $1
RETURNING {_COLUMNS}
"""  # noqa: S608 -- one constant
_ENABLE = f"""
UPDATE event_receivers SET state = 'enabled', failing_since = NULL, attempts = 0, next_attempt = now(), last_error = ''
WHERE uid = $1 RETURNING {_COLUMNS}
"""  # noqa: S608 -- one constant
_DISABLE = f"UPDATE event_receivers SET state = 'disabled', last_error = $2 WHERE uid = $1 RETURNING {_COLUMNS}"  # noqa: S608 -- one constant
_REMOVE = "DELETE FROM event_receivers WHERE uid = $1"

_CLAIM = """
UPDATE event_receivers SET lease = $1, lease_until = now() + $2 WHERE uid IN (
    SELECT uid FROM event_receivers
    WHERE state = 'enabled' AND (lease_until IS NULL OR lease_until < now()) ORDER BY uid LIMIT $3
    FOR UPDATE SKIP LOCKED
)
"""
_RENEW = f"""
UPDATE event_receivers SET lease_until = now() + $2 WHERE lease = $1 AND lease_until > now() AND state = 'enabled'
RETURNING {_COLUMNS}
"""  # noqa: S608 -- one constant
_RETURN = "UPDATE event_receivers SET lease = NULL, lease_until = NULL WHERE lease = $1"
_HELD = "uid = $1 AND lease = $2 AND lease_until > now() AND state = 'enabled'"
_ADVANCE = f"""
UPDATE event_receivers SET cursor = $3, delivered = delivered + $4, failing_since = NULL, attempts = 0, last_error = '',
    last_delivery = CASE WHEN $4 > 0 THEN $5 ELSE last_delivery END, lease_until = now() + $6
WHERE {_HELD} RETURNING {_COLUMNS}
"""  # noqa: S608 -- one constant
_FAIL = f"""
UPDATE event_receivers SET attempts = attempts + 1, failed = failed + 1, failing_since = coalesce(failing_since, $3),
    next_attempt = $4, last_error = $5, lease_until = now() + $6
WHERE {_HELD} RETURNING {_COLUMNS}
"""  # noqa: S608 -- one constant
_LOSE = f"UPDATE event_receivers SET cursor = $3, lost = lost + $4 WHERE {_HELD} RETURNING {_COLUMNS}"  # noqa: S608 -- one constant
_COUNT_DISABLED = "SELECT count(*) FROM event_receivers WHERE state = 'disabled' AND last_error <> $1"
_LAST_REMOVED = "SELECT number FROM events_removed"
_REENCRYPT = """
UPDATE event_receivers SET secret = $3, previous_secret = $5, sealed_url = $6
WHERE uid = $1 AND secret = $2 AND previous_secret IS NOT DISTINCT FROM $4 RETURNING true
"""


class ReceiverStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def list(self, scope: Scope) -> Sequence[Receiver]:
        """Return the receivers whose tenants are all in the scope; those of the deployment only for the deployment."""
        async with self._database.connection() as connection:
            return [_receiver(row) for row in await connection.fetch(_LIST, scope.uids())]

    async def find(self, scope: Scope, uid: UUID) -> Receiver:
        async with self._database.connection() as connection:
            return _required(await connection.fetchrow(_FIND, scope.uids(), uid))

    async def create(
        self, scope: Scope, uid: UUID, wanted: NewReceiver, *, cursor: str, sealed: Sealed | None, actor: Actor
    ) -> Receiver:
        """Store a receiver that receives the events after the cursor; the URL of a webhook only in `sealed`."""
        _require_allowed(scope, wanted)
        tenants = None if wanted.tenants is None else sorted(wanted.tenants)
        types = None if wanted.types is None else sorted(wanted.types)
        hidden = (None, None) if sealed is None else (sealed.secret, sealed.url)
        async with self._database.connection() as connection, connection.transaction():
            await connection.execute(_SERIALISE)
            counts = await connection.fetchrow(_COUNTS, tenants)
            assert counts is not None
            # Some places are kept for the deployment, so that tenants cannot take them all.
            most = MAX_RECEIVERS if tenants is None else MAX_RECEIVERS - MAX_OF_TENANTS
            if read(counts, "everywhere", int) >= most or read(counts, "here", int) >= MAX_OF_TENANTS:
                raise SchemaViolation(
                    f"There are at most {most} receivers, and {MAX_OF_TENANTS} for the same tenants. Remove one first."
                )
            if wanted.kind is Kind.FILE:
                await _require_new_file(connection, wanted.url)
            shown = shown_target(wanted.kind, wanted.url)
            values = (wanted.kind, wanted.format, shown, types, tenants, wanted.batch_size, wanted.batch_seconds)
            try:
                row = await connection.fetchrow(_CREATE, uid, wanted.name, *values, actor.name, cursor, *hidden)
            except asyncpg.UniqueViolationError:
                raise NameTaken(f"There is already a receiver named `{wanted.name}`.") from None
            made = _required(row)
            # The digest shows that two URLs of one host differ.
            after = {**_shown(made), "urlDigest": sha256(wanted.url.encode()).hexdigest()[:16]}
            await _audit(connection, actor, "receivers.create", made, {"after": after})
        return made

    async def begin_test(self, scope: Scope, uid: UUID, actor: Actor) -> Receiver:
        """Write to the audit log who sends a test event, before it is sent; return the receiver."""
        async with self._database.connection() as connection, connection.transaction():
            found = _required(await connection.fetchrow(_FIND, scope.uids(), uid))
            await _audit(connection, actor, "receivers.test", found, {"target": found.target})
        return found

    async def rotate(self, scope: Scope, uid: UUID, secret: bytes, until: datetime, actor: Actor) -> Receiver:
        """Store a new secret; webhooks are signed with the old secret too until the given time."""
        return await self._change(scope, uid, actor, "receivers.rotate", _ROTATE, secret, until)

    async def enable(self, scope: Scope, uid: UUID, actor: Actor) -> Receiver:
        """Let deliveries continue after the stored cursor."""
        return await self._change(scope, uid, actor, "receivers.enable", _ENABLE)

    async def disable(self, scope: Scope, uid: UUID, reason: str, actor: Actor) -> Receiver:
        """Stop deliveries; an event and the audit log say why."""
        async with self._database.connection() as connection, connection.transaction():
            before = _required(await connection.fetchrow(_LOCK, scope.uids(), uid))
            if before.state is State.DISABLED:
                await confirm_earlier(connection)
                return before
            after = _required(await connection.fetchrow(_DISABLE, uid, reason[:MAX_ERROR]))
            await _audit(connection, actor, "receivers.disable", after, {"reason": reason})
            data = ReceiverDisabled(receiver=before.name, receiver_uid=uid, reason=reason[:MAX_ERROR])
            owners: Sequence[UUID | None] = [None] if before.tenants is None else sorted(before.tenants)
            await record(connection, [new_event(data, tenant=owner, subject=str(uid)) for owner in owners])
        return after

    async def remove(self, scope: Scope, uid: UUID, actor: Actor) -> None:
        async with self._database.connection() as connection, connection.transaction():
            before = _required(await connection.fetchrow(_LOCK, scope.uids(), uid))
            await connection.execute(_REMOVE, uid)
            await _audit(connection, actor, "receivers.remove", before, {"before": _shown(before)})

    async def lease(self, scope: Scope, process: UUID, most: int) -> Sequence[Receiver]:
        """Renew the leases of a process, take free receivers, and return all that it holds."""
        _require_deployment(scope)
        async with self._database.connection() as connection, connection.transaction():
            held = await connection.fetch(_RENEW, process, LEASE)
            if len(held) < most:
                await connection.execute(_CLAIM, process, LEASE, most - len(held))
                held = await connection.fetch(_RENEW, process, LEASE)
        return [_receiver(row) for row in held]

    async def end_leases(self, scope: Scope, process: UUID) -> None:
        _require_deployment(scope)
        async with self._database.connection() as connection:
            await connection.execute(_RETURN, process)

    async def advance(
        self, scope: Scope, uid: UUID, process: UUID, cursor: str, *, delivered: int, now: datetime
    ) -> Receiver | None:
        """Move the cursor; return None if the process lost its lease."""
        return await self._while_leased(scope, _ADVANCE, uid, process, cursor, delivered, now, LEASE)

    async def fail(
        self, scope: Scope, uid: UUID, process: UUID, *, now: datetime, next_attempt: datetime, error: str
    ) -> Receiver | None:
        """Record a failed attempt; return None if the process lost its lease."""
        return await self._while_leased(scope, _FAIL, uid, process, now, next_attempt, error[:MAX_ERROR], LEASE)

    async def lose(self, scope: Scope, uid: UUID, process: UUID, cursor: str, lost: int) -> Receiver | None:
        """Count events that expired before they were delivered, and continue after them."""
        return await self._while_leased(scope, _LOSE, uid, process, cursor, lost)

    async def count_disabled(self, scope: Scope) -> int:
        """Return the number of receivers that were disabled by their failures, not by an administrator."""
        _require_deployment(scope)
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval(_COUNT_DISABLED, BY_USER))

    async def last_removed(self, scope: Scope) -> int:
        """Return the number of the newest event that retention has removed."""
        _require_deployment(scope)
        async with self._database.connection() as connection:
            return cast("int", await connection.fetchval(_LAST_REMOVED))

    async def replace_secrets(
        self, scope: Scope, before: Receiver, sealed: Sealed, previous_secret: bytes | None
    ) -> bool:
        """Store the secrets and the URL encrypted with another key; return False if they changed meanwhile."""
        _require_deployment(scope)
        values = (before.uid, before.secret, sealed.secret, before.previous_secret, previous_secret)
        async with self._database.connection() as connection:
            return bool(await connection.fetchval(_REENCRYPT, *values, sealed.url))

    async def _change(
        self, scope: Scope, uid: UUID, actor: Actor, action: str, statement: str, *values: object
    ) -> Receiver:
        async with self._database.connection() as connection, connection.transaction():
            _required(await connection.fetchrow(_LOCK, scope.uids(), uid))
            after = _required(await connection.fetchrow(statement, uid, *values))
            await _audit(connection, actor, action, after, {"after": _shown(after)})
        return after

    async def _while_leased(self, scope: Scope, statement: str, *values: object) -> Receiver | None:
        _require_deployment(scope)
        async with self._database.connection() as connection:
            row = await connection.fetchrow(statement, *values)
        return None if row is None else _receiver(row)


def new_uid() -> UUID:
    return uuid4()


def _require_allowed(scope: Scope, wanted: NewReceiver) -> None:
    """Raise SchemaViolation for a receiver outside of the scope: files and syslog are for the deployment."""
    if scope.tenants is not None and (not wanted.tenants or not wanted.tenants <= scope.tenants):
        raise SchemaViolation("Choose at least one of your tenants: the receiver gets their events.")
    if wanted.tenants is not None and wanted.kind is not Kind.WEBHOOK:
        raise SchemaViolation("Only the deployment can have receivers of the kinds syslog and file.")


async def _require_new_file(connection: Connection, file: str) -> None:
    """Raise NameTaken for the file of another receiver: the undo of a failed write could cut its lines."""
    other = await connection.fetchval(_SAME_FILE, file)
    if other is not None:
        raise NameTaken(f"The receiver `{other}` writes to `{file}`: choose another file name.")


def _require_deployment(scope: Scope) -> None:
    assert scope.tenants is None, "deliveries belong to the whole deployment"


def _required(row: Row | None) -> Receiver:
    if row is None:
        raise ReceiverNotFound("There is no such event receiver.")
    return _receiver(row)


def _receiver(row: Row) -> Receiver:
    types = cast("list[str] | None", row["types"])
    tenants = cast("list[UUID] | None", row["tenants"])
    return Receiver(
        uid=read(row, "uid", UUID),
        name=str(row["name"]),
        kind=Kind(str(row["kind"])),
        format=Format(str(row["format"])),
        url=str(row["url"]),
        types=None if types is None else frozenset(types),
        tenants=None if tenants is None else frozenset(tenants),
        batch_size=read(row, "batch_size", int),
        batch_seconds=read(row, "batch_seconds", int),
        created=read(row, "created", datetime),
        created_by=str(row["created_by"]),
        state=State(str(row["state"])),
        cursor=str(row["cursor"]),
        sealed_url=read_optional(row, "sealed_url", bytes),
        secret=read_optional(row, "secret", bytes),
        previous_secret=read_optional(row, "previous_secret", bytes),
        previous_until=read_optional(row, "previous_until", datetime),
        failing_since=read_optional(row, "failing_since", datetime),
        attempts=read(row, "attempts", int),
        next_attempt=read(row, "next_attempt", datetime),
        last_error=str(row["last_error"]),
        last_delivery=read_optional(row, "last_delivery", datetime),
        delivered=read(row, "delivered", int),
        failed=read(row, "failed", int),
        lost=read(row, "lost", int),
    )


def _shown(receiver: Receiver) -> Mapping[str, object]:
    return {
        "name": receiver.name,
        "kind": receiver.kind,
        "format": receiver.format,
        "target": receiver.target,
        "types": None if receiver.types is None else sorted(receiver.types),
        "tenants": None if receiver.tenants is None else [str(tenant) for tenant in sorted(receiver.tenants)],
    }


async def _audit(
    connection: Connection, actor: Actor, action: str, receiver: Receiver, details: Mapping[str, object]
) -> None:
    tenants = receiver.tenants or frozenset()
    tenant = next(iter(tenants)) if len(tenants) == 1 else None
    await record_event(connection, actor, action, receiver.name, {"uid": str(receiver.uid), **details}, tenant=tenant)
