"""The products to compare with: scores of plain Rspamd and, if installed, SpamAssassin for the same message."""

import asyncio
import json
import re
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from mailwarden.engines.rspamd import split_answer
from mailwarden.model.envelope import Envelope
from workshop.rig.ports import free_port
from workshop.rig.process import ServerProcess

HOST = "127.0.0.1"
PATIENCE = 60.0
_SPAMD_SCORE = re.compile(rb"^Spam: \w+ ; (-?[\d.]+) / ", re.MULTILINE)


class Posted(Protocol):
    """A message with its envelope."""

    @property
    def raw(self) -> bytes: ...
    @property
    def envelope(self) -> Envelope: ...


Score = Callable[[Posted], Awaitable[float | None]]


class PlainRspamd:
    """Calls Rspamd as an MTA with the stock configuration does: the whole envelope, and none of our settings."""

    def __init__(self, address: str) -> None:
        self._path = address.removeprefix("unix:")

    async def score(self, posted: Posted) -> float | None:
        envelope = posted.envelope
        lines = [f"POST /checkv2 HTTP/1.1\r\nHost: rspamd\r\nContent-Length: {len(posted.raw)}", "Connection: close"]
        lines += [f"From: {envelope.sender}", *(f"Rcpt: {address}" for address in envelope.recipients)]
        lines += [f"IP: {envelope.remote_address}"] if envelope.remote_address else []
        lines += [f"Helo: {envelope.helo}", f"Hostname: {envelope.helo}"] if envelope.helo else []
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + posted.raw)
                _, body = split_answer(await reader.read(-1))
        finally:
            writer.transport.abort()
        answer = json.loads(body)
        return None if answer.get("action") == "soft reject" else float(answer["score"])


class SpamAssassin(ServerProcess):
    """spamd with its own rules: no network, no learning, no user preferences."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = ["spamd", "-L", "-x", "-s", "stderr", "-i", HOST, "-p", str(self.port), "-m", "4"]
        command += ["--cf", "use_bayes 0"]
        super().__init__("spamd", command, folder / "spamd.log", self.answers, deadline=PATIENCE)

    def answers(self) -> bool:
        with socket.create_connection((HOST, self.port), 2.0) as connection:
            connection.sendall(b"PING SPAMC/1.5\r\n\r\n")
            return b"PONG" in connection.recv(100)

    async def score(self, posted: Posted) -> float | None:
        reader, writer = await asyncio.open_connection(HOST, self.port)
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(b"CHECK SPAMC/1.5\r\nContent-length: %d\r\n\r\n" % len(posted.raw) + posted.raw)
                found = _SPAMD_SCORE.search(await reader.read(-1))
        finally:
            writer.transport.abort()
        return float(found[1]) if found else None


def has_spamassassin() -> bool:
    return shutil.which("spamc") is not None and shutil.which("spamd") is not None
