"""Rejected rows: none is lost by a full disk, a torn line, or a resend at the same time, without being counted."""

import errno
import fcntl
import os
import threading
from pathlib import Path

import msgspec
import pytest

from mailwarden.errors import CommandError
from mailwarden.journal import losses as module
from mailwarden.journal.format import Record
from mailwarden.journal.losses import Losses, NotPutAside, read_losses
from mailwarden.journal.put_aside import LOCK, REJECTED
from mailwarden.journal.rejected import CLAIMED, claimed_rows
from mailwarden.telemetry.metrics import Metrics


def record(number: int) -> Record:
    return Record(number, 1, b'{"row":%d}' % number)


def numbers(folder: Path) -> list[int | None]:
    """Return the numbers of the rows that a resend would read, None for an unreadable line."""
    with claimed_rows(folder) as rows:
        if rows is None:
            return []
        lines = rows.read(100)
        rows.finish(lines)
    return [None if line.aside is None else line.aside.number for line in lines]


def test_a_row_beyond_the_limit_counts_as_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = Losses(tmp_path, Metrics())
    losses.reject(record(1), "bad")
    monkeypatch.setattr(module, "MAX_REJECTED", 50)
    losses.reject(record(2), "bad")
    found = read_losses(tmp_path)
    assert (found.rejected, found.dropped) == (1, 1)
    assert numbers(tmp_path) == [1]


def test_a_full_disk_keeps_the_row_in_the_journal_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses, real = Losses(tmp_path, Metrics()), os.write

    def half(file: int, data: bytes) -> int:
        if len(data) < 20 or not data.startswith(b"{"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[:10])

    losses.reject(record(1), "bad")
    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(NotPutAside, match="No space left"):
            losses.reject(record(2), "bad")
    assert read_losses(tmp_path).total == 1
    losses.reject(record(2), "bad")
    assert numbers(tmp_path) == [1, 2], "the line of the failed write is gone"
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(os, "fsync", lambda _: half(0, b""))
    losses.reject(record(3), "bad")
    assert read_losses(tmp_path).dropped == 1


def test_a_torn_line_costs_itself(tmp_path: Path) -> None:
    losses = Losses(tmp_path, Metrics())
    losses.reject(record(1), "bad")
    with (tmp_path / REJECTED).open("ab") as file:
        file.write(b'{"moment":')  # a crash within a write
    losses.reject(record(3), "bad")
    with (tmp_path / REJECTED).open("ab") as file:
        file.write(b"\n\n")
    assert numbers(tmp_path) == [1, None, 3]


def test_two_resends_do_not_take_the_rows_of_each_other(tmp_path: Path) -> None:
    losses = Losses(tmp_path, Metrics())
    losses.reject(record(1), "bad")
    with claimed_rows(tmp_path) as rows:
        assert rows is not None
        (tmp_path / CLAIMED).rename(tmp_path / "elsewhere")  # the moment before the first one has renamed it
        losses.reject(record(2), "bad")
        with pytest.raises(CommandError, match="Another"), claimed_rows(tmp_path):
            pass
        (tmp_path / "elsewhere").rename(tmp_path / CLAIMED)
        rows.finish(())
    assert numbers(tmp_path) == [2]


def test_guard_does_not_append_while_a_resend_claims_the_file(tmp_path: Path) -> None:
    losses = Losses(tmp_path, Metrics())
    losses.reject(record(1), "bad")
    with (tmp_path / LOCK).open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        guard = threading.Thread(target=losses.reject, args=(record(2), "bad"))
        guard.start()
        (tmp_path / REJECTED).rename(tmp_path / CLAIMED)
        guard.join(0.2)
        assert guard.is_alive()
        assert msgspec.json.decode((tmp_path / CLAIMED).read_bytes())["number"] == 1
    guard.join(10)
    assert msgspec.json.decode((tmp_path / REJECTED).read_bytes())["number"] == 2


def test_the_time_of_a_loss_is_shown_after_a_restart(tmp_path: Path) -> None:
    losses = Losses(tmp_path, Metrics())
    losses.reject(record(1), "bad")
    later = Metrics()
    assert Losses(tmp_path, later).counts == {}
    page = later.page().decode()
    assert 'mailwarden_history_last_loss_timestamp_seconds{kind="rejected"} 1' in page
    assert 'kind="dropped"' not in page
