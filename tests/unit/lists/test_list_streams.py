"""Streams of lists to clients that read slowly, or not at all."""

import asyncio
from typing import cast

import pytest
from aiohttp import web

from mailwarden.lists import api


class Client:
    """Takes lines after a pause."""

    def __init__(self, pause: float) -> None:
        self.lines = b""
        self._pause = pause

    async def write(self, lines: bytes) -> None:
        await asyncio.sleep(self._pause)
        self.lines += lines


async def test_a_client_that_reads_nothing_ends_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "STALL_SECONDS", 0.02)
    with pytest.raises(api.ReaderGone):
        async with asyncio.timeout(30):
            await api.pass_on(cast("web.StreamResponse", Client(3_600)), b"line\n")


async def test_a_client_that_reads_gets_every_line() -> None:
    client = Client(0.01)
    for line in (b"a\n", b"b\n"):
        await api.pass_on(cast("web.StreamResponse", client), line)
    assert client.lines == b"a\nb\n"
