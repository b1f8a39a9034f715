"""A worker process uses the operator's knowledge about domains, and does not start with a damaged table."""

from pathlib import Path

import pytest

from mailwarden.analysis.links.popular import encode_table
from mailwarden.errors import ConfigurationError
from mailwarden.model.envelope import Envelope
from mailwarden.pipeline.collector import Collector
from mailwarden.pipeline.worker_pool import Timeouts, WorkerPool
from tests.samples.scans import collect_one

RAW = b"From: ada@harbour.example\r\nTo: bob@south.example\r\nSubject: Minutes\r\n\r\nHello\r\n"
ENVELOPE = Envelope("ada@harbour.example", ("bob@south.example",))


async def test_a_worker_uses_the_operators_table(tmp_path: Path) -> None:
    (tmp_path / "popular.bin").write_bytes(encode_table({"harbour.example": 2}))
    pool = WorkerPool(1, 1024, Timeouts(), domains=str(tmp_path))
    await pool.start()
    try:
        collected = await collect_one(Collector(pool, ()), RAW, ENVELOPE, 60.0)
    finally:
        await pool.stop()
    assert collected.evidence.has("domains.sender-popular")


async def test_a_worker_does_not_start_with_a_damaged_table(tmp_path: Path) -> None:
    (tmp_path / "popular.bin").write_bytes(b"damaged")
    pool = WorkerPool(1, 1024, Timeouts(), domains=str(tmp_path))
    try:
        with pytest.raises((ConfigurationError, OSError), match=r"popular\.bin"):
            await pool.start()
    finally:
        await pool.stop()
