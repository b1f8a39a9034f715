"""The SMTP client of the next hop, the Postfix behind guard: it delivers to all recipients of a message, or to none.

There are two steps, so that several parts of one message are ready before any is sent: `prepare` returns when the next
hop has accepted every recipient and waits for the data, `send` returns its reply.

Security: `commands` validated every address and attribute, so that none can end a line. Senders see the replies of the
next hop without control characters and in bounded length.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from msgspec import Struct

from mailwarden.smtp.commands import Forwarded, Recipient, Sender

MAX_IDLE = 20  # connections kept for the next message
IDLE_SECONDS = 20.0
PIPELINED = 100  # commands sent at once; their replies fit into any socket buffer
PIECE = 65_536  # bytes per write; each write costs as much as a few kilobytes
MAX_REPLY_LINES = 100
SEND_TIMEOUT = 60.0  # seconds for the envelope, and for the content
NO_ANSWER = "451 4.4.1 The next hop does not answer"
XFORWARD_WORDS = 400  # bytes of attributes in one XFORWARD command; a line has at most 512
_LINE = re.compile(rb"([2-5]\d\d)(?:([ -])([^\r\n]*))?\r?\n")


class DeliveryFailed(Exception):
    """The next hop did not accept a message; `reply` is the reply for the client."""

    def __init__(self, reply: str) -> None:
        super().__init__(reply)
        self.reply = reply


class Reply(Struct, frozen=True):
    code: int
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        """Return the last line, safe to repeat."""
        return "".join(character for character in self.lines[-1] if " " <= character <= "~")[:300]

    def rejection(self) -> DeliveryFailed:
        code = self.code if self.code >= 400 and self.code != 421 else 451  # 421 would end guard's own session
        text = self.text if re.match(r"[45]\.\d+\.\d+ ", self.text) else f"{code // 100}.0.0 {self.text}"
        return DeliveryFailed(f"{code} {text}")


class NextHop:
    """The destination of delivered messages; keeps a few idle connections for reuse."""

    def __init__(self, address: tuple[str, int], timeout: float, name: str) -> None:
        self.timeout = timeout  # of one reply
        self._address = address
        self._name = name
        self._idle: list[tuple[float, Connection]] = []

    async def prepare(
        self, sender: Sender, recipients: Sequence[Recipient], forwarded: Forwarded, size: int
    ) -> "Connection":
        """Return a connection on which the next hop waits for the data, or raise DeliveryFailed."""
        used = self._take_idle()
        if used is not None:
            with suppress(ConnectionError):  # the next hop closed the idle connection: retry on a new one
                return await self._begin(used, sender, recipients, forwarded, size)
        try:
            return await self._begin(Connection(self.timeout), sender, recipients, forwarded, size)
        except ConnectionError as error:
            raise DeliveryFailed(NO_ANSWER) from error

    async def _begin(
        self,
        connection: "Connection",
        sender: Sender,
        recipients: Sequence[Recipient],
        forwarded: Forwarded,
        size: int,
    ) -> "Connection":
        try:
            if not connection.alive:
                await connection.dial(self._address, self._name)
            await connection.begin(sender, recipients, forwarded, size)
        except ConnectionError:
            connection.close()
            raise
        except OSError as error:
            connection.close()
            raise DeliveryFailed(NO_ANSWER) from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def send(self, connection: "Connection", message: AsyncIterator[bytes]) -> Reply:
        """Send the data and return the positive reply; the connection is then kept or closed."""
        try:
            reply = await connection.send(message)
        except OSError as error:
            connection.close()
            raise DeliveryFailed("451 4.4.2 The next hop did not say whether it has the message") from error
        except BaseException:
            connection.close()
            raise
        if reply.code >= 300:
            connection.close()
            raise reply.rejection()
        if len(self._idle) < MAX_IDLE:
            self._idle.append((time.monotonic(), connection))
        else:
            connection.close()
        return reply

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()

    def _take_idle(self) -> "Connection | None":
        while self._idle:
            since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and connection.alive:
                return connection
            connection.close()
        return None


class Connection:
    """One SMTP connection to the next hop."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None
        self._offers: dict[str, str] = {}
        self._in_data = False  # a QUIT would be message text
        self.in_doubt = False  # the end of the data may have arrived, and no reply came: the next hop may have it

    @property
    def alive(self) -> bool:
        return self._writer is not None and not self._writer.is_closing() and not self._reader.at_eof()

    async def dial(self, address: tuple[str, int], name: str) -> None:
        async with asyncio.timeout(self._timeout):
            self._reader, self._writer = await asyncio.open_connection(*address, limit=4_096)
        greeting = await self._expect()
        if greeting.code >= 300:
            raise greeting.rejection()
        hello = await self._ask(f"EHLO {name}")
        self._offers = {key.upper(): rest for key, _, rest in (line.partition(" ") for line in hello.lines[1:])}

    async def begin(self, sender: Sender, recipients: Sequence[Recipient], forwarded: Forwarded, size: int) -> None:
        """Send the envelope and DATA; raise DeliveryFailed if any command is rejected."""
        commands = [
            *(f"XFORWARD {words}" for words in self._forwardable(forwarded)),
            f"MAIL FROM:<{sender.address}>{self._parameters(sender, size)}",
            *map(self._recipient, recipients),
            "DATA",
        ]
        together = PIPELINED if "PIPELINING" in self._offers else 1
        rejections: list[Reply] = []
        for start in range(0, len(commands), together):
            group = commands[start : start + together]
            # If a recipient is rejected and DATA is accepted, closing the connection leaves the message undelivered.
            self._in_data = group[-1] == "DATA"
            await self._say("".join(f"{command}\r\n" for command in group))
            replies = [await self._expect() for _ in group]
            rejections += [reply for reply in replies if not 200 <= reply.code < 400]
            if rejections and (together == 1 or self._in_data):
                # A temporary rejection asks for a retry; only permanent rejections alone reject the message.
                raise next((reply for reply in rejections if reply.code < 500), rejections[0]).rejection()
        if replies[-1].code != 354:
            raise replies[-1].rejection()

    async def send(self, message: AsyncIterator[bytes]) -> Reply:
        """Send the data with dots at line starts doubled (RFC 5321, section 4.5.2), and return the reply."""
        begins, held = True, b""
        ready = bytearray()
        async for chunk in message:
            piece = held + chunk
            held = b"\r" if piece.endswith(b"\r") else b""
            piece = piece[: len(piece) - len(held)]
            if not piece:
                continue
            ready += b"." if begins and piece.startswith(b".") else b""
            ready += piece.replace(b"\r\n.", b"\r\n..")
            begins = piece.endswith(b"\r\n")
            if len(ready) >= PIECE:
                await self._write(bytes(ready))
                ready.clear()
        ready += held + (b".\r\n" if begins and not held else b"\r\n.\r\n")
        self.in_doubt = True
        await self._write(bytes(ready))
        reply = await self._reply()
        self._in_data = self.in_doubt = False
        return reply

    def close(self) -> None:
        if self._writer is not None:
            if not self._in_data:
                with suppress(OSError, RuntimeError):
                    self._writer.write(b"QUIT\r\n")
            self._writer.close()
            self._writer = None

    def _recipient(self, recipient: Recipient) -> str:
        notification = recipient.notification if "DSN" in self._offers else ()
        return " ".join((f"RCPT TO:<{recipient.address}>", *notification))

    def _parameters(self, sender: Sender, size: int) -> str:
        """Return the parameters of MAIL; a next hop without a needed extension is a configuration error."""
        for needed, offer in ((sender.eight_bit, "8BITMIME"), (sender.utf8, "SMTPUTF8")):
            if needed and offer not in self._offers:
                raise DeliveryFailed(f"451 4.3.5 The next hop does not support {offer}")
        words = [f"SIZE={size}"] if "SIZE" in self._offers else []
        words += ["BODY=8BITMIME"] if sender.eight_bit else []
        words += ["SMTPUTF8"] if sender.utf8 else []
        words += sender.notification if "DSN" in self._offers else ()
        return "".join(f" {word}" for word in words)

    def _forwardable(self, forwarded: Forwarded) -> list[str]:
        """Return the attributes that the next hop offers, in lines within the limit."""
        wanted = self._offers.get("XFORWARD", "").upper().split()
        lines: list[str] = []
        for name, value in forwarded.words:
            word = f"{name}={value}"
            if name not in wanted:
                continue
            if lines and len(lines[-1]) + len(word) < XFORWARD_WORDS:
                lines[-1] += f" {word}"
            else:
                lines.append(word)
        return lines

    async def _ask(self, command: str) -> Reply:
        await self._say(f"{command}\r\n")
        reply = await self._expect()
        if reply.code >= 300:
            raise reply.rejection()
        return reply

    async def _expect(self) -> Reply:
        reply = await self._reply()
        if reply.code == 421:
            raise ConnectionResetError("The next hop ends the session.")
        return reply

    async def _say(self, text: str) -> None:
        await self._write(text.encode("utf-8", "surrogateescape"))

    async def _write(self, data: bytes) -> None:
        assert self._writer is not None
        if self._writer.is_closing():  # uvloop logs a warning on such a write
            raise ConnectionResetError("The next hop closed the connection.")
        self._writer.write(data)
        async with asyncio.timeout(self._timeout):
            await self._writer.drain()

    async def _reply(self) -> Reply:
        lines: list[str] = []
        async with asyncio.timeout(self._timeout):
            while len(lines) < MAX_REPLY_LINES:
                try:
                    found = _LINE.fullmatch(await self._reader.readuntil(b"\n"))
                except asyncio.LimitOverrunError:
                    found = None
                except asyncio.IncompleteReadError:
                    raise ConnectionResetError("The next hop closed the connection.") from None
                if found is None:
                    break
                lines.append((found[3] or b"").decode("utf-8", "replace"))
                if found[2] != b"-":
                    return Reply(int(found[1]), tuple(lines))
        raise ConnectionAbortedError("The next hop does not speak SMTP.")


class OutcomeUnknown(Exception):
    """The next hop may have accepted the mail: it is not sent again."""


async def hand_over(hop: NextHop, address: str, content: bytes) -> None:
    """Hand the mail over; raise DeliveryFailed if the next hop does not have it for sure."""
    sender = Sender("", utf8=not address.isascii(), eight_bit=not content.isascii())
    try:
        async with asyncio.timeout(SEND_TIMEOUT):
            connection = await hop.prepare(sender, [Recipient(address)], Forwarded(), len(content))
    except TimeoutError:
        raise DeliveryFailed(NO_ANSWER) from None
    try:
        async with asyncio.timeout(SEND_TIMEOUT):
            await hop.send(connection, _stream(content))
    except TimeoutError:
        raise OutcomeUnknown from None
    except DeliveryFailed as failed:
        if isinstance(failed.__cause__, OSError):
            raise OutcomeUnknown from None
        raise


async def _stream(content: bytes) -> AsyncIterator[bytes]:
    yield content
