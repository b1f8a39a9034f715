"""The way from the journal to history, with a store that fails and recovers."""

import asyncio
import errno
import json
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from uuid import UUID, uuid4

import msgspec
import pytest
from msgspec.structs import replace

from mailwarden.errors import StorageUnavailable
from mailwarden.history import writer as module
from mailwarden.history.store import HistoryRow, RejectedRequest, Saved
from mailwarden.history.writer import BATCH
from mailwarden.journal import journal as journal_module
from mailwarden.journal.journal import MAX_GROUP
from mailwarden.journal.losses import Loss, Losses, read_losses
from mailwarden.journal.put_aside import REJECTED
from mailwarden.journal.rejected import claimed_rows
from mailwarden.journal.segments import Segments
from mailwarden.model.record import CampaignIds, FinishedRequest
from mailwarden.model.scope import Scope
from mailwarden.model.similarity import Key, KeyKind, Similarity
from mailwarden.senders.model import Counting
from mailwarden.telemetry.metrics import Metrics
from tests.samples.finished import finished_request
from tests.unit.journal.journals import open_journal, write_all, writing
from tests.waiting import eventually


class FlakyStore:
    """Fails while it has an error or a bad row, and records the batches it was given."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.bad: dict[UUID, str | Exception] = {}  # rejected with a reason, or an exception
        self.attempts = 0
        self.saved: list[FinishedRequest] = []
        self.batches: list[int] = []

    async def save_rows(self, scope: Scope, rows: Sequence[HistoryRow], counting: Counting | None = None) -> Saved:
        requests = [row.request for row in rows]
        self.attempts += 1
        if self.error:
            raise self.error
        rejected = []
        for request in requests:
            reason = self.bad.get(request.ggrid)
            if isinstance(reason, Exception):
                raise reason
            if reason:
                rejected.append(RejectedRequest(request, reason))
        kept = [request for request in requests if request.ggrid not in self.bad]
        counts = (counting(kept),) if counting else ()
        self.batches.append(len(kept))
        self.saved += kept
        return Saved(len(kept), tuple(rejected), counts)


async def test_a_burst_is_written_in_batches(tmp_path: Path) -> None:
    store, requests = FlakyStore(), [finished_request() for _ in range(BATCH * 2 + 5)]
    await write_all(tmp_path, store, requests)
    assert store.saved == requests
    assert max(store.batches) == BATCH


async def test_rows_of_an_outage_are_written_after_a_restart_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE", 3_600.0)
    store, requests = FlakyStore(StorageUnavailable("away")), [finished_request() for _ in range(700)]
    began = time.perf_counter()
    async with writing(tmp_path, store, seconds=0.1) as journal:
        await journal.append(requests)
    assert time.perf_counter() - began < 5, "a stop keeps its deadline"
    store.error = None
    await write_all(tmp_path, store, [])
    assert store.saved == requests


async def test_a_stop_does_not_wait_for_a_store_that_is_down(tmp_path: Path) -> None:
    store, requests = FlakyStore(StorageUnavailable("away")), [finished_request() for _ in range(3)]
    async with writing(tmp_path, store, seconds=60.0, patience=0.2) as journal:
        await journal.append(requests)
        began = time.perf_counter()
    assert time.perf_counter() - began < 10
    assert journal.waiting == 3
    store.error = None
    await write_all(tmp_path, store, [])
    assert store.saved == requests


async def test_a_rejected_row_is_put_aside_and_counted(tmp_path: Path) -> None:
    store, metrics = FlakyStore(), Metrics()
    requests = [finished_request() for _ in range(5)]
    store.bad = {requests[2].ggrid: "DataError: too long"}
    async with writing(tmp_path, store, metrics=metrics) as journal:
        await journal.append(requests)
    assert store.saved == [*requests[:2], *requests[3:]]
    aside = json.loads((tmp_path / REJECTED).read_text())
    assert aside["reason"] == "DataError: too long"
    assert aside["record"]["request"]["ggrid"] == str(requests[2].ggrid)
    assert "mailwarden_history_rejected_total 1.0" in metrics.page().decode()
    assert "mailwarden_history_written_total 4.0" in metrics.page().decode()


async def test_a_rejected_row_waits_for_a_disk_that_takes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LAST_RETRY", 0.05)
    store, requests, real = FlakyStore(), [finished_request() for _ in range(3)], Losses._append
    store.bad = {requests[1].ggrid: "DataError: too long"}
    failures = [OSError(errno.ENOSPC, "No space left on device") for _ in range(2)]

    def append(losses: Losses, line: bytes) -> bool:
        if failures:
            raise failures.pop()
        return real(losses, line)

    monkeypatch.setattr(Losses, "_append", append)
    async with writing(tmp_path, store) as journal:
        await journal.append(requests)
    assert {each.ggrid for each in store.saved} == {requests[0].ggrid, requests[2].ggrid}
    assert len((tmp_path / REJECTED).read_text().splitlines()) == 1
    assert journal._losses.counts == {Loss.REJECTED: 1}


async def test_a_row_that_fails_with_a_bug_does_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY", 0.001)
    store, requests = FlakyStore(), [finished_request() for _ in range(9)]
    store.bad = {requests[4].ggrid: ValueError("a bug")}
    async with writing(tmp_path, store) as journal:
        await journal.append(requests)
    assert store.saved == [*requests[:4], *requests[5:]]
    assert journal._losses.counts == {Loss.REJECTED: 1}


@pytest.mark.parametrize("payload", [b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd" + b"x" * 50, b"no JSON", b""])
async def test_a_record_that_cannot_be_read_is_put_aside_and_holds_up_no_row(tmp_path: Path, payload: bytes) -> None:
    store, good = FlakyStore(), finished_request()
    async with open_journal(tmp_path) as journal:
        journal._segments.append([payload], 1)
        await journal.append([good])
    async with asyncio.timeout(20):
        await write_all(tmp_path, store, [])
    assert store.saved == [good]
    with claimed_rows(tmp_path) as rows:
        assert rows is not None
        (line,) = rows.read(2)
    assert line.aside is not None
    assert payload in (bytes(line.aside.record), msgspec.json.decode(line.aside.record, type=bytes))


async def test_a_record_of_another_version_is_put_aside(tmp_path: Path) -> None:
    store, good = FlakyStore(), finished_request()
    async with open_journal(tmp_path) as journal:
        journal._segments.append([b'{"request":{},"version":0}'], 1)
        await journal.append([good])
    await write_all(tmp_path, store, [])
    assert store.saved == [good]
    assert "UnknownRecordVersion" in (tmp_path / REJECTED).read_text()


@pytest.mark.parametrize("rows", [0, 1])
async def test_a_stop_without_an_outage_is_quick(tmp_path: Path, rows: int) -> None:
    async with writing(tmp_path, FlakyStore(), seconds=30.0) as journal:
        await journal.append([finished_request() for _ in range(rows)])
        began = time.perf_counter()
    assert time.perf_counter() - began < 2


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


async def test_messages_are_stored_with_their_campaign(tmp_path: Path) -> None:
    store, grouping, metrics = FlakyStore(), Grouping(), Metrics()
    async with writing(tmp_path, store, campaigns=grouping, metrics=metrics) as journal:
        await journal.append([comparable(), finished_request()])
    assert [each.campaign for each in store.saved] == [grouping.ids, None]
    assert "mailwarden_history_ungrouped_total 0.0" in metrics.page().decode()


@pytest.mark.parametrize("error", [StorageUnavailable("busy"), ValueError("a bug")])
async def test_a_failure_of_grouping_is_counted_and_loses_no_row(tmp_path: Path, error: Exception) -> None:
    store, metrics = FlakyStore(), Metrics()
    requests = [comparable(), finished_request()]
    async with writing(tmp_path, store, campaigns=Grouping(error), metrics=metrics) as journal:
        await journal.append(requests)
    assert store.saved == requests
    assert "mailwarden_history_ungrouped_total 1.0" in metrics.page().decode()


def refuse_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the disk of the journal be full."""

    def full(_: Segments, __: Sequence[bytes], ___: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Segments, "append", full)


