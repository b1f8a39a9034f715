"""An SMTP client that sends any bytes and reads whole replies."""

import asyncio
from types import TracebackType
from typing import Self


class SmtpClient:
    """One session; `say` sends bytes as they are, `reply` reads one reply, `ask` does both for one command."""

    def __init__(self, port: int, *, timeout: float = 20.0) -> None:
        self._port = port
        self._timeout = timeout
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    async def disconnect(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._writer.write(piece)
            await self._writer.drain()

    async def reply(self) -> str:
        """Return the reply's lines as one text, or nothing where the server has hung up."""
        lines = []
        async with asyncio.timeout(self._timeout):
            while line := await self._reader.readline():
                lines.append(line.decode().rstrip("\r\n"))
                if line[3:4] != b"-":
                    break
        return "\n".join(lines)

    async def ask(self, command: str) -> str:
        await self.say(command.encode() + b"\r\n")
        return await self.reply()

    async def hello(self) -> str:
        assert (await self.reply()).startswith("220 ")
        return await self.ask("EHLO client.example")

    async def envelope(self, sender: str = "alice@pass.example", *recipients: str) -> None:
        assert await self.ask(f"MAIL FROM:<{sender}>") == "250 2.1.0 Ok"
        for recipient in recipients or ("bob@company.example",):
            assert await self.ask(f"RCPT TO:<{recipient}>") == "250 2.1.5 Ok"

    async def data(self, message: bytes) -> str:
        """Send a message with its dots doubled, and return what is answered to it."""
        if not (begun := await self.ask("DATA")).startswith("354"):
            return begun
        stuffed = (b"\r\n" + message).replace(b"\r\n.", b"\r\n..")[2:]
        await self.say(stuffed + b".\r\n")
        return await self.reply()
