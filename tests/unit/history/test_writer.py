"""The queue between scanning and history, with a store that fails and recovers."""

import asyncio
import time
from collections.abc import Sequence
from datetime import date
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from mailwarden.errors import StorageUnavailable
from mailwarden.history.writer import BATCH, HistoryWriter
from mailwarden.model.record import CampaignIds, FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.similarity import Key, KeyKind, Similarity
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request
from tests.waiting import eventually


class FlakyStore:
    """Fails while it has an error, and records the batches it was given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.attempts = 0
        self.saved: list[FinishedRequest] = []
        self.batches: list[int] = []

    async def save(self, scope: Scope, requests: Sequence[FinishedRequest]) -> int:
        self.attempts += 1
        if self.error:
            raise self.error
        self.batches.append(len(requests))
        self.saved += requests
        return len(requests)


async def test_queued_rows_are_written_at_once() -> None:
    store = FlakyStore()
    writer = HistoryWriter(store, 10, Metrics())
    writer.start()
    request = finished_request()
    writer.save(request)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert store.saved == [request]
    await writer.stop(1)


async def test_a_burst_is_written_in_batches() -> None:
    store = FlakyStore()
    writer = HistoryWriter(store, 10_000, Metrics())
    writer.start()
    requests = [finished_request() for _ in range(BATCH * 2 + 5)]
    for request in requests:
        writer.save(request)
    await writer.stop(5)
    assert store.batches == [BATCH, BATCH, 5]
    assert store.saved == requests


async def test_rows_wait_while_the_store_is_down() -> None:
    store = FlakyStore(StorageUnavailable("away"))
    writer = HistoryWriter(store, 100, Metrics())
    writer.start()
    requests = [finished_request() for _ in range(20)]
    for request in requests:
        writer.save(request)
    await eventually(lambda: store.attempts)
    assert writer.waiting == 20
    store.error = None
    await writer.stop(5)
    assert store.saved == requests
    assert (writer.dropped, writer.waiting) == (0, 0)


async def test_beyond_the_buffer_the_oldest_are_dropped_and_counted() -> None:
    store, metrics = FlakyStore(StorageUnavailable("away")), Metrics()
    writer = HistoryWriter(store, 10, metrics)
    writer.start()
    requests = [finished_request() for _ in range(25)]
    for request in requests:
        writer.save(request)
        await asyncio.sleep(0)
    assert (writer.waiting, writer.dropped) == (10, 15)
    store.error = None
    await writer.stop(5)
    assert store.saved == requests[15:]
    page = metrics.page().decode()
    assert "mailwarden_history_dropped_total 15.0" in page
    assert "mailwarden_history_written_total 10.0" in page


async def test_a_bug_in_the_store_costs_its_batch_and_not_the_writer() -> None:
    store = FlakyStore(ValueError("a bug"))
    writer = HistoryWriter(store, 10, Metrics())
    writer.start()
    writer.save(finished_request())
    await eventually(lambda: writer.dropped == 1)
    store.error = None
    request = finished_request()
    writer.save(request)
    await writer.stop(5)
    assert store.saved == [request]


async def test_a_stop_keeps_its_deadline_and_counts_lost_rows() -> None:
    writer = HistoryWriter(FlakyStore(StorageUnavailable("away")), 10, Metrics())
    writer.start()
    for _ in range(3):
        writer.save(finished_request())
    began = time.perf_counter()
    await writer.stop(0.1)
    assert time.perf_counter() - began < 10  # it would wait until the database is back
    assert (writer.dropped, writer.waiting) == (3, 0)


async def test_a_writer_that_never_started_takes_rows_and_stays_within_its_buffer() -> None:
    writer = HistoryWriter(FlakyStore(), 5, Metrics())
    for _ in range(8):
        writer.save(finished_request())
    assert (writer.waiting, writer.dropped) == (5, 3)
    await writer.stop(0)


@pytest.mark.parametrize("rows", [0, 1])
async def test_a_stop_without_an_outage_is_quick(rows: int) -> None:
    writer = HistoryWriter(FlakyStore(), 5, Metrics())
    writer.start()
    for _ in range(rows):
        writer.save(finished_request())
    began = time.perf_counter()
    await writer.stop(30)
    assert time.perf_counter() - began < 10  # of the thirty that it may take


class Grouping:
    """Gives every message one campaign, or fails."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.ids = CampaignIds(uuid4(), uuid4())

    async def assign(
        self, scope: Scope, messages: Sequence[tuple[UUID, Similarity]], day: date
    ) -> Sequence[CampaignIds | None]:
        if self.error:
            raise self.error
        return [self.ids if each.keys else None for _, each in messages]

    async def delete_unseen(self, scope: Scope, before: date) -> int:
        return 0


def comparable() -> FinishedRequest:
    request = finished_request()
    summary = replace(request.summary, similarity=Similarity((Key(KeyKind.LINK, 1),)))
    return replace(request, summary=summary)


async def test_messages_are_stored_with_their_campaign() -> None:
    store, grouping, metrics = FlakyStore(), Grouping(), Metrics()
    writer = HistoryWriter(store, 10, metrics, campaigns=grouping)
    writer.start()
    for request in (comparable(), finished_request()):
        writer.save(request)
    await writer.stop(5)
    assert [each.campaign for each in store.saved] == [grouping.ids, None]
    assert "mailwarden_history_ungrouped_total 0.0" in metrics.page().decode()


@pytest.mark.parametrize("error", [StorageUnavailable("busy"), ValueError("a bug")])
async def test_a_failure_of_grouping_is_counted_and_loses_no_row(error: Exception) -> None:
    store, metrics = FlakyStore(), Metrics()
    writer = HistoryWriter(store, 10, metrics, campaigns=Grouping(error))
    writer.start()
    requests = [comparable(), finished_request()]
    for request in requests:
        writer.save(request)
    await writer.stop(5)
    assert store.saved == requests
    assert "mailwarden_history_ungrouped_total 1.0" in metrics.page().decode()