async def test_rows_reach_the_store_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_rows(monkeypatch)
    store, requests, metrics = FlakyStore(), [finished_request() for _ in range(2 * MAX_GROUP)], Metrics()
    async with writing(tmp_path, store, metrics=metrics) as journal:
        assert await journal.append(requests)
        assert store.saved == requests, "a scan is answered when history has its row"
        assert journal._losses.counts == {}
    assert f"mailwarden_history_direct_total {2 * MAX_GROUP}.0" in metrics.page().decode()


async def test_a_scan_waits_once_if_neither_disk_nor_store_takes_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_rows(monkeypatch)
    monkeypatch.setattr(journal_module, "CONFIRM_SECONDS", 1.0)
    store, metrics = FlakyStore(StorageUnavailable("away")), Metrics()
    async with writing(tmp_path, store, metrics=metrics) as journal:
        assert not await journal.append([finished_request()])
        assert journal.oldest_seconds > 0.9
        began = time.monotonic()
        assert not await journal.append([finished_request()])
        assert time.monotonic() - began < 0.9
        assert "mailwarden_journal_unconfirmed_total 2.0" in metrics.page().decode()
        store.error = None
        await eventually(lambda: not journal.waiting, 5.0)
        assert await journal.append([finished_request()]), "the store answers again"
    assert len(store.saved) == 3


