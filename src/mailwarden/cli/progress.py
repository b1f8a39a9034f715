"""The progress bar of a command that takes long."""

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

BAR = 30
REDRAW_SECONDS = 0.1
LINE_SECONDS = 10.0


class Progress:
    """Counts up to a total; leaving the context ends the line."""

    def __init__(
        self, label: str, total: int, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._label = label
        self._total = total
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._terminal = self._stream.isatty()
        self._start = clock()
        self._shown = self._start if not self._terminal else float("-inf")
        self._done = 0

    def advance(self, number: int) -> None:
        self._done += number
        now = self._clock()
        if now - self._shown >= (REDRAW_SECONDS if self._terminal else LINE_SECONDS):
            self._shown = now
            self._show(now)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._terminal:
            self._show(self._clock())
            self._stream.write("\n")
            self._stream.flush()

    def _show(self, now: float) -> None:
        line = self.line(now)
        self._stream.write(f"\r{line}\x1b[K" if self._terminal else f"{line}\n")
        self._stream.flush()

    def line(self, now: float) -> str:
        """Return the state as one line: bar, percentage, numbers, rate, and remaining time."""
        share = min(1.0, self._done / self._total) if self._total else 1.0
        pace = self._done / max(now - self._start, 0.001)
        words = f"{self._label}  {share:4.0%}  {self._done:,} of {self._total:,}  {pace:,.0f}/s"
        if pace > 0 and self._done < self._total:
            words += f"  {_duration((self._total - self._done) / pace)} left"
        full = round(share * BAR)
        return f"[{'#' * full}{'.' * (BAR - full)}] {words}" if self._terminal else words


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
