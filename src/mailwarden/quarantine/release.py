"""Releases held messages: a guard claims a requested release, verifies the message, delivers it, records it.

A failed release leaves the message held and records the reason. If a guard dies after the next hop has accepted and
before it records the result, another guard releases the message a second time: twice is better than never.

Security: whole messages pass through here, to recipients whom the verdict protected from them.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from mailwarden.crypto.keyring import BrokenSeal, UnknownKey
from mailwarden.database.queue import Queue
from mailwarden.errors import MailwardenError, StorageUnavailable
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.model import BY_RECIPIENT, HeldMessage, Release
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.logs import get_logger

INTERVAL = 1.0
CLAIM = 900.0  # seconds after which another guard may claim the release
NO_ANSWER_CODE = "451 4.4.1"  # the reply for an unreachable next hop (RFC 3463, section 3.5)
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


class ReleaseJob(Queue[Release]):
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
        super().__init__("quarantine releases", interval, quiet=True)
        self._vault = vault
        self._store = store
        self._injector = injector
        self._listener = listener
        self._spool = spool

    async def jobs(self) -> AsyncGenerator[Release, None]:
        vault = await self._vault.uid()
        while (release := await self._store.claim(ALL, vault, CLAIM)) is not None:
            yield release

    async def work(self, job: Release) -> int:
        """Do one release and record its result; return the number of recipients that were accepted."""
        release, message = job, job.message
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
                return 0
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

    async def _finish(self, release: Release, failures: Mapping[str, str]) -> int:
        accepted = len(await self._record_result(release, failures))
        message = {"uid": str(release.message.uid), "tenant": str(release.message.tenant)}
        _log.info("held_message_released", **message, recipients=accepted, failed=len(failures))
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
            _log.warning("release_not_trained", uid=str(release.message.uid), reason=str(error))


def _waits(release: Release, failures: Mapping[str, str]) -> bool:
    """Return whether to retry after the claim: a recipient's release waits while the next hop is unreachable."""
    silent = all(failures.get(recipient, "").startswith(NO_ANSWER_CODE) for recipient in release.recipients)
    return silent and release.requested_by.startswith(BY_RECIPIENT)


def _is_learned_from(release: Release) -> bool:
    """Return whether the tenant learns from it: if asked to, but never by a recipient's click, nor malware."""
    by_recipient = release.requested_by.startswith(BY_RECIPIENT)
    return release.train and release.message.verdict is not Verdict.MALWARE and not by_recipient
