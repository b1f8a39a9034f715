"""The product with history in ClickHouse: prepared by a command, written, searched, and complete after an outage."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

from workshop.rig.caller import Caller, caller_context
from workshop.rig.clickhouse import EmbeddedClickhouse
from workshop.rig.engines import Engines
from workshop.rig.product import Overrides, Product, install_product

pytestmark = [pytest.mark.slow, pytest.mark.long]

MESSAGE = b"From: alice@sender.example\r\nTo: bob@acme.example\r\nSubject: Meeting %d\r\n\r\nSee you at ten.\r\n"
SECONDS = 30.0


def command(product: Product, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mailwarden", *words, "--config", str(product.abby.folder)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


async def found(caller: Caller, number: int) -> int:
    """Wait until a search finds so many messages; return how many it found."""
    end, rows = time.monotonic() + SECONDS, -1
    while time.monotonic() < end:
        answer = await caller.call("GET", "/v1/messages?q=meeting")
        if answer.status == 200:
            rows = len(cast("list[object]", answer.record["messages"]))
            if rows >= number:
                break
        await asyncio.sleep(0.2)
    return rows


def test_history_in_clickhouse_is_complete_after_an_outage(engines: Engines, database_url: str, tmp_path: Path) -> None:
    clickhouse = EmbeddedClickhouse(tmp_path / "clickhouse")
    settings: Overrides = {"history": {"store": "clickhouse", "clickhouse": {"urls": [clickhouse.address]}}}
    product = install_product(tmp_path / "product", engines, database_url, guards=[settings], abby=settings)
    clickhouse.start()
    try:
        prepared = command(product, "history", "prepare")
        assert "table mailwarden.history exists" in prepared.stdout, prepared.stderr
        with product:
            product.start()
            asyncio.run(_scan_through_an_outage(product, clickhouse))
            assert "addresses of ClickHouse answer" in command(product, "doctor").stdout
        assert clickhouse.execute("SELECT count(), uniqExact(ggrid) FROM history", "mailwarden") == "4\t4"
    finally:
        clickhouse.stop()


async def _scan_through_an_outage(product: Product, clickhouse: EmbeddedClickhouse) -> None:
    async with Caller(product.abby.port, caller_context(product.ca), product.token) as caller:
        for number in range(2):
            assert (await caller.submit(MESSAGE % number)).status == 200
        assert await found(caller, 2) == 2
        clickhouse.kill()
        for number in range(2, 4):
            assert (await caller.submit(MESSAGE % number)).status == 200
        answer = await caller.call("GET", "/v1/messages?q=meeting")
        assert (answer.status, answer.error) == (503, "storage_unavailable")
        page = (await caller.call("GET", "/metrics")).body.decode()
        for name in ("seconds histogram", "failures_total counter", "stale_reads_total counter", "up gauge"):
            assert f"# TYPE mailwarden_history_store_{name}\n" in page
        clickhouse.start()
        assert await found(caller, 4) == 4
