"""Writes and sends the daily digest: the mail that lists a recipient's held messages, with links to release them.

A recipient gets at most one digest a day, however many guards run: a guard claims a digest before it sends it. Messages
of a digest that was not sent are listed the day after. If a guard dies after the next hop accepted a digest and before
guard stored that, the messages are listed once more the day after.

Security: digests go only to addresses in a tenant's own domains. They show hostile senders and subjects, which `Shown`
makes inert; they are escaped in HTML and stand in no header field. The recipient's own address is shown inert unless it
is a plain address: senders choose the part after `+` and between quotes.
"""

import asyncio
import re
import textwrap
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from html import escape

from msgspec import Struct

from mailwarden.access.tenants import TenantDirectory
from mailwarden.database.queue import Queue
from mailwarden.model.scope import Scope
from mailwarden.model.tenant import AssignedBy
from mailwarden.quarantine.digest import (
    MAX_SENDER,
    Digest,
    DigestJob,
    DigestLine,
    DigestLink,
    inert_text,
)
from mailwarden.quarantine.digest_links import LINK_PATH, DigestLinkSigner
from mailwarden.quarantine.digest_store import FIRST_JOB, DigestStore
from mailwarden.quarantine.settings import DigestSettings
from mailwarden.smtp.client import NO_ANSWER, DeliveryFailed, NextHop
from mailwarden.smtp.commands import Forwarded, Recipient, Sender
from mailwarden.smtp.own_mail import UnwritableAddress, checked_address, compose
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

_PLAIN = re.compile(r"[\w.+=-]{1,64}@[\w.-]+")
_CELL = "padding:8px 12px 8px 0;border-top:1px solid #ccc;vertical-align:top;text-align:left"
WITH_LINK = (
    "A link shows you one message and a button by which it is delivered to you. Opening the link alone delivers "
    "nothing. Have nothing delivered that you did not expect."
)
WITHOUT_LINK = (
    "Messages without a link are dangerous or could not be inspected. If you expect one, ask your administrator."
)

ENDS = "<>"  # recipients may have spaces and commas between quotes
INTERVAL = 30.0  # seconds between two checks of the clock
SEND_TIMEOUT = 60.0  # seconds for one digest
TRIES = 10  # for a digest that the next hop does not answer; the others wait
ALL = Scope.deployment()
_log = get_logger("guard.digests")


class Line(Struct, frozen=True):
    shown: DigestLine
    address: str  # of the page that releases it; empty where only an administrator may


class DigestWriter:
    def __init__(self, settings: DigestSettings, seal: DigestLinkSigner) -> None:
        self._settings = settings
        self._seal = seal

    def write(self, digest: Digest, now: datetime) -> bytes:
        """Return the message; it is ASCII unless the recipient's address is not."""
        lines, until = self._lines(digest, now), now + timedelta(days=self._settings.link_days)
        address = checked_address(digest.recipient, ENDS)
        rest = len(digest.uids) - len(lines)
        plain, html = text_of(lines, rest, address, until), html_of(lines, rest, address, until)
        return compose(self._settings.sender, address, subject_of(digest), now, plain=plain, html=html)

    def preview(self, digest: Digest, now: datetime) -> str:
        """Return subject and plain text with dead links, for an operator who is not the recipient."""
        lines = [Line(line.shown, line.address and f"{self._page}…") for line in self._lines(digest, now)]
        rest, until = len(digest.uids) - len(lines), now + timedelta(days=self._settings.link_days)
        text = text_of(lines, rest, checked_address(digest.recipient, ENDS), until)
        return f"Subject: {subject_of(digest)}\n\n{text}"

    @property
    def _page(self) -> str:
        return f"{self._settings.link.rstrip('/')}{LINK_PATH}/"

    def _lines(self, digest: Digest, now: datetime) -> list[Line]:
        lines = []
        for each in digest.listed:
            address = ""
            if each.message.is_open_to_recipients:
                link = DigestLink(each.message.uid, each.number, now + timedelta(days=self._settings.link_days))
                address = self._page + self._seal.token(link)
            lines.append(Line(DigestLine.of(each.message), address))
        return lines


def subject_of(digest: Digest) -> str:
    count = len(digest.uids)
    return f"Held for you: {count} {'message' if count == 1 else 'messages'}"


def text_of(lines: Sequence[Line], rest: int, recipient: str, until: datetime) -> str:
    """Return the digest as plain text."""
    blocks = [f"New in quarantine for {_named(recipient)}:"]
    for line in lines:
        shown = line.shown
        block = f"{shown.received:%Y-%m-%d %H:%M} UTC, {shown.verdict}\n  From:    {shown.sender}\n"
        block += f"  Subject: {shown.subject}\n  Why:     {shown.reason}"
        blocks.append(block + (f"\n  View or release: {line.address}" if line.address else ""))
    return "\n\n".join([*blocks, *(textwrap.fill(sentence, 76) for sentence in _sentences(lines, rest, until))]) + "\n"


