"""Polls a report mailbox over IMAP: every new mail becomes a report, and is then moved to another folder.

One guard at a time polls a mailbox, by a lease in PostgreSQL. A mail is moved to the folder of processed mails only
after its report is committed: a guard that dies in between finds the mail again, and the same bytes add no second
report. Mails that cannot be read or stored go to the folder of failed mails; none is deleted. Mails whose reporter
could not be checked for now (an engine or DNS is down) stay, up to a day. The next poll begins behind them, and behind
a mail that ended a poll; a poll that reaches the end of the folder lets the next one begin at its first mail.

Security: there is no SMTP client whose address SPF could check. Only an aligned DKIM signature verifies the reporter,
or the mailbox itself, if the operator says that it accepts authenticated senders alone.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import UUID, uuid4

from mailwarden.database.queue import Queue
from mailwarden.errors import ConfigurationError, EngineUnavailable, MailwardenError
from mailwarden.model.scope import Scope
from mailwarden.smtp.commands import Rejection
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics
from mailwarden.user_reports.intake import NotStored
from mailwarden.user_reports.mailbox.imap_client import (
    ImapClient,
    ListedMail,
    MailboxFailed,
    MailboxState,
    UnreadableMail,
)
from mailwarden.user_reports.mailbox.store import MailboxStore
from mailwarden.user_reports.settings import ReportImap

LOOK = 5.0  # longest pause in seconds between two looks whether the mailbox is due
POLL_SECONDS = 600.0  # for all mails of one poll
LEASE = timedelta(seconds=POLL_SECONDS + 60)  # longer than a poll, so that no second guard begins one
WAIT = timedelta(days=1)  # in which a mail whose reporter could not be checked is tried again
CLOSE_SECONDS = 5.0
ALL = Scope.deployment()
_log = get_logger("guard.report_mailbox")
T = TypeVar("T")


class Outcome(StrEnum):
    STORED = "stored"
    IGNORED = "ignored"  # an automatic mail without a reported message
    LIMITED = "limited"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    WAITS = "waits"
    UNLISTED = "unlisted"  # the server left them out of its answer; a later poll asks again

    @property
    def is_processed(self) -> bool:
        return self in (Outcome.STORED, Outcome.IGNORED)


class Intake(Protocol):
    async def store_from_mailbox(self, raw: bytes, mailbox: ReportImap) -> NotStored | None: ...


class ReportMailbox(Queue[UUID]):
    """A job is one poll, by the holder of its lease."""

    def __init__(
        self,
        settings: ReportImap,
        folder: Path,
        store: MailboxStore,
        intake: Intake,
        *,
        metrics: "MailboxMetrics",
        interval: float = LOOK,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        pause = min(interval, settings.interval / 1000)
        super().__init__("report mailbox", pause, quiet=True, give_back=partial(store.release, ALL, settings.name))
        self._settings = settings
        self._folder = folder
        self._store = store
        self._intake = intake
        self._metrics = metrics
        self._clock = clock
        self._threads = ThreadPoolExecutor(1, "report mailbox")
        self._left = 0  # mails at the beginning of the folder that the next poll passes over
        self._waiting: dict[tuple[int, int], datetime] = {}  # since when, by UIDVALIDITY and UID

    async def stop(self) -> None:
        await super().stop()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def jobs(self) -> AsyncGenerator[UUID, None]:
        """Begin a poll if the mailbox is due and no other guard polls it."""
        holder = uuid4()
        if await self._store.claim(ALL, self._settings.name, holder, self._clock(), LEASE):
            yield holder

    async def work(self, job: UUID) -> int:
        failure = await self._attempt()
        self._metrics.polls.labels("failed" if failure else "finished").inc()
        if failure:
            _log.warning("report_mailbox_failed", mailbox=self._settings.name, reason=failure)
        now = self._clock()
        following = now + timedelta(milliseconds=self._settings.interval)
        await self._store.finish(ALL, self._settings.name, job, now=now, next_poll=following, failure=failure)
        return 1

    async def _attempt(self) -> str:
        """Poll once; return the failure, or ""."""
        client = ImapClient(self._settings, self._folder)
        try:
            async with asyncio.timeout(POLL_SECONDS):
                await self._poll(client)
        except TimeoutError:
            return f"The poll did not end within {POLL_SECONDS:.0f} seconds."
        except (MailboxFailed, ConfigurationError) as error:
            return str(error)
        except MailwardenError as error:
            return f"No report can be stored now: {error.message}"
        except Exception as error:  # the failure is recorded, and the next poll waits its interval
            _log.exception("report_mailbox_crashed", mailbox=self._settings.name)
            return f"Internal error: {type(error).__name__}."
        finally:
            await self._close(client)
        return ""

    async def _poll(self, client: ImapClient) -> None:
        state = await self._call(client, client.open)
        await self._call(client, client.prepare_folders)
        first = self._left + 1 if self._left < state.count else 1
        last = min(state.count, first + self._settings.max_messages - 1)
        listed = await self._call(client, lambda: client.listed(first, last)) if state.count else []
        unlisted = max(0, last - first + 1 - len(listed))
        self._count_unlisted(unlisted)
        left = first - 1 + unlisted  # as many of these as a poll reads must not end every later poll
        for mail in listed:
            if self.stopping:
                break
            async with self.in_hand:
                try:
                    left += not await self._serve(client, state, mail)
                except BaseException:  # also the end of the poll's time
                    self._left = left + 1  # this mail must not end every later poll
                    raise
        self._left = left if last < state.count else 0
        self._forget_waiting()

    def _count_unlisted(self, number: int) -> None:
        """Report the mails that the server has but did not list: another client moved them, or they are unreadable."""
        if number:
            self._metrics.messages.labels(Outcome.UNLISTED).inc(number)
            _log.warning("report_mails_unlisted", mailbox=self._settings.name, mails=number)

    async def _serve(self, client: ImapClient, state: MailboxState, mail: ListedMail) -> bool:
        """Store one mail and move it; return whether it left the folder."""
        outcome, reason = await self._take(client, state, mail)
        self._metrics.messages.labels(outcome).inc()
        if outcome is Outcome.WAITS:
            return False
        settings = self._settings
        folder = settings.processed_folder if outcome.is_processed else settings.failed_folder
        if not outcome.is_processed:
            _log.warning("report_mail_failed", mailbox=settings.name, uid=mail.uid, outcome=outcome, reason=reason)
        await self._call(client, lambda: client.move(mail, folder))
        self._waiting.pop((state.validity, mail.uid), None)
        return True

    async def _take(self, client: ImapClient, state: MailboxState, mail: ListedMail) -> tuple[Outcome, str]:
        """Return the outcome once the report is durable, and the reason if it is not stored."""
        if mail.size > self._settings.max_size:
            return Outcome.TOO_LARGE, f"{mail.size} bytes are more than maxSize"
        try:
            raw = await self._call(client, lambda: client.read(mail))
            not_stored = await self._intake.store_from_mailbox(raw, self._settings)
        except UnreadableMail as error:
            return Outcome.UNREADABLE, str(error)
        except (Rejection, EngineUnavailable) as error:  # the reporter could not be checked for now
            since = self._waiting.setdefault((state.validity, mail.uid), self._clock())
            reason = error.reply if isinstance(error, Rejection) else error.message
            return (Outcome.UNREADABLE if self._clock() - since > WAIT else Outcome.WAITS), reason
        except (MailboxFailed, MailwardenError, TimeoutError):
            raise
        except Exception as error:  # a mail that breaks us must not stop the others
            _log.exception("report_mail_crashed", mailbox=self._settings.name, uid=mail.uid)
            return Outcome.UNREADABLE, f"internal error: {type(error).__name__}"
        if not_stored is None:
            return Outcome.STORED, ""
        return (Outcome.IGNORED if not_stored is NotStored.AUTOMATIC else Outcome.LIMITED), str(not_stored)

    async def _call(self, client: ImapClient, work: Callable[[], T]) -> T:
        """Run a blocking call in the thread of this mailbox; a call that is cancelled loses its connection."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except asyncio.CancelledError:
            client.abort()
            raise

    async def _close(self, client: ImapClient) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._call(client, client.close)

    def _forget_waiting(self) -> None:
        """Drop mails that a user moved: a mail waits no longer than twice the limit."""
        limit = self._clock() - 2 * WAIT
        self._waiting = {key: since for key, since in self._waiting.items() if since > limit}


class MailboxMetrics:
    def __init__(self, metrics: Metrics) -> None:
        self.polls = metrics.counter("report_mailbox_polls", "Polls of report mailboxes, by outcome.", "outcome")
        self.messages = metrics.counter(
            "report_mailbox_messages", "Mails of polled report mailboxes, by outcome.", "outcome"
        )
