"""Releases held messages: a guard claims a requested release, verifies the message, delivers it, records it.

A failed release leaves the message held and records the reason. If a guard dies after the next hop has accepted and
before it records the result, another guard releases the message a second time: twice is better than never.

Security: whole messages pass through here, to recipients whom the verdict protected from them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import UUID

from mailwarden.crypto.keyring import BrokenSeal, UnknownKey
from mailwarden.database.pool import Database
from mailwarden.errors import MailwardenError, StorageUnavailable
from mailwarden.events.catalogue import MessageReleased, first, short
from mailwarden.events.outbox import NewEvent, new_event, record
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.model import BY_RECIPIENT, HeldMessage, Release, State
from mailwarden.quarantine.store import (
    IN_SCOPE,
    SELECT_MESSAGE,
    HeldAuditEvent,
    message_of,
    record_audit_event,
    require_tenant,
    storable_text,
)
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.periodic_task import PeriodicTask

MAX_FAILURE = 500

# Another guard claims the release again after the claim of a guard that died.
_CLAIM = f"""
WITH next AS (
    SELECT message, changed_by FROM quarantine_recipients JOIN quarantine ON uid = message
    WHERE {IN_SCOPE} AND vault = $2 AND state = 'releasing' AND (claimed_until IS NULL OR claimed_until < now())
    ORDER BY changed_at LIMIT 1 FOR UPDATE OF quarantine SKIP LOCKED
)
UPDATE quarantine_recipients AS those SET claimed_until = now() + make_interval(secs => $3)
FROM next WHERE those.message = next.message AND those.changed_by = next.changed_by AND state = 'releasing'
  AND (claimed_until IS NULL OR claimed_until < now())
