"""Losses of the journal: rows that were dropped, damaged on disk, or rejected by the history store.

The counts are metrics, and stay in the file `losses` for `mailwarden doctor`. Rejected rows are put aside into
`rejected.jsonl`, up to a limit.
"""

import os
import time
from collections import Counter
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from mailwarden.history.journal.format import Record
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

LOSSES, REJECTED = "losses", "rejected.jsonl"
MAX_REJECTED = 64 * 1024 * 1024  # bytes put aside; further rows are only counted
_WIDTH = 20  # digits, so that the file is overwritten in place and needs no free space
_log = get_logger("history.journal")


class Loss(StrEnum):
    DROPPED = "dropped"  # never on disk: the journal was full or the disk failed
    DAMAGED = "damaged"  # unreadable on disk
    REJECTED = "rejected"  # the history store cannot store the row


class LossRecord(Struct, frozen=True):
    """All losses of a journal since its folder exists, and the time of the last."""

    dropped: int = 0
    damaged: int = 0
    rejected: int = 0
    last: datetime | None = None

    @property
    def total(self) -> int:
        return self.dropped + self.damaged + self.rejected


class PutAside(Struct, frozen=True):
    """A rejected row, as a line of `rejected.jsonl`."""

    moment: datetime
    number: int
    reason: str
    record: Raw


class Losses:
    """Counts losses; the methods may be called from several threads."""

    def __init__(self, folder: Path, metrics: Metrics) -> None:
        self._folder = folder
        self._before = read_losses(folder)
        self.counts: Counter[Loss] = Counter()  # of this process
        dropped, damaged, rejected = (partial(self.counts.__getitem__, loss) for loss in Loss)
        metrics.read_counter("history_dropped", "Finished guard requests that the journal could not take.", dropped)
        metrics.read_counter("history_damaged", "Rows of the journal that are unreadable on disk.", damaged)
        metrics.read_counter("history_rejected", "Rows that the history store cannot store, put aside.", rejected)

    def add(self, loss: Loss, rows: int = 1) -> None:
        self.counts[loss] += rows

    def save(self) -> None:
        """Write the counts for `mailwarden doctor`; this blocks."""
        before, now = self._before, self.counts
        fields = (
            before.dropped + now[Loss.DROPPED],
            before.damaged + now[Loss.DAMAGED],
            before.rejected + now[Loss.REJECTED],
            int(time.time()),
        )
        try:
            text = " ".join(f"{field:0{_WIDTH}d}" for field in fields) + "\n"
            write_private(self._folder / LOSSES, text.encode(), append=False)
        except OSError as error:
            _log.warning("journal_losses_not_saved", reason=str(error))

    def reject(self, record: Record, reason: str) -> None:
        """Put a row aside and count it."""
        _log.error("history_row_rejected", number=record.number, reason=reason)
        path = self._folder / REJECTED
        try:
            if not path.exists() or path.stat().st_size + len(record.payload) <= MAX_REJECTED:
                aside = PutAside(datetime.now(UTC), record.number, reason[:1_000], Raw(record.payload))
                write_private(path, msgspec.json.encode(aside) + b"\n", append=True)
        except OSError as error:
            _log.warning("rejected_row_not_put_aside", number=record.number, reason=str(error))
        self.add(Loss.REJECTED)
        self.save()


def read_losses(folder: Path) -> LossRecord:
    """Return the losses of a journal; none if the file is missing or unreadable."""
    try:
        dropped, damaged, rejected, last = map(int, (folder / LOSSES).read_text("ascii").split())
    except (OSError, ValueError):
        return LossRecord()
    return LossRecord(dropped, damaged, rejected, datetime.fromtimestamp(last, UTC))


def write_private(path: Path, data: bytes, *, append: bool) -> None:
    """Write to a file that only its owner can read; sync after an append."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | (os.O_APPEND if append else 0), 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
        if append:
            os.fsync(file)
    finally:
        os.close(file)
