"""Previews are made in processes that are killed at their deadline."""

import time

from mailwarden.message.preview import preview_message
from mailwarden.pipeline.previews import Previews
from mailwarden.serving.spool import Spooled

RAW = b'Content-Type: text/html\r\n\r\n<p>Hello <a href="http://x.example/">there</a>\r\n'
# What closes here is not what was opened: the page nests deeper than it looks, and the sanitiser takes minutes.
BOMB = b"Content-Type: text/html\r\n\r\n" + b"<div></x>" * 110_000


async def test_a_preview_has_the_text_of_the_message():
    assert await Previews().of(Spooled.of(RAW)) == preview_message(RAW)


async def test_a_slow_preview_is_ended_and_reports_it():
    started = time.monotonic()
    preview = await Previews(seconds=2.0).of(Spooled.of(BOMB))
    assert "cannot be shown" in preview.document
    assert preview.sha256 == ""
    assert time.monotonic() - started < 30


async def test_an_empty_message_has_a_preview():
    assert "no text to show" in (await Previews().of(Spooled.of(b""))).document
