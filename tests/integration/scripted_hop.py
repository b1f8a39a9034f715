"""A next hop that answers as its script says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mailwarden.smtp.client import NextHop

OFFERS = "\r\n250-".join(("250-next.example", "PIPELINING", "SIZE 1000", "8BITMIME", "SMTPUTF8", "DSN"))
OFFERS += "\r\n250 XFORWARD NAME ADDR HELO"


class Scripted:
    """A server that answers by the first word of a command, or by a whole line where the script has one.

    The end of a message for an address is answered by `END address` where the script has it, and by END otherwise.
    """

    def __init__(self, **script: str) -> None:
        self.script: dict[str, str] = {
            "GREETING": "220 next.example", "EHLO": OFFERS, "MAIL": "250 2.1.0 Ok", "RCPT": "250 2.1.5 Ok",
            "XFORWARD": "250 2.0.0 Ok", "DATA": "354 Go on", "END": "250 2.0.0 Ok: queued as 4711", **script,
        }  # fmt: skip
        self.lines: list[str] = []
        self.messages: list[bytes] = []
        self.received = asyncio.Event()  # a whole message
        self.slowness = 0.0
        self.connections = 0

    @asynccontextmanager
    async def serving(self, timeout: float = 5.0) -> AsyncIterator[NextHop]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=2_000_000)
        hop = NextHop(("127.0.0.1", server.sockets[0].getsockname()[1]), timeout, "guard.example")
        try:
            yield hop
        finally:
            hop.close()
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        end = "END"
        try:
            if not await self._answer(writer, "GREETING"):
                return
            while line := (await reader.readline()).decode().rstrip("\r\n"):
                self.lines.append(line)
                whole = line if line in self.script else line.split(" ")[0]
                if line.startswith("RCPT TO:"):
                    end = f"END {line[9:].partition('>')[0]}"
                if line == "QUIT" or not await self._answer(writer, whole):
                    return
                if line == "DATA" and self.script["DATA"].startswith("354"):
                    if self.script.get("BODY") == "CLOSE":
                        return
                    self.messages.append((await reader.readuntil(b"\r\n.\r\n"))[:-3])
                    self.received.set()
                    if not await self._answer(writer, end if end in self.script else "END"):
                        return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, key: str) -> bool:
        """Say what the script says; HANG waits, CLOSE hangs up, and 421 hangs up after it was said.

        SLOW waits for `slowness` seconds, and then accepts.
        """
        said = self.script[key]
        if said == "SLOW":
            await asyncio.sleep(self.slowness)
            said = "250 2.0.0 Ok: slowly"
        if said == "HANG":
            await asyncio.sleep(5)
        if said == "CLOSE":
            return False
        writer.write(said.encode() + b"\r\n")
        await writer.drain()
        return not said.startswith("421")
