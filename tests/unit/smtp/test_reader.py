"""Where a command and where a message end, however the bytes come."""

import asyncio
import random
from pathlib import Path

import pytest
import structlog

from mailwarden.serving.spool import SpoolWriter
from mailwarden.smtp.commands import Rejection
from mailwarden.smtp.reader import ClientGone, SmtpReader

MAX = 4_000_000


def fed(*pieces: bytes, seconds: float = 5.0) -> SmtpReader:
    """Return lines whose client has said these pieces, each on its own."""
    reader = asyncio.StreamReader()

    async def feed() -> None:
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)

    lines = SmtpReader(reader, seconds)
    lines.feeding = asyncio.create_task(feed())  # type: ignore[attr-defined]
    return lines


async def message_in(lines: SmtpReader, tmp_path: Path, *, max_size: int = MAX, seconds: float = 5.0) -> bytes:
    spooled = await lines.read_message(SpoolWriter(tmp_path), max_size, seconds)
    try:
        return spooled.data()
    finally:
        spooled.close()


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b".\r\n", b""),
        (b"\r\n.\r\n", b"\r\n"),
        (b"a: b\r\n\r\ntext\r\n.\r\n", b"a: b\r\n\r\ntext\r\n"),
        (b"..\r\n.\r\n", b".\r\n"),
        (b"...a\r\n..b.\r\n.\r\n", b"..a\r\n.b.\r\n"),
        (b".a\r\n.\r\n", b"a\r\n"),
        (b"a.\r\n.\r\n", b"a.\r\n"),
        (b"\xff\x00\xfe\r\n.\r\n", b"\xff\x00\xfe\r\n"),
    ],
)
async def test_the_end_of_data_is_found_at_every_split(sent: bytes, message: bytes, tmp_path: Path) -> None:
    for size in (1, 2, 3, 5, len(sent)):
        pieces = [sent[start : start + size] for start in range(0, len(sent), size)]
        lines = fed(*pieces, b"QUIT\r\n")
        assert await message_in(lines, tmp_path) == message
        assert await lines.read_command() == b"QUIT\r\n", "what follows is the next command"


async def test_a_large_message_comes_through_byte_for_byte(tmp_path: Path) -> None:
    chance = random.Random(4)
    kinds = [b"\r\n", b".", b"..", b"a" * 70, b"\xc3\xbc" * 300, b"b" * 90_000]
    message = b"".join(chance.choice(kinds) for _ in range(150)) + b"\r\n"
    stuffed = (b"\r\n" + message).replace(b"\r\n.", b"\r\n..")[2:] + b".\r\n"
    assert len(message) > 1_500_000
    pieces = []
    while stuffed:
        size = chance.choice((1, 7, 1_000, 65_536))
        pieces.append(stuffed[:size])
        stuffed = stuffed[size:]
    assert await message_in(fed(*pieces), tmp_path) == message


@pytest.mark.parametrize(
    "ending",
    [
        b"\n.\n",
        b"\r.\r",
        b"\n.\r\n",
        b"\r\n.\n",
        b"\r\n.\r",
        b"\r.\r\n",
        b"\r\n\0.\r\n\n",
        b"\r\r\n.\r\r\n",
        b"\n\n.\r\n",
    ],
)
async def test_nothing_but_the_true_end_ends_a_message(ending: bytes, tmp_path: Path) -> None:
    smuggled = b"a: b\r\n\r\nfirst" + ending + b"MAIL FROM:<evil@attacker.example>\r\nDATA\r\nsecond\r\n.\r\n"
    lines = fed(smuggled, b"QUIT\r\n")
    with pytest.raises(Rejection, match=r"550 5\.5\.2") as caught:
        await message_in(lines, tmp_path)
    assert caught.value.hang_up


@pytest.mark.parametrize("odd", [b". \r\n", b".\t\r\n", b" .\r\n", b".\0\r\n"])
async def test_a_dot_with_company_is_text(odd: bytes, tmp_path: Path) -> None:
    assert (
        await message_in(fed(b"a\r\n" + odd + b"b\r\n.\r\n"), tmp_path) == b"a\r\n" + odd.removeprefix(b".") + b"b\r\n"
    )


async def test_a_bare_line_feed_end_of_data_is_rejected_early(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("mailwarden.smtp.reader.DOOMED_SECONDS", 0.1)
    with pytest.raises(Rejection, match=r"550 5\.5\.2"):
        await message_in(fed(b"a: b\r\n\r\ntext\n.\n"), tmp_path, seconds=30.0)


async def test_a_message_that_is_too_large_is_read_to_its_end_and_refused(tmp_path: Path) -> None:
    lines = fed(*[b"a" * 60_000 + b"\r\n"] * 5, b".\r\n", b"RSET\r\n")
    with pytest.raises(Rejection, match=r"552 5\.3\.4") as caught:
        await message_in(lines, tmp_path, max_size=100_000)
    assert not caught.value.hang_up
    assert await lines.read_command() == b"RSET\r\n"


@pytest.mark.parametrize("more", [0, 1_000_000])
async def test_a_message_that_finds_no_room_is_read_to_its_end_and_put_off(tmp_path: Path, more: int) -> None:
    lines = fed(*[b"a" * 60_000 + b"\r\n"] * 18, b"b" * more + b"\r\n.\r\n", b"RSET\r\n")
    with structlog.testing.capture_logs() as logs, pytest.raises(Rejection, match=r"452 4\.3\.1") as caught:
        await message_in(lines, tmp_path / "away")
    assert not caught.value.hang_up
    assert await lines.read_command() == b"RSET\r\n"
    assert [(line["event"], line["log_level"]) for line in logs] == [("no_room_in_spool", "warning")]


async def test_a_message_as_large_as_is_taken_is_taken(tmp_path: Path) -> None:
    lines = fed(b"a" * 99_998 + b"\r\n.\r\n")
    assert len(await message_in(lines, tmp_path, max_size=100_000)) == 100_000


async def test_a_slow_message_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(Rejection, match=r"421 4\.4\.2") as caught:
        await message_in(fed(b"a: b\r\n"), tmp_path, seconds=0.1)
    assert caught.value.hang_up


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"NOOP\n", r"500 5\.5\.2"),
        (b"NO\rOP\r\n", r"500 5\.5\.2"),
        (b"NOOP\r\r\n", r"500 5\.5\.2"),
        (b"NO\0OP\r\n", r"500 5\.5\.2"),
        (b"A" * 3_000, r"500 5\.5\.6"),
        (b"A" * 3_000 + b"\r\n", r"500 5\.5\.6"),
        (b"NOOP", r"421 4\.4\.2"),
    ],
)
async def test_a_command_is_one_short_line_that_ends_with_cr_lf(sent: bytes, code: str) -> None:
    with pytest.raises(Rejection, match=code) as caught:
        await fed(sent, seconds=0.2).read_command()
    assert caught.value.hang_up


async def test_a_client_that_hangs_up_is_a_lost_connection() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"NOOP\r\nNO")
    reader.feed_eof()
    lines = SmtpReader(reader, 5.0)
    assert await lines.read_command() == b"NOOP\r\n"
    assert lines.pending
    with pytest.raises(ClientGone):
        await lines.read_command()