async def test_bytes_of_rows_in_memory_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_rows(monkeypatch)
    monkeypatch.setattr(journal_module, "MAX_UNSAVED_BYTES", 12_000)
    store = FlakyStore(StorageUnavailable("away"))
    async with writing(tmp_path, store) as journal:
        await journal.append([finished_request() for _ in range(20)])
        dropped = journal._losses.counts[Loss.DROPPED]
        assert 0 < dropped < 20
        store.error = None
    assert len(store.saved) == 20 - dropped


async def test_rows_in_memory_wait_for_the_store_and_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_rows(monkeypatch)
    monkeypatch.setattr(journal_module, "MAX_UNSAVED", 20)
    store, requests = FlakyStore(StorageUnavailable("away")), [finished_request() for _ in range(27)]
    async with writing(tmp_path, store) as journal:
        await journal.append(requests)
        await eventually(lambda: store.attempts)
        assert journal.waiting == 20
        assert journal._losses.counts == {Loss.DROPPED: 7}
        store.error = None
    assert store.saved == requests[:20]


async def test_a_stop_uses_all_its_time_for_rows_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_rows(monkeypatch)
    store, requests = FlakyStore(StorageUnavailable("away")), [finished_request() for _ in range(3)]

    async def return_later() -> None:
        await asyncio.sleep(0.6)
        store.error = None

    async with writing(tmp_path, store, seconds=30.0, patience=0.1) as journal:
        await journal.append(requests)
        returning = asyncio.create_task(return_later())
    await returning
    assert store.saved == requests
    assert journal._losses.counts == {}


async def test_rows_in_memory_are_saved_at_the_end_or_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, requests = FlakyStore(StorageUnavailable("away")), [finished_request() for _ in range(5)]
    with monkeypatch.context() as full:
        refuse_rows(full)
        async with writing(tmp_path, store, seconds=0.1) as journal:
            await journal.append(requests[:2])
        assert read_losses(tmp_path).dropped == 2
        async with writing(tmp_path, store, seconds=0.1) as journal:
            await journal.append(requests[2:])
            full.undo()
    store.error = None
    await write_all(tmp_path, store, [])
    assert store.saved == requests[2:]
    assert read_losses(tmp_path).dropped == 2
