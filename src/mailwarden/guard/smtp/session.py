"""One SMTP session with Postfix: aiosmtpd's command loop, with commands, replies and reading of our own.

Security: hostile bytes by way of a client that is believed about its own client only. Every wait is bounded, every
reply has its enhanced code, and a client that talks before it is answered loses the session.
"""

import asyncio
import re
from collections import defaultdict
from typing import AnyStr, Protocol
from uuid import UUID

import structlog
from aiosmtpd.smtp import SMTP
from aiosmtpd.smtp import Envelope as AiosmtpdEnvelope
from aiosmtpd.smtp import Session as AiosmtpdSession

from mailwarden.errors import MailwardenError
from mailwarden.guard.smtp.commands import (
    ATTRIBUTES,
    Forwarded,
    Recipient,
    Refusal,
    Sender,
    read_recipient,
    read_sender,
)
from mailwarden.guard.smtp.config import Smtp
from mailwarden.guard.smtp.reader import MAX_COMMAND, PIECE, Lines
from mailwarden.model.tenant import Assignment
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.telemetry.logs import get_logger

MAX_ERRORS = 20
MAX_TENANTS = 20  # in one message; each has a connection of its own to the next hop
_ENHANCED = re.compile(r"[245]\.\d{1,3}\.\d{1,3} ")
_PLAIN_CODES = {"500": "5.5.2", "501": "5.5.4", "502": "5.5.1", "503": "5.5.1", "421": "4.4.2"}

log = get_logger(__name__)


class Transaction(AiosmtpdEnvelope):
    """One message on its way in; begun anew by EHLO, RSET and the end of every message."""

    def __init__(self) -> None:
        super().__init__()
        self.forwarded = Forwarded()
        self.sender: Sender | None = None
        self.refusal: Refusal | None = None  # of MAIL; what was said behind it at once hears the same
        self.recipients: list[Recipient] = []
        self.assigned: dict[str, Assignment] = {}  # the tenant of each address
        self.tenants: dict[UUID, list[Recipient]] = {}


class Desk(Protocol):
    """Where sessions hand in what they have received."""

    name: str
    settings: Smtp
    stopping: bool

    def require_room(self) -> None:
        """Raise Refusal where a message would be refused at once: to MAIL already, as every further word costs."""

    def assign(self, recipient: str) -> Assignment: ...

    def spool(self) -> SpoolWriter: ...

    async def take(self, transaction: Transaction, raw: Spooled) -> str:
        """Return the reply; 250 only once the decision has been carried out."""