def html_of(lines: Sequence[Line], rest: int, recipient: str, until: datetime) -> str:
    """Return the digest as HTML; every value is escaped."""
    rows = []
    for line in lines:
        shown = line.shown
        link = f'<br><a href="{escape(line.address)}">Look at it</a>' if line.address else ""
        rows.append(
            f'<tr><td style="{_CELL};white-space:nowrap">{shown.received:%Y-%m-%d %H:%M}<br>'
            f"{escape(shown.verdict)}</td>"
            f'<td style="{_CELL}"><b>{escape(shown.subject)}</b><br>{escape(shown.sender)}<br>'
            f"{escape(shown.reason)}{link}</td></tr>\n"
        )
    below = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in _sentences(lines, rest, until))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Held for you</title></head>\n'
        '<body style="font-family:sans-serif;line-height:1.4">\n'
        f"<p>New in quarantine for {escape(_named(recipient))}; times are UTC:</p>\n"
        '<table style="border-collapse:collapse">\n'
        f"{''.join(rows)}</table>\n{below}</body></html>\n"
    )


def _sentences(lines: Sequence[Line], rest: int, until: datetime) -> list[str]:
    """Return the notes below the list."""
    notices = []
    if rest:
        more = "1 older message is" if rest == 1 else f"{rest:,} older messages are"
        notices.append(f"{more} held for you as well and not listed here: ask your administrator.")
    if any(line.address for line in lines):
        notices.append(f"{WITH_LINK} Links are valid until {until:%Y-%m-%d}. Anyone with this message can use them.")
    if not all(line.address for line in lines):
        notices.append(WITHOUT_LINK)
    return notices


def _named(address: str) -> str:
    """Return the recipient as shown: text and links that a sender put into the address are inert."""
    return address if _PLAIN.fullmatch(address) else inert_text(address, MAX_SENDER)


class Digests(Queue[tuple[DigestJob, datetime]]):
    """A job is a digest, and the time until which its messages were received."""

    def __init__(
        self,
        store: DigestStore,
        writer: DigestWriter,
        hop: NextHop,
        tenants: TenantDirectory,
        settings: DigestSettings,
        *,
        metrics: Metrics,
        interval: float = INTERVAL,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__("quarantine digests", interval)
        self._store = store
        self._writer = writer
        self._hop = hop
        self._tenants = tenants
        self._settings = settings
        self._clock = clock
        self._counted = metrics.counter("quarantine_digests", "Digests of the quarantine, by outcome.", "outcome")
        self._done: date | None = None  # the last completed day
        self._unanswered: tuple[DigestJob | None, int] = None, 0  # the digest that got no answer last, and how often
        self._waits = False  # the next hop does not answer: the remaining digests are retried soon

    async def look(self) -> int:
        if sent := await super().look():
            _log.info("digests_sent", digests=sent)
        return sent

    async def jobs(self) -> AsyncGenerator[tuple[DigestJob, datetime], None]:
        now = self._clock()
        hour = now.replace(hour=self._settings.hour, minute=0, second=0, microsecond=0)
        if now < hour or self._done == now.date():
            return
        if not self._tenants.loaded:  # before a digest is claimed, so that no recipient is skipped
            await self._tenants.refresh()
        await self._store.prepare(ALL, now.date(), hour)
        self._waits, last = False, FIRST_JOB
        while not self._waits:
            following = await self._store.take(ALL, now.date(), last)
            if following is None:
                self._done = now.date()
                return
            last = following
            yield following, hour

    async def work(self, job: tuple[DigestJob, datetime]) -> int:
        """Send one digest and store that it was sent; log a failure and continue with the others."""
        turn, hour = job
        if not self._is_own(turn):
            return 0
        digest = await self._store.collect(ALL, turn, hour, self._settings.max_messages)
        if not digest.uids:
            return 0
        try:
            async with asyncio.timeout(SEND_TIMEOUT):
                await self._send(digest)
        except DeliveryFailed as failure:
            if failure.reply == NO_ANSWER and self._may_wait(turn):
                await self._store.give_back(ALL, turn)
                self._counted.labels("waits").inc()
                _log.warning("digests_wait", reason=NO_ANSWER)
                self._waits = True
                return 0
            # The text after the codes often names the recipient.
            return self._refused(turn, " ".join(failure.reply.split()[:2]))
        except (UnwritableAddress, TimeoutError) as failure:
            return self._refused(turn, type(failure).__name__)
        self._unanswered = None, 0
        await self._store.set_reported(ALL, digest)
        self._counted.labels("sent").inc()
        return 1

    def _refused(self, turn: DigestJob, reason: str) -> int:
        self._counted.labels("refused").inc()
        _log.warning("digest_refused", tenant=str(turn.tenant), reason=reason)
        return 0

    def _may_wait(self, turn: DigestJob) -> bool:
        """Return whether a digest without an answer is retried today: this digest alone may cause the silence."""
        last, tries = self._unanswered
        self._unanswered = turn, tries + 1 if turn == last else 1
        return self._unanswered[1] < TRIES

    def _is_own(self, turn: DigestJob) -> bool:
        """Return whether the recipient's domain belongs to the tenant; guards also scan outgoing mail."""
        assigned = self._tenants.assign(turn.recipient)
        return assigned.by is AssignedBy.DOMAINS and assigned.tenant == turn.tenant

    async def _send(self, digest: Digest) -> None:
        content = self._writer.write(digest, self._clock())
        sender = Sender("", utf8=not digest.recipient.isascii(), eight_bit=not content.isascii())
        recipients = [Recipient(digest.recipient)]
        connection = await self._hop.prepare(sender, recipients, Forwarded(), len(content))
        await self._hop.send(connection, _stream(content))


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content
