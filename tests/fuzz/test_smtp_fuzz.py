"""Random sessions against the scan source `smtp`: each reply is a reply, nothing hangs, and no bug shows."""

import asyncio
import os
import random
import re
import time
from pathlib import Path

from tests.integration.recording_source import RecordingSource, run_listener
from tests.integration.smtp_client import SmtpClient

SESSIONS = 6_000 if os.environ.get("MAILWARDEN_FULL") == "1" else 300
REPLY = re.compile(r"(\d{3}-[^\r\n]*\n)*\d{3} [^\r\n]*")
WORDS = (
    b"EHLO x", b"HELO x", b"MAIL FROM:", b"MAIL FROM:<a@b.example>", b"RCPT TO:<", b"RCPT TO:<a@b.example>", b"DATA",
    b"RSET", b"NOOP", b"XFORWARD ADDR=192.0.2.1", b"XFORWARD HELO=", b"VRFY x", b"HELP", b"BDAT 3", b"AUTH PLAIN",
    b"STARTTLS", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b".", b".\r\n", b"\r\n.\r\n", b"<", b">", b'"', b"\\", b" ",
    b"SIZE=", b"BODY=8BITMIME", b"SMTPUTF8", b"+0D", b"=", b"\xff\xfe", b"\xc3\xa9", b"\0", b"A" * 600, b"Subject: x",
)  # fmt: skip


def noise(chance: random.Random) -> bytes:
    return b"".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 60)))


def text(chance: random.Random) -> bytes:
    """Put a message together, half of the time one without stray line ends."""
    words = [word for word in WORDS if word not in (b"\n", b"\r")] if chance.random() < 0.5 else WORDS
    return b"".join(chance.choice(words) for _ in range(chance.randrange(1, 60))) + b"\r\n.\r\nQUIT\r\n"


async def test_random_sessions_are_answered_and_end(tmp_path: Path) -> None:
    source = RecordingSource(tmp_path, command_timeout=1_000, data_timeout=1_000)
    codes: set[str] = set()

    async def converse(number: int, port: int) -> None:
        chance = random.Random(number)
        async with SmtpClient(port, timeout=15.0) as client:
            try:
                sent = noise(chance)
                if chance.random() < 0.5:
                    await client.hello()
                    await client.envelope()
                    assert (await client.ask("DATA")).startswith("354")
                    sent = text(chance)
                place = 0
                while place < len(sent):
                    size = chance.choice((1, 7, 200, len(sent)))
                    await client.say(sent[place : place + size])
                    place += size
                while reply := await client.reply():
                    assert REPLY.fullmatch(reply), (number, reply)
                    codes.add(reply[:9])
            except ConnectionError:
                pass  # it was sent away with bytes unread

    began = time.monotonic()
    async with run_listener(source) as listener:
        for start in range(0, SESSIONS, 30):
            await asyncio.gather(*(converse(number, listener.port) for number in range(start, start + 30)))
    assert "451 4.3.0" not in codes, "a bug was answered"
    assert len(codes) > 12
    assert len(source.taken) > SESSIONS / 20
    assert time.monotonic() - began < 120.0
    for _, raw in source.taken:
        assert raw.count(b"\n") == raw.count(b"\r\n") == raw.count(b"\r")
