"""What the milter protocol does to folded header lines is undone, and nothing else is touched."""

import pytest

from mailwarden.guard.sources.rspamd_api import repair_folds
from mailwarden.serving.spool import Spooled, SpoolWriter


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        (b"A: a\n b\n\tc\r\nB: b\r\n\r\nx\n y\r\n", b"A: a\r\n b\r\n\tc\r\nB: b\r\n\r\nx\n y\r\n"),
        (b"A: a\r\n b\r\n\r\nx\n y", b"A: a\r\n b\r\n\r\nx\n y"),
        (b"A: a\nB: b\r\n\r\nx", b"A: a\nB: b\r\n\r\nx"),
        (b"A: a\n b\n\nx\n", b"A: a\n b\n\nx\n"),
        (b"\r\n\r\n", b"\r\n\r\n"),
        (b"", b""),
    ],
)
async def test_only_folds_of_the_header_block_are_mended(tmp_path, given, mended) -> None:
    assert (await repair_folds(Spooled.of(given), tmp_path)).data() == mended


async def test_a_spooled_message_is_mended_too(tmp_path) -> None:
    writer = SpoolWriter(tmp_path)
    await writer.write(b"A: a\n b\r\n\r\n")
    await writer.write(b"x\n y\r\n" * 400_000)
    mended = await repair_folds(await writer.finish(), tmp_path)
    assert not mended.in_memory
    assert mended.data() == b"A: a\r\n b\r\n\r\n" + b"x\n y\r\n" * 400_000
    mended.close()
