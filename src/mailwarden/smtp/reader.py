"""The bytes of one SMTP session: commands line by line, and messages up to the end of data.

Security: only CR LF ends a line (RFC 5321, section 2.3.8) and only CR LF dot CR LF ends a message (section 4.1.1.4). A
bare CR or LF is rejected anywhere, because two programs that disagree about it see two messages where there is one
(SMTP smuggling).
"""

import asyncio

from mailwarden.errors import Overloaded
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.smtp.commands import Rejection
from mailwarden.telemetry.logs import get_logger

MAX_COMMAND = 2_048  # bytes; clients may count on 512 and what the extensions add (RFC 5321, section 4.5.3.1.4)
PIECE = 65_536
# guard reads a rejected message to its end for this long: clients read the reply only then.
DOOMED_SECONDS = 5.0
END = b"\r\n.\r\n"

STRAY = "550 5.5.2 Bare CR or LF rejected: lines end with CR LF"
TOO_LARGE = "552 5.3.4 The message is too large"
NO_ROOM = "452 4.3.1 Insufficient storage for the message"
SLOW_DATA = "421 4.4.2 Timeout while receiving the message"
SLOW_COMMAND = "421 4.4.2 Timeout while waiting for a command"

log = get_logger(__name__)


class ClientGone(Exception):
    """The connection is lost: nothing more can be read from the client, or sent to it."""


class SmtpReader:
    """Reads commands and messages from one client, each within its deadline."""

    def __init__(self, reader: asyncio.StreamReader, command_seconds: float) -> None:
        self._reader = reader
        self._command_seconds = command_seconds
        self._held = bytearray()

    @property
    def pending(self) -> bool:
        """Return whether the client has sent bytes that are not yet read."""
        return bool(self._held)

    async def read_command(self) -> bytes:
        """Return one command with its CR LF, or raise the Rejection that ends the session."""
        try:
            async with asyncio.timeout(self._command_seconds):
                while (end := self._held.find(b"\n")) < 0 and len(self._held) <= MAX_COMMAND:
                    self._held += await self._more()
        except TimeoutError:
            raise Rejection(SLOW_COMMAND, hang_up=True) from None
        if end < 0 or end >= MAX_COMMAND:
            raise Rejection("500 5.5.6 The line is too long", hang_up=True)
        line = bytes(self._held[: end + 1])
        del self._held[: end + 1]
        if not line.endswith(b"\r\n") or line.count(b"\r") != 1 or b"\0" in line:
            raise Rejection("500 5.5.2 A command ends with CR LF and holds no other", hang_up=True)
        return line

    async def read_message(self, writer: SpoolWriter, max_size: int, seconds: float) -> Spooled:
        """Return the message that follows; the bytes behind its end stay for the next command."""
        message = _Message(writer, max_size)
        tail = bytearray(b"\r\n")  # the end of the command: a message may be a lone dot
        try:
            async with asyncio.timeout(seconds) as timeout:
                while (end := tail.find(END)) < 0:
                    cut = _safe_cut(tail)
                    sound = message.rejection is None
                    await message.take(bytes(tail[:cut]))
                    del tail[:cut]
                    message.detect_bare(tail)
                    if sound and message.rejection is not None:
                        timeout.reschedule(asyncio.get_running_loop().time() + min(DOOMED_SECONDS, seconds))
                    tail += await self._more()
                await message.take(bytes(tail[: end + 2]))
                self._held += tail[end + len(END) :]
                return await message.finish()
        except TimeoutError:
            reply = SLOW_DATA if message.rejection is None else message.rejection.reply
            raise Rejection(reply, hang_up=True) from None
        finally:
            writer.discard()

    async def _more(self) -> bytes:
        try:
            found = await self._reader.read(PIECE)
        except OSError as error:
            raise ClientGone from error
        if not found:
            raise ClientGone
        return found


class _Message:
    """Receives the pieces of a message, detects bare CR and LF, and removes doubled dots (RFC 5321, section 4.5.2)."""

    def __init__(self, writer: SpoolWriter, max_size: int) -> None:
        self._writer = writer
        self._max_size = max_size
        self._size = -2  # the two bytes before the first line do not belong to the message
        self.rejection: Rejection | None = None

    async def take(self, piece: bytes) -> None:
        """Add a piece that does not begin or end between CR and LF."""
        self.detect_bare(piece)
        if not piece or self.rejection is not None:
            return
        plain = piece.replace(b"\r\n.", b"\r\n")
        if self._size < 0:
            plain = plain[2:]
            self._size = 0
        self._size += len(plain)
        if self._size > self._max_size:
            self.rejection = Rejection(TOO_LARGE)
            return
        try:
            await self._writer.write(plain)
        except Overloaded as error:
            self.rejection = _no_room(error)

    def detect_bare(self, text: bytes | bytearray) -> None:
        """Reject the message if it has a bare CR or LF; a CR at the very end may still get its LF."""
        ends = text.count(b"\r\n")
        if text.count(b"\n") != ends or text.count(b"\r") - text.endswith(b"\r") != ends:
            self.rejection = self.rejection or Rejection(STRAY, hang_up=True)

    async def finish(self) -> Spooled:
        if self.rejection is not None:
            raise self.rejection
        try:
            return await self._writer.finish()
        except Overloaded as error:
            raise _no_room(error) from None


def _no_room(error: Overloaded) -> Rejection:
    log.warning("no_room_in_spool", sentence=error.message)
    return Rejection(NO_ROOM)


def _safe_cut(tail: bytearray) -> int:
    """Return how many buffered bytes cannot be part of the end: all before the last CR LF, or most of a long line."""
    last = tail.rfind(b"\r\n")
    if last > 0 or len(tail) <= PIECE:
        return max(last, 0)
    return len(tail) - 1 if tail.endswith(b"\r") else len(tail)
