"""One SMTP session with Postfix: the greeting, the command loop, and one reply to each command.

RFC 5321 is the protocol; each command names its section. Every reply but those to the greeting, EHLO, HELO and DATA
has an enhanced code (RFC 2034, section 4; RFC 3463). guard offers PIPELINING (RFC 2920), SIZE (RFC 1870), 8BITMIME
(RFC 6152), SMTPUTF8 (RFC 6531), ENHANCEDSTATUSCODES (RFC 2034), DSN (RFC 3461) and XFORWARD of Postfix. It does not
offer CHUNKING (RFC 3030), STARTTLS (RFC 3207) or AUTH (RFC 4954): its only client is the Postfix beside it.

Security: hostile bytes from a client that is trusted only about its own client. Every wait has a deadline. guard closes
a session with too many errors, or with data before 354, and executes no command after the reply that ends it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import ClassVar, Protocol
from uuid import UUID

import structlog

from mailwarden.errors import MailwardenError
from mailwarden.model.tenant import Assignment
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.smtp.commands import (
    ATTRIBUTES,
    Forwarded,
    Recipient,
    Rejection,
    Sender,
    read_recipient,
    read_sender,
)
from mailwarden.smtp.reader import ClientGone, SmtpReader
from mailwarden.smtp.settings import Smtp
from mailwarden.telemetry.logs import get_logger

MAX_ERRORS = 20
MAX_UNRECOGNISED = 5  # of the errors: commands that no SMTP client sends, such as those of HTTP
MAX_TENANTS = 20  # in one message; each has a connection of its own to the next hop
STOPPING = "421 4.3.2 guard is stopping; try again"
FAILED = "451 4.3.0 Internal error; try again later"
FAILED_IN_DATA = "421 4.3.0 Internal error; try again later"
_NO_HELLO = "503 5.5.1 Error: send HELO first"
_SYNTAX = "500 5.5.2 Error: bad syntax"

log = get_logger(__name__)


class Transaction:
    """One mail transaction; EHLO, HELO, RSET and the end of every message start a new one (RFC 5321, 4.1.4)."""

    def __init__(self) -> None:
        self.forwarded = Forwarded()
        self.sender: Sender | None = None
        self.rejection: Rejection | None = None  # of MAIL; the commands pipelined behind it get the same reply
        self.recipients: list[Recipient] = []
        self.assigned: dict[str, Assignment] = {}  # the tenant of each address
        self.tenants: dict[UUID, list[Recipient]] = {}


class Receiver(Protocol):
    """The receiver of the sessions' messages."""

    name: str
    settings: Smtp
    stopping: bool

    def require_room(self) -> None:
        """Raise Rejection while messages are rejected for load: at MAIL already, before the client sends more."""

    def assign(self, recipient: str) -> Assignment: ...

    def spool(self) -> SpoolWriter: ...

    async def take(self, transaction: Transaction, raw: Spooled) -> str:
        """Return the reply; 250 only once the decision has been carried out (RFC 5321, section 4.2.5)."""