RETURNING those.message, those.recipient, those.changed_by, those.learn
"""  # noqa: S608 -- built from constants
_ONE = f"{SELECT_MESSAGE} AND uid = $2"
_RELEASED = """
UPDATE quarantine_recipients SET state = 'released', failure = '', changed_at = now(), claimed_until = NULL
WHERE message = $1 AND state = 'releasing' AND recipient = ANY ($2::text[]) RETURNING recipient
"""
_FAILED = """
UPDATE quarantine_recipients SET state = 'held', failure = each.failure, changed_at = now(), claimed_until = NULL
FROM unnest($2::text[], $3::text[]) AS each (name, failure)
WHERE message = $1 AND state = 'releasing' AND recipient = each.name
"""
_MISSING = f"UPDATE quarantine SET missing = $3 WHERE {IN_SCOPE} AND uid = $2"  # noqa: S608 -- built from constants


class ReleaseStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, scope: Scope, vault: UUID, seconds: float) -> Release | None:
        """Claim the oldest requested release with its bytes in this vault, for so many seconds."""
        async with self._database.connection() as connection, connection.transaction():
            rows = await connection.fetch(_CLAIM, scope.uids(), vault, seconds)
            if not rows:
                return None
            found = await connection.fetchrow(_ONE, scope.uids(), rows[0]["message"])
        if found is None:
            return None
        names = {str(row["recipient"]) for row in rows}
        message = message_of(found)
        ordered = [each for each in message.in_state(State.RELEASING) if each in names]
        learn = any(bool(row["learn"]) for row in rows)
        return Release(message, ordered, str(rows[0]["changed_by"]), learn)

    async def record_result(self, scope: Scope, release: Release, failures: Mapping[str, str]) -> Sequence[str]:
        """Record the result of a release and return its recipients; failed recipients stay held, with the reason."""
        message, actor = release.message, Actor(release.requested_by)
        require_tenant(scope, message.tenant)
        accepted = [each for each in release.recipients if each not in failures]
        reasons = {name: storable_text(failure)[:MAX_FAILURE] for name, failure in failures.items()}
        async with self._database.connection() as connection, connection.transaction():
            if accepted:
                changed = {str(row["recipient"]) for row in await connection.fetch(_RELEASED, message.uid, accepted)}
                released = [each for each in accepted if each in changed]  # none in a second try that is not needed
                if released:
                    await record(connection, [_released_event(message, released, actor.name)])
                event = HeldAuditEvent(
                    "released", message.uid, message.subject, message.tenant, {"recipients": accepted}
                )
                await record_audit_event(connection, actor, event)
            if reasons:
                await connection.execute(_FAILED, message.uid, list(reasons), list(reasons.values()))
                event = HeldAuditEvent("fail", message.uid, message.subject, message.tenant, {"failures": reasons})
                await record_audit_event(connection, actor, event)
        return accepted

    async def set_missing(self, scope: Scope, message: HeldMessage, *, missing: bool) -> None:
        """Record that the bytes of a message are missing from the vault, or present again."""
        async with self._database.connection() as connection:
            await connection.execute(_MISSING, scope.uids(), message.uid, missing)


def _released_event(message: HeldMessage, recipients: Sequence[str], by: str) -> NewEvent:
    released = MessageReleased(
        ggrid=message.ggrid,
        uid=message.uid,
        verdict=message.verdict,
        sender=short(message.sender),
        recipients=first(recipients),
        recipient_count=len(recipients),
        subject=short(message.subject),
        by=by,
    )
    return new_event(released, message.tenant, message.ggrid)


INTERVAL = 1.0
CLAIM = 900.0  # seconds after which another guard may claim the release
NO_ANSWER = "451 4.4.1"  # the reply for an unreachable next hop (RFC 3463, section 3.5)
STOP = 20.0  # seconds to finish the current release when guard stops
PAUSES = (0.5, 2.0, 8.0, 30.0)  # seconds between tries to record a result while the database is down
ALL = Scope.deployment()

_log = get_logger("quarantine.release")


class Injector(Protocol):
    """Delivers messages to their recipients."""

    async def inject(self, message: HeldMessage, recipients: Sequence[str], raw: Spooled) -> Mapping[str, str]:
        """Return the reason for each recipient that was not accepted."""


class ReleaseListener(Protocol):
    """Learns from released messages."""

    async def released(self, message: HeldMessage, raw: Spooled, requested_by: str) -> None: ...


class ReleaseJob:
    def __init__(
        self,
        vault: Vault,
        store: ReleaseStore,
        injector: Injector,
        *,
        spool: Path,
        listener: ReleaseListener | None = None,
        interval: float = INTERVAL,
    ) -> None:
        self._vault = vault
        self._store = store
        self._injector = injector
        self._listener = listener
        self._spool = spool
        self._periodic_task = PeriodicTask("quarantine releases", self.release_all, interval, quiet=True)

    def start(self) -> None:
        self._periodic_task.start()

    async def stop(self) -> None:
        """Finish the current release and record its result, then stop."""
        await self._periodic_task.finish(STOP)

    async def release_all(self) -> int:
        """Do all requested releases, one after the other; return the number of recipients served."""
        vault, total = await self._vault.uid(), 0
        while not self._periodic_task.stopping:
            async with self._periodic_task.in_hand:
                release = await self._store.claim(ALL, vault, CLAIM)
                if release is None:
                    break
                total += len(await self.release(release))
        return total

    async def release(self, release: Release) -> Sequence[str]:
        """Do one release and record its result; return the recipients that were accepted."""
        message = release.message
        try:
            raw = await self._fetch(message)
        except UnknownKey as error:  # the bytes are there: the release works once the key is restored
            _log.error("held_message_needs_key", uid=str(message.uid), tenant=str(message.tenant), reason=str(error))
            return await self._finish(release, dict.fromkeys(release.recipients, str(error)))
        except (FileNotFoundError, BrokenSeal) as error:
            _log.error("held_message_without_body", uid=str(message.uid), tenant=str(message.tenant), reason=str(error))
            await self._store.set_missing(ALL, message, missing=True)
            return await self._finish(
                release, dict.fromkeys(release.recipients, "The stored message is missing or damaged.")
            )
        try:
            failures = await self._inject(release, raw)
            if _waits(release, failures):
                _log.warning("release_waits", uid=str(message.uid), tenant=str(message.tenant))
                return ()
            accepted = await self._finish(release, failures)
            if accepted and self._listener is not None and _is_learned_from(release):
                await self._report(self._listener, release, raw)
            return accepted
        finally:
            raw.close()

    async def _fetch(self, message: HeldMessage) -> Spooled:
        if message.address is None:
            raise FileNotFoundError("The message has no bytes any more.")
        return await self._vault.get(message.tenant, message.address, self._spool)

    async def _inject(self, release: Release, raw: Spooled) -> Mapping[str, str]:
        try:
            return await self._injector.inject(release.message, release.recipients, raw)
        except Exception as error:
            _log.exception("release_failed", uid=str(release.message.uid))
            return dict.fromkeys(release.recipients, f"Internal error ({type(error).__name__}).")

    async def _finish(self, release: Release, failures: Mapping[str, str]) -> Sequence[str]:
        accepted = await self._record_result(release, failures)
        message = {"uid": str(release.message.uid), "tenant": str(release.message.tenant)}
        _log.info("held_message_released", **message, recipients=len(accepted), failed=len(failures))
        return accepted

    async def _record_result(self, release: Release, failures: Mapping[str, str]) -> Sequence[str]:
        """Record the result, with retries: a release without a result is done again."""
        for pause in PAUSES:
            with suppress(StorageUnavailable):
                return await self._store.record_result(ALL, release, failures)
            await asyncio.sleep(pause)
        return await self._store.record_result(ALL, release, failures)

    async def _report(self, listener: ReleaseListener, release: Release, raw: Spooled) -> None:
        try:
            await listener.released(release.message, raw, release.requested_by)
        except MailwardenError as error:  # the release itself succeeded
            _log.warning("release_not_learned", uid=str(release.message.uid), reason=str(error))


def _waits(release: Release, failures: Mapping[str, str]) -> bool:
    """Return whether to retry after the claim: a recipient's release waits while the next hop is unreachable."""
    silent = all(failures.get(each, "").startswith(NO_ANSWER) for each in release.recipients)
    return silent and release.requested_by.startswith(BY_RECIPIENT)


def _is_learned_from(release: Release) -> bool:
    """Return whether the tenant learns from it: if asked to, but never by a recipient's click, nor malware."""
    by_recipient = release.requested_by.startswith(BY_RECIPIENT)
    return release.learn and release.message.verdict is not Verdict.MALWARE and not by_recipient