class Greeting:
    """What aiosmtpd asks a handler for: the answers to EHLO and HELO."""

    def __init__(self, hostname: str, max_size: int) -> None:
        offers = ("PIPELINING", f"SIZE {max_size}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "DSN")
        lines = [hostname, *offers, f"XFORWARD {' '.join(ATTRIBUTES)}"]
        # As bytes, which `push` leaves alone: these replies have no enhanced code (RFC 2034). In one piece: each costs
        # a packet.
        self._lines = ["\r\n".join([*(f"250-{line}" for line in lines[:-1]), f"250 {lines[-1]}"]).encode("ascii")]
        self._hostname = hostname

    def __dir__(self) -> list[str]:
        return ["handle_EHLO", "handle_HELO"]

    async def handle_EHLO(  # noqa: N802 - aiosmtpd's names
        self, _: SMTP, session: AiosmtpdSession, __: AiosmtpdEnvelope, hostname: str, ___: list[str]
    ) -> list[bytes]:
        session.host_name = hostname
        return self._lines

    async def handle_HELO(  # noqa: N802
        self, _: SMTP, session: AiosmtpdSession, __: AiosmtpdEnvelope, hostname: str
    ) -> bytes:
        session.host_name = hostname
        return f"250 {self._hostname}".encode("ascii")


class SmtpSession(SMTP):
    line_length_limit = PIECE  # of the reader's buffer; what a line may hold is for `Lines` to say

    def __init__(self, desk: Desk, greeting: Greeting, hostname: str, backstop: float) -> None:
        super().__init__(
            greeting,
            data_size_limit=desk.settings.max_message_size,
            enable_SMTPUTF8=True,
            hostname=hostname,
            ident="Mailwarden guard",
            timeout=backstop,
            loop=asyncio.get_running_loop(),
        )
        self.command_size_limits = defaultdict(lambda: MAX_COMMAND)
        self._desk = desk
        self._lines: Lines
        self._errors = 0
        self._hanging_up = False
        self.busy = False  # with a message whose end has come, or is coming

    def __dir__(self) -> list[str]:
        """Name the commands alone: aiosmtpd looks at every name at the start of every session, and has no other use."""
        return _COMMANDS

    def transaction(self) -> Transaction:  # no property: aiosmtpd looks at each before there is an envelope
        assert isinstance(self.envelope, Transaction)
        return self.envelope

    def _create_envelope(self) -> Transaction:
        return Transaction()

    def _cb_client_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._lines = Lines(reader, self._desk.settings.command_timeout / 1000)
        self._reader = self._lines  # type: ignore[assignment]  # it has all that the command loop asks for
        self._writer = writer

    async def push(self, status: AnyStr) -> None:
        """Send a reply with its enhanced code; the one that ends the session is the last."""
        try:
            async with asyncio.timeout(self._desk.settings.command_timeout / 1000):
                await super().push(self._finished(status) if isinstance(status, str) else status)
        except TimeoutError:  # it asks and never listens
            self._hang_up_next()
        if self._hanging_up and self.transport is not None:
            self.transport.close()

    def _finished(self, status: str) -> str:
        status = _enhance(status)
        if status.startswith(("50", "555")):
            self._errors += 1
        if self._errors <= MAX_ERRORS or self._hanging_up:
            return status
        self._hang_up_next()
        return "421 4.7.0 Too many errors"

    async def handle_exception(self, error: Exception) -> str:
        """Return the reply to a command that failed; what is no refusal is a bug, and costs no message."""
        if isinstance(error, Refusal):
            if error.hang_up:
                self._hang_up_next()
            return error.reply
        if isinstance(error, MailwardenError):
            log.warning("smtp_command_failed", error=error.code, sentence=error.message)
        else:
            log.error("smtp_command_failed", exc_info=error)
        return "451 4.3.0 Something went wrong here; try again later"

    def leave(self) -> None:
        """Say that guard stops, to a client that waits for nothing."""
        if not self.busy and self.transport is not None and not self._hanging_up:
            self._hang_up_next()
            self._writer.write(b"421 4.3.2 guard is stopping; try again\r\n")
            self.transport.close()

    async def smtp_XFORWARD(self, argument: str | None) -> None:  # noqa: N802 - aiosmtpd finds commands by name
        if await self.check_helo_needed():
            return
        transaction = self.transaction()
        if transaction.sender is not None:
            raise Refusal("503 5.5.1 XFORWARD comes before MAIL")
        transaction.forwarded = transaction.forwarded.extended_by(argument)
        await self.push("250 2.0.0 Ok")

    async def smtp_MAIL(self, argument: str | None) -> None:  # noqa: N802
        if await self.check_helo_needed():
            return
        if self._desk.stopping:
            raise Refusal("421 4.3.2 guard is stopping; try again", hang_up=True)
        transaction = self.transaction()
        if transaction.sender is not None:
            raise Refusal("503 5.5.1 One MAIL for one message")
        sender = read_sender(argument, self._desk.settings.max_message_size)
        try:
            self._desk.require_room()
        except Refusal as refusal:
            transaction.refusal = refusal
            raise
        transaction.sender, transaction.refusal = sender, None
        await self.push("250 2.1.0 Ok")

    async def smtp_RCPT(self, argument: str | None) -> None:  # noqa: N802
        transaction = self.transaction()
        if transaction.sender is None:
            raise transaction.refusal or Refusal("503 5.5.1 MAIL comes before RCPT")
        if len(transaction.recipients) >= self._desk.settings.max_recipients:
            raise Refusal(f"452 4.5.3 At most {self._desk.settings.max_recipients} recipients at once")
        recipient = read_recipient(argument, utf8=transaction.sender.utf8)
        # An address named twice stays with the tenant it had first, whatever has become of its domain since.
        assignment = transaction.assigned.get(recipient.address) or self._desk.assign(recipient.address)
        tenants = transaction.tenants
        if assignment.tenant not in tenants and len(tenants) >= MAX_TENANTS:
            raise Refusal(f"452 4.5.3 Recipients of at most {MAX_TENANTS} tenants at once")
        transaction.assigned[recipient.address] = assignment
        tenants.setdefault(assignment.tenant, []).append(recipient)
        transaction.recipients.append(recipient)
        await self.push("250 2.1.5 Ok")

    async def smtp_DATA(self, argument: str | None) -> None:  # noqa: N802
        transaction = self.transaction()
        if not transaction.recipients:
            raise transaction.refusal or Refusal("503 5.5.1 RCPT comes before DATA")
        if argument:
            raise Refusal("501 5.5.4 Syntax: DATA")
        if self._lines.pending:  # RFC 2920, section 3.1: what follows DATA waits for 354
            raise Refusal("503 5.5.1 DATA is not answered yet, and more has come", hang_up=True)
        self.busy = True
        try:
            self._desk.require_room()  # what there was at MAIL may be gone
            await self.push("354 End data with <CR><LF>.<CR><LF>")
            reply = await self._receive(transaction)
        finally:
            self.busy = False
            self.envelope = self._create_envelope()
            structlog.contextvars.unbind_contextvars("ggrid")
        await self.push(reply)
        if self._desk.stopping:
            self.leave()

    async def _receive(self, transaction: Transaction) -> str:
        settings = self._desk.settings
        raw = await self._lines.read_message(
            self._desk.spool(), settings.max_message_size, settings.data_timeout / 1000
        )
        try:
            if raw.size == 0:
                raise Refusal("554 5.6.0 The message is empty")
            return await self._desk.take(transaction, raw)
        finally:
            raw.close()

    async def smtp_VRFY(self, _: str | None) -> None:  # noqa: N802
        await self.push("252 2.5.2 Who receives mail is for the next hop to say")

    async def smtp_HELP(self, _: str | None) -> None:  # noqa: N802
        await self.push("214 2.0.0 docs/smtp.md")

    async def smtp_AUTH(self, _: str | None) -> None:  # noqa: N802
        await self.push("502 5.5.1 AUTH is not offered")

    async def smtp_STARTTLS(self, _: str | None) -> None:  # noqa: N802
        await self.push("502 5.5.1 STARTTLS is not offered")

    def _hang_up_next(self) -> None:
        """Make the next reply the last one; nothing that was sent behind it is taken for a command."""
        self._hanging_up = True
        self._lines.shut()


_COMMANDS = [name for name in dir(SmtpSession) if name.startswith("smtp_")]


def _enhance(status: str) -> str:
    """Give aiosmtpd's own replies the code that ENHANCEDSTATUSCODES promises."""
    code, text = status[:3], status[4:]
    if code[:1] not in "245" or _ENHANCED.match(text) or status.startswith("220"):
        return status
    return f"{code} {_PLAIN_CODES.get(code, f'{code[0]}.0.0')} {text}"
