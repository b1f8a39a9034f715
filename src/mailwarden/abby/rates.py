"""How many calls each API key may make a minute."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

WINDOW_SECONDS = 60.0
MAX_WINDOWS = 10_000


@dataclass(frozen=True, slots=True)
class Quota:
    """What is left to a key after a call; `remaining` is below zero for a call too many."""

    limit: int
    remaining: int
    seconds: int  # until the whole limit is there again

    @property
    def exceeded(self) -> bool:
        return self.remaining < 0

    @property
    def headers(self) -> Mapping[str, str]:
        return {
            "RateLimit-Policy": f'"key";q={self.limit};w={WINDOW_SECONDS:.0f}',
            "RateLimit": f'"key";r={max(self.remaining, 0)};t={self.seconds}',
        }


class RateLimiter:
    """Counts the calls of each key in windows of one minute, from its first call on, in this process."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._windows: dict[str, tuple[float, int]] = {}

    def count(self, key_id: str) -> Quota:
        """Count a call; a call too many is counted and costs nothing further."""
        now = self._clock()
        end, calls = self._windows.get(key_id, (0.0, 0))
        if now >= end:
            self._forget_ended(now)
            end, calls = now + WINDOW_SECONDS, 0
        self._windows[key_id] = (end, calls + 1)
        return Quota(self._limit, self._limit - calls - 1, max(1, math.ceil(end - now)))

    def _forget_ended(self, now: float) -> None:
        if len(self._windows) >= MAX_WINDOWS:
            self._windows = {key_id: window for key_id, window in self._windows.items() if now < window[0]}
