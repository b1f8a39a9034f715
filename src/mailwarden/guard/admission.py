"""Letting a guard request into processing, slowing it down, or refusing it: a plain count in guard's one loop."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mailwarden.errors import Overloaded


class Admission:
    """Counts what is in processing over all scan sources, and holds new guard requests to the limits."""

    def __init__(self, *, maximum: int, threshold: int, max_delay: float, max_bytes: int) -> None:
        if not 1 <= threshold <= maximum:
            raise ValueError(f"the throttle threshold {threshold} must be between 1 and the maximum {maximum}")
        self.maximum = maximum
        self.in_processing = 0
        self.bytes_in_flight = 0
        self._threshold = threshold
        self._max_delay = max_delay
        self._max_bytes = max_bytes
        self._waiting = 0

    @asynccontextmanager
    async def admitted(self, size: int) -> AsyncIterator[None]:
        """Hold a place for a message of `size` bytes; raise Overloaded where there is none."""
        if self.in_processing >= self._threshold:
            await self._throttle()
        self._require_room(size)
        self.in_processing += 1
        self.bytes_in_flight += size
        try:
            yield
        finally:
            self.in_processing -= 1
            self.bytes_in_flight -= size

    async def _throttle(self) -> None:
        """Wait outside the count, longer the fuller it is; who waits holds no place (else goodput collapses)."""
        delay = self.delay()
        if delay is None:
            raise self._refusal()
        self._waiting += 1
        try:
            await asyncio.sleep(delay)
        finally:
            self._waiting -= 1

    @property
    def max_waiting(self) -> int:
        """Return how many may wait at once; without a delay band nobody does."""
        return self.maximum if self._threshold < self.maximum else 0

    def delay(self) -> float | None:
        """Return how long a guard request must wait now, in seconds, or None where it is refused at once."""
        n, threshold, maximum = self.in_processing, self._threshold, self.maximum
        if n < threshold:
            return 0.0
        if n >= maximum or self._waiting >= self.max_waiting:
            return None
        return self._max_delay * (n - threshold + 1) / (maximum - threshold)

    def _require_room(self, size: int) -> None:
        if self.in_processing >= self.maximum or self.bytes_in_flight + size > self._max_bytes:
            raise self._refusal()

    def _refusal(self) -> Overloaded:
        # Callers who were refused together should not come back together.
        return Overloaded(
            f"{self.in_processing} of {self.maximum} guard requests are in processing; try again shortly.",
            retry_after=random.randint(1, 5),  # noqa: S311 - jitter, not a secret
        )
