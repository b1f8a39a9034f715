"""A journal and its writer for tests."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from mailwarden.history.store import CampaignStore
from mailwarden.history.writer import HistoryWriter, SenderCounter, Target
from mailwarden.journal.journal import Journal
from mailwarden.journal.segments import Limits
from mailwarden.model.record import FinishedRequest
from mailwarden.telemetry.metrics import Metrics

ROOMY = Limits(max_bytes=1 << 30)


@asynccontextmanager
async def open_journal(folder: Path, limits: Limits = ROOMY, metrics: Metrics | None = None) -> AsyncIterator[Journal]:
    """Open a journal that takes rows until the context is left."""
    journal = Journal.open(folder, limits, metrics or Metrics())
    journal.start()
    try:
        yield journal
    finally:
        await journal.stop()


@asynccontextmanager
async def writing(
    folder: Path,
    store: Target,
    senders: SenderCounter | None = None,
    campaigns: CampaignStore | None = None,
    *,
    metrics: Metrics | None = None,
    seconds: float = 5.0,
    patience: float | None = None,
    limits: Limits = ROOMY,
) -> AsyncIterator[Journal]:
    """Open a journal that is written to the store; at the end wait `seconds` at most until it is written."""
    metrics = metrics or Metrics()
    async with open_journal(folder, limits, metrics) as journal:
        writer = HistoryWriter(journal, store, metrics, senders, campaigns)
        writer.start()
        try:
            yield journal
        finally:
            await writer.stop(seconds, seconds if patience is None else patience)


async def write_all(
    folder: Path, store: Target, requests: Sequence[FinishedRequest], campaigns: CampaignStore | None = None
) -> None:
    """Write these requests to the store through a journal."""
    async with writing(folder, store, campaigns=campaigns, seconds=30.0) as journal:
        assert await journal.append(requests)
