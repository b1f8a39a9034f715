"""Releases messages that somebody asked for: whole, verified, handed on, and only then noted as released.

What fails leaves the message held, and says why. A guard that dies after the next hop has accepted and before that is
noted has the message released a second time: better twice than never.

Security: whole messages pass through here, to those who were judged in danger by them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from mailwarden.crypto.keyring import BrokenSeal, UnknownKey
from mailwarden.errors import MailwardenError, StorageUnavailable
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.held import BY_RECIPIENT, HeldMessage, Release
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.logs import get_logger

INTERVAL = 1.0
CLAIM = 900.0  # seconds in which a release is done, or another guard may take it on
NO_ANSWER = "451 4.4.1"  # the reply of a next hop that is away (RFC 3463, section 3.5)
STOP = 20.0  # seconds for the release in hand, when guard stops
PAUSES = (0.5, 2.0, 8.0, 30.0)  # seconds between tries to note a release, while the database is away
ALL = Scope.deployment()

_log = get_logger("quarantine.releasing")


class Injector(Protocol):
    """Hands messages on to those they are for."""

    async def inject(self, message: HeldMessage, recipients: Sequence[str], raw: Spooled) -> Mapping[str, str]:
        """Return why not, for every recipient for whom it was not accepted."""


class Listener(Protocol):
    """Is told of what was released, to learn from it."""

    async def hear(self, message: HeldMessage, raw: Spooled, asked_by: str) -> None: ...


class Releasing:
    def __init__(
        self,
        vault: Vault,
        store: ReleaseStore,
        injector: Injector,
        *,
        spool: Path,
        listener: Listener | None = None,
        interval: float = INTERVAL,
    ) -> None:
        self._vault = vault
        self._store = store
        self._injector = injector
        self._listener = listener
        self._spool = spool
        self._chore = Chore("quarantine releases", self.release_all, interval, quiet=True)

    def start(self) -> None:
        self._chore.start()

    async def stop(self) -> None:
        """Let the release in hand come to its end, which is not noted otherwise; then end."""
        await self._chore.finish(STOP)

    async def release_all(self) -> int:
        """Do what was asked for, one release after the other; return how many recipients were served."""
        vault, total = await self._vault.uid(), 0
        while not self._chore.stopping:
            async with self._chore.in_hand:
                release = await self._store.claim(ALL, vault, CLAIM)
                if release is None:
                    break
                total += len(await self.release(release))
        return total

    async def release(self, release: Release) -> Sequence[str]:
        """Do one release, and note what came of it; return who has the message now."""
        message = release.message
        try:
            raw = await self._fetch(message)
        except UnknownKey as error:  # its bytes are there: whoever restores the key releases it
            _log.error("held_message_needs_key", uid=str(message.uid), tenant=str(message.tenant), why=str(error))
            return await self._note(release, dict.fromkeys(release.recipients, str(error)))
        except (FileNotFoundError, BrokenSeal) as error:
            _log.error("held_message_without_body", uid=str(message.uid), tenant=str(message.tenant), why=str(error))
            await self._store.note_missing(ALL, message, missing=True)
            return await self._note(release, dict.fromkeys(release.recipients, "The message itself cannot be read."))
        try:
            failures = await self._inject(release, raw)
            if _waits(release, failures):
                _log.warning("release_waits", uid=str(message.uid), tenant=str(message.tenant))
                return ()
            taken = await self._note(release, failures)
            if taken and self._listener is not None and _teaches(release):
                await self._tell(self._listener, release, raw)
            return taken
        finally:
            raw.close()

    async def _fetch(self, message: HeldMessage) -> Spooled:
        if message.address is None:
            raise FileNotFoundError("Its bytes are given up.")
        return await self._vault.get(message.tenant, message.address, self._spool)

    async def _inject(self, release: Release, raw: Spooled) -> Mapping[str, str]:
        try:
            return await self._injector.inject(release.message, release.recipients, raw)
        except Exception as error:
            _log.exception("release_failed", uid=str(release.message.uid))
            return dict.fromkeys(release.recipients, f"Something went wrong ({type(error).__name__}).")

    async def _note(self, release: Release, failures: Mapping[str, str]) -> Sequence[str]:
        taken = await self._noted(release, failures)
        told = {"uid": str(release.message.uid), "tenant": str(release.message.tenant)}
        _log.info("held_message_released", **told, recipients=len(taken), failed=len(failures))
        return taken

    async def _noted(self, release: Release, failures: Mapping[str, str]) -> Sequence[str]:
        """Note it, however often that takes: what is not noted is released again."""
        for pause in PAUSES:
            with suppress(StorageUnavailable):
                return await self._store.note(ALL, release, failures)
            await asyncio.sleep(pause)
        return await self._store.note(ALL, release, failures)

    async def _tell(self, listener: Listener, release: Release, raw: Spooled) -> None:
        try:
            await listener.hear(release.message, raw, release.asked_by)
        except MailwardenError as error:  # what is not learned from was released all the same
            _log.warning("release_not_learned", uid=str(release.message.uid), reason=str(error))


def _waits(release: Release, failures: Mapping[str, str]) -> bool:
    """Tell whether it is tried again once its claim is over: nobody tells a recipient that there was no answer."""
    silent = all(failures.get(each, "").startswith(NO_ANSWER) for each in release.recipients)
    return silent and release.asked_by.startswith(BY_RECIPIENT)


def _teaches(release: Release) -> bool:
    """Tell whether others may learn from it: one recipient's click on a link says nothing for a whole tenant."""
    return release.message.verdict is not Verdict.MALWARE and not release.asked_by.startswith(BY_RECIPIENT)