class SmtpSession:
    """One client, from the greeting to the last reply."""

    def __init__(
        self,
        receiver: Receiver,
        hostname: str,
        deadline: float,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Take the streams of one connection; `deadline` bounds a whole command, should every other timeout fail."""
        self._receiver = receiver
        self._hostname = hostname
        self._deadline = deadline
        self._reply_seconds = receiver.settings.command_timeout / 1000
        self._reader = SmtpReader(reader, self._reply_seconds)
        self._writer = writer
        self._transaction = Transaction()
        self._greeted = False  # by EHLO or HELO
        self._errors = 0
        self._unrecognised = 0
        self._ending = False
        self.busy = False  # with a message that the client is sending, or waits for

    async def run(self) -> None:
        """Serve the client until one of both ends the session."""
        try:
            await self._send(f"220 {self._hostname} Mailwarden guard")
            while not self._ending:
                await self._send(self._checked(await self._next_reply()))
                if self._receiver.stopping:
                    self.leave()
        except ClientGone:
            log.debug("smtp_client_gone")
        finally:
            self._writer.close()

    def leave(self) -> None:
        """Send 421 because guard stops (RFC 5321, section 3.8), unless the client waits for the reply to a message."""
        if not self.busy and not self._ending and not self._writer.is_closing():
            self._ending = True
            self._writer.write(f"{STOPPING}\r\n".encode())
            self._writer.close()

    async def _next_reply(self) -> str:
        """Read one command, execute it, and return its reply; a bug costs the client no message."""
        try:
            verb, argument = _split(await self._reader.read_command())
            async with asyncio.timeout(self._deadline):
                return await self._COMMANDS.get(verb, SmtpSession._unknown)(self, argument)
        except Rejection as rejection:
            self._ending |= rejection.hang_up
            return rejection.reply
        except ClientGone:
            raise
        except MailwardenError as error:
            log.warning("smtp_command_failed", error=error.code, sentence=error.message)
        except Exception:
            log.exception("smtp_command_failed")
        return FAILED_IN_DATA if self._ending else FAILED

    def _checked(self, reply: str) -> str:
        """Count errors of syntax and order, and return the reply that ends the session where they are too many.

        A server ends a session with 421 and no other code (RFC 5321, sections 3.8 and 4.2.1).
        """
        if reply.startswith(("50", "555")):
            self._errors += 1
        if not self._ending and (self._errors > MAX_ERRORS or self._unrecognised >= MAX_UNRECOGNISED):
            self._ending = True
            return "421 4.7.0 Too many errors"
        return reply

    async def _send(self, reply: str) -> None:
        if self._writer.is_closing():  # uvloop takes it for a bug to write now
            raise ClientGone
        self._writer.write(f"{reply}\r\n".encode())
        try:
            async with asyncio.timeout(self._reply_seconds):
                await self._writer.drain()
        except OSError as error:  # lost, or too slow: a client that never reads, for which closing would wait
            self._writer.transport.abort()
            raise ClientGone from error

    async def _ehlo(self, argument: str | None) -> str:
        """RFC 5321, section 4.1.1.1; the reply has no enhanced code (RFC 2034, section 4)."""
        if not argument:
            raise Rejection("501 5.5.4 Syntax: EHLO hostname")
        self._greet()
        size = self._receiver.settings.max_message_size
        offers = ("PIPELINING", f"SIZE {size}", "8BITMIME", "SMTPUTF8", "ENHANCEDSTATUSCODES", "DSN")
        first = "".join(f"250-{line}\r\n" for line in (self._hostname, *offers))
        return f"{first}250 XFORWARD {' '.join(ATTRIBUTES)}"  # in one piece: each costs a packet

    async def _helo(self, argument: str | None) -> str:
        if not argument:
            raise Rejection("501 5.5.4 Syntax: HELO hostname")
        self._greet()
        return f"250 {self._hostname}"

    def _greet(self) -> None:
        """EHLO and HELO also do what RSET does (RFC 5321, section 4.1.4)."""
        self._greeted = True
        self._transaction = Transaction()

    async def _xforward(self, argument: str | None) -> str:
        """Postfix's XFORWARD_README: before MAIL, for the one message that follows."""
        self._require_hello()
        if self._transaction.sender is not None:
            raise Rejection("503 5.5.1 XFORWARD comes before MAIL")
        self._transaction.forwarded = self._transaction.forwarded.extended_by(argument)
        return "250 2.0.0 Ok"

    async def _mail(self, argument: str | None) -> str:
        """RFC 5321, section 4.1.1.2."""
        self._require_hello()
        transaction = self._transaction
        if transaction.sender is not None:
            raise Rejection("503 5.5.1 One MAIL for one message")
        sender = read_sender(argument, self._receiver.settings.max_message_size)
        try:
            self._receiver.require_room()
        except Rejection as rejection:
            transaction.rejection = rejection
            raise
        transaction.sender, transaction.rejection = sender, None
        return "250 2.1.0 Ok"

    async def _rcpt(self, argument: str | None) -> str:
        """RFC 5321, section 4.1.1.3; 452 for too many recipients: section 4.5.3.1.10."""
        transaction = self._transaction
        if transaction.sender is None:
            raise transaction.rejection or Rejection("503 5.5.1 MAIL comes before RCPT")
        if len(transaction.recipients) >= self._receiver.settings.max_recipients:
            raise Rejection(f"452 4.5.3 At most {self._receiver.settings.max_recipients} recipients at once")
        recipient = read_recipient(argument, utf8=transaction.sender.utf8)
        # An address that is named twice keeps its first tenant, even if the domain has changed hands since.
        assignment = transaction.assigned.get(recipient.address) or self._receiver.assign(recipient.address)
        tenants = transaction.tenants
        if assignment.tenant not in tenants and len(tenants) >= MAX_TENANTS:
            raise Rejection(f"452 4.5.3 Recipients of at most {MAX_TENANTS} tenants at once")
        transaction.assigned[recipient.address] = assignment
        tenants.setdefault(assignment.tenant, []).append(recipient)
        transaction.recipients.append(recipient)
        return "250 2.1.5 Ok"

    async def _data(self, argument: str | None) -> str:
        """RFC 5321, section 4.1.1.4."""
        if not self._transaction.recipients:
            raise self._transaction.rejection or Rejection("503 5.5.1 RCPT comes before DATA")
        if argument:
            raise Rejection("501 5.5.4 Syntax: DATA")
        if self._reader.pending:  # DATA ends a pipelined group: the client waits for 354 (RFC 2920, section 3.1)
            raise Rejection("503 5.5.1 DATA is not answered yet, and more has come", hang_up=True)
        self.busy = True
        try:
            self._receiver.require_room()  # there may be no room left since MAIL
            raw = await self._receive()
            try:
                if raw.size == 0:
                    raise Rejection("554 5.6.0 The message is empty")
                return await self._receiver.take(self._transaction, raw)
            finally:
                raw.close()
        finally:
            self.busy = False
            self._transaction = Transaction()
            structlog.contextvars.unbind_contextvars("ggrid")

    async def _receive(self) -> Spooled:
        """Send 354 and read the message.

        Security: any failure before the end of the message ends the session. The next line would otherwise be a line of
        the message, executed as a command (SMTP smuggling). A Rejection comes after the end, or ends the session.
        """
        settings = self._receiver.settings
        writer = self._receiver.spool()
        await self._send("354 End data with <CR><LF>.<CR><LF>")
        try:
            return await self._reader.read_message(writer, settings.max_message_size, settings.data_timeout / 1000)
        except Rejection:
            raise
        except BaseException:
            self._ending = True
            raise

    async def _rset(self, argument: str | None) -> str:
        """RFC 5321, section 4.1.1.5."""
        if argument:
            raise Rejection("501 5.5.4 Syntax: RSET")
        self._transaction = Transaction()
        return "250 2.0.0 OK"

    async def _vrfy(self, _: str | None) -> str:
        """RFC 5321, section 3.5.3: 252 where the server cannot verify the address."""
        return "252 2.5.2 The next hop knows the mailboxes"

    async def _expn(self, _: str | None) -> str:
        raise Rejection("502 5.5.1 EXPN is not offered")

    async def _help(self, _: str | None) -> str:
        return "214 2.0.0 docs/smtp.md"

    async def _noop(self, _: str | None) -> str:
        """RFC 5321, section 4.1.1.9: an argument is ignored."""
        return "250 2.0.0 OK"

    async def _quit(self, argument: str | None) -> str:
        """RFC 5321, section 4.1.1.10."""
        if argument:
            raise Rejection("501 5.5.4 Syntax: QUIT")
        self._ending = True
        return "221 2.0.0 Bye"

    async def _auth(self, _: str | None) -> str:
        raise Rejection("502 5.5.1 AUTH is not offered")

    async def _starttls(self, _: str | None) -> str:
        raise Rejection("502 5.5.1 STARTTLS is not offered")

    async def _unknown(self, _: str | None) -> str:
        """RFC 5321, section 4.2.4: 500 for a command that the server does not recognise."""
        self._unrecognised += 1
        raise Rejection("500 5.5.2 Error: command not recognized")

    def _require_hello(self) -> None:
        if not self._greeted:
            raise Rejection(_NO_HELLO)

    _COMMANDS: ClassVar[Mapping[str, Callable[["SmtpSession", str | None], Awaitable[str]]]] = {
        "EHLO": _ehlo,
        "HELO": _helo,
        "XFORWARD": _xforward,
        "MAIL": _mail,
        "RCPT": _rcpt,
        "DATA": _data,
        "RSET": _rset,
        "NOOP": _noop,
        "QUIT": _quit,
        "VRFY": _vrfy,
        "EXPN": _expn,
        "HELP": _help,
        "AUTH": _auth,
        "STARTTLS": _starttls,
    }


def _split(line: bytes) -> tuple[str, str | None]:
    """Return the verb in upper case and its argument (RFC 5321, section 2.4): a verb is ASCII, an address may be UTF-8.

    Bytes that are no UTF-8 stay recognisable, so that the argument's own reader rejects them.
    """
    verb, _, argument = line.removesuffix(b"\r\n").partition(b" ")
    if not verb or not verb.isascii():
        raise Rejection(_SYNTAX)
    return verb.decode("ascii").upper(), argument.strip().decode("utf-8", "surrogateescape") or None
