"""The header fields of a delivered message: signed, and no forged one beside them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from mailwarden.crypto.keyring import KeyRing
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.quarantine.result_headers import ResultSeal, clean
from mailwarden.serving.spool import Spooled, SpoolWriter
from tests.samples.finished import finished_request

NOW = datetime(2026, 11, 15, 9, 0, tzinfo=UTC)
REQUEST = finished_request()
SEAL = ResultSeal(KeyRing.of(b"k" * 32))
MESSAGE = b"From: a@pass.example\r\nSubject: x\r\n\r\nX-Mailwarden-Verdict: said in the text\r\n.\r\n"


async def cleaned(raw: bytes) -> bytes:
    return b"".join([chunk async for chunk in clean(Spooled.of(raw)).stream()])


async def sealed(raw: bytes, seal: ResultSeal = SEAL) -> bytes:
    message = clean(Spooled.of(raw))
    return seal.fields(REQUEST, await message.digest(), NOW) + await cleaned(raw)


@pytest.mark.parametrize(
    "forged",
    [
        b"X-Mailwarden-Verdict: clean\r\n",
        b"x-mailwarden-VERDICT : clean\r\n",
        b"X-Mailwarden-Tags: a.b\r\n\tc.d\r\n e.f\r\n",
        b"X-Mailwarden-Anything\r\n",
        b"X-Mailwarden-Signature: v=1; t=0; s=\r\nX-Mailwarden-Ggrid: 0\r\n",
    ],
)
async def test_forged_fields_are_taken_out_and_nothing_else(forged: bytes) -> None:
    for place in (0, MESSAGE.index(b"Subject"), MESSAGE.index(b"\r\n\r\n") + 2):
        assert await cleaned(MESSAGE[:place] + forged + MESSAGE[place:]) == MESSAGE


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\r\nX-Mailwarden-Verdict: a text without a header block\r\n",
        b"no header at all",
        b"Subject: x\r\n X-Mailwarden-Verdict: a folded line\r\n\r\n",
        b"Subject: X-Mailwarden-Verdict: x\r\nXX-Mailwarden-Tags: y\r\n\r\n",
        b"Subject: x\r\n",
        MESSAGE,
    ],
)
async def test_a_message_without_forged_fields_is_untouched(raw: bytes) -> None:
    assert await cleaned(raw) == raw


async def test_a_header_block_that_ends_the_message_is_cleaned_too() -> None:
    assert await cleaned(b"Subject: x\r\nX-Mailwarden-Verdict: clean\r\n") == b"Subject: x\r\n"
    assert await cleaned(b"Subject: x\r\nX-Mailwarden-Verdict: clean") == b"Subject: x\r\n"


async def test_a_message_in_a_spool_file_is_cleaned_the_same(tmp_path: Path) -> None:
    raw = b"Subject: x\r\n" + b"X-Fill: y\r\n" * 40_000 + b"X-Mailwarden-Verdict: clean\r\n\r\n" + b"z" * 2_000_000
    writer = SpoolWriter(tmp_path)
    await writer.write(raw)
    spooled = await writer.finish()
    try:
        message = clean(spooled)
        found = b"".join([chunk async for chunk in message.stream()])
        assert found == raw.replace(b"X-Mailwarden-Verdict: clean\r\n", b"")
        assert message.size == len(found)
    finally:
        spooled.close()


async def test_signed_fields_are_read_below_foreign_fields() -> None:
    delivered = b"Received: from a by b\r\nReturn-Path: <>\r\n" + await sealed(MESSAGE)
    result = SEAL.read(delivered)
    expected = REQUEST
    assert result is not None
    assert (result.ggrid, result.tags) == (expected.ggrid, expected.tags)
    assert result.verdict is expected.judgement.verdict
    assert result.signed == int(NOW.timestamp())
    assert all(len(line) < 998 for line in delivered.split(b"\r\n"))


async def test_many_tags_are_folded_and_read_back() -> None:
    tags = tuple(f"content.tag-{number}" for number in range(60))
    request = REQUEST
    request = replace(request, judgement=replace(request.judgement, tags=tags))
    fields = SEAL.fields(request, await clean(Spooled.of(MESSAGE)).digest(), NOW)
    result = SEAL.read(fields + MESSAGE)
    assert result is not None
    assert result.tags == request.tags
    assert max(map(len, fields.split(b"\r\n"))) <= 120


async def test_every_change_breaks_the_signature() -> None:
    delivered = await sealed(MESSAGE)
    verdict = REQUEST.judgement.verdict
    changes = [
        (b"Subject: x", b"Subject: y"),
        (b"said in the text", b"changed text"),
        (f"Verdict: {verdict}".encode(), b"Verdict: " + next(v for v in Verdict if v is not verdict).encode()),
        (b"Decision: ", b"Decision: " + next(iter(Decision)).encode() + b"x"),
        (b"t=", b"t=1"),
        (b"v=1", b"v=2"),
        (b"X-Mailwarden-Ggrid: ", b"X-Mailwarden-Other: "),
    ]
    for old, new in changes:
        assert old in delivered
        assert SEAL.read(delivered.replace(old, new, 1)) is None
    assert ResultSeal(KeyRing.of(b"o" * 32)).read(delivered) is None
    assert SEAL.read(MESSAGE) is None
    assert SEAL.read(b"") is None
