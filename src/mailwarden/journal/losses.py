"""Losses of the journal: rows that were dropped, damaged on disk, or rejected by the history store.

The counts are metrics, and stay in the file `losses` for `mailwarden doctor`. Rejected rows are put aside into
`rejected.jsonl`, up to a limit; those beyond it are lost, and count as dropped.
"""

import os
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from mailwarden.journal.format import Record
from mailwarden.journal.put_aside import MAX_REJECTED, REJECTED, PutAside, append_lines, locked
from mailwarden.journal.records import as_json
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

LOSSES = "losses"
PATIENCE = 60.0  # seconds in which a rejected row holds back the others because the disk does not take it
_WIDTH = 20  # digits, so that the file is overwritten in place and needs no free space
_log = get_logger("history.journal")


class Loss(StrEnum):
    DROPPED = "dropped"  # on no disk: the journal was full, the disk failed, or no more rows are put aside
    DAMAGED = "damaged"  # unreadable on disk
    REJECTED = "rejected"  # the history store cannot store the row


class LossRecord(Struct, frozen=True):
    """All losses of a journal since its folder exists, and the seconds since 1970 of the last of each kind."""

    dropped: int = 0
    damaged: int = 0
    rejected: int = 0
    times: Mapping[Loss, int] = {}

    @property
    def last(self) -> datetime | None:
        return datetime.fromtimestamp(max(self.times.values()), UTC) if self.times else None

    @property
    def total(self) -> int:
        return self.dropped + self.damaged + self.rejected


class NotPutAside(Exception):
    """The disk does not take a rejected row: it stays in the journal, and is tried again."""


class Losses:
    """Counts losses; the methods may be called from several threads."""

    def __init__(self, folder: Path, metrics: Metrics) -> None:
        self._folder = folder
        self._before = read_losses(folder)
        self.counts: Counter[Loss] = Counter()  # of this process
        self._times = dict(self._before.times)
        self._failing_since: float | None = None
        dropped, damaged, rejected = (partial(self.counts.__getitem__, loss) for loss in Loss)
        metrics.read_counter("history_dropped", "Finished guard requests that the journal could not take.", dropped)
        metrics.read_counter("history_damaged", "Rows of the journal that are unreadable on disk.", damaged)
        metrics.read_counter("history_rejected", "Rows that the history store cannot store, put aside.", rejected)

        # A counter starts at 0: losses at a stop, and right after a start, would raise no alert.
        metrics.read_gauge(
            "history_last_loss_timestamp_seconds",
            "Time of the last loss of a history row, also of an earlier run.",
            lambda: [((loss.value,), float(moment)) for loss, moment in list(self._times.items())],
            "kind",
        )

    def add(self, loss: Loss, rows: int = 1) -> None:
        self.counts[loss] += rows
        self._times[loss] = int(time.time())

    def save(self) -> None:
        """Write the counts for `mailwarden doctor`; this blocks."""
        before, now = self._before, self.counts
        fields = (
            before.dropped + now[Loss.DROPPED],
            before.damaged + now[Loss.DAMAGED],
            before.rejected + now[Loss.REJECTED],
            *(self._times.get(loss, 0) for loss in Loss),
        )
        try:
            text = " ".join(f"{field:0{_WIDTH}d}" for field in fields) + "\n"
            _overwrite(self._folder / LOSSES, text.encode())
        except OSError as error:
            _log.warning("journal_losses_not_saved", reason=str(error))

    def reject(self, record: Record, reason: str) -> None:
        """Put a row aside and count it; raise NotPutAside if the disk does not take it, for a minute at most."""
        aside = PutAside(datetime.now(UTC), record.number, reason[:1_000], Raw(as_json(record.payload)))
        lost = ""
        try:
            if not self._append(msgspec.json.encode(aside) + b"\n"):
                lost = f"{REJECTED} has {MAX_REJECTED // 1024**2} MiB, the maximum"
        except OSError as error:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since < PATIENCE:
                raise NotPutAside(f"{self._folder / REJECTED} cannot be written ({error}).") from error
            lost = str(error)
        else:
            self._failing_since = None
        _log.error("history_row_rejected", number=record.number, reason=reason)
        if lost:
            _log.error("rejected_row_not_put_aside", number=record.number, reason=lost)
        self.add(Loss.DROPPED if lost else Loss.REJECTED)
        self.save()

    def _append(self, line: bytes) -> bool:
        """Append to the rejected rows; return False if there is no room."""
        path = self._folder / REJECTED
        with locked(self._folder):
            if path.exists() and path.stat().st_size + len(line) > MAX_REJECTED:
                return False
            append_lines(path, line)
        return True


def read_losses(folder: Path) -> LossRecord:
    """Return the losses of a journal; none if the file is missing or unreadable."""
    try:
        dropped, damaged, rejected, *times = map(int, (folder / LOSSES).read_text("ascii").split())
        found = {loss: moment for loss, moment in zip(Loss, times, strict=True) if moment}
    except (OSError, ValueError):
        return LossRecord()
    return LossRecord(dropped, damaged, rejected, found)


def _overwrite(path: Path, data: bytes) -> None:
    """Write to a file that only its owner can read."""
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)
