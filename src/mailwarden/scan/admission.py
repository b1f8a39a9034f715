"""Admission control: accepts, delays or rejects guard requests by a count in guard's event loop."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mailwarden.errors import Overloaded


class Reservation:
    """The capacity of one admitted request; it can grow while a body turns out to be larger than its transfer."""

    def __init__(self, admission: "Admission", size: int) -> None:
        self._admission = admission
        self.size = size

    def extend(self, size: int) -> None:
        """Reserve `size` bytes in total; raise Overloaded if there is no capacity."""
        more = size - self.size
        if more > 0:
            self._admission.require_bytes(more)
            self._admission.bytes_in_flight += more
            self.size = size


class Admission:
    """Counts the requests in processing of all scan sources, and enforces the limits on new ones."""

    def __init__(self, *, maximum: int, threshold: int, max_delay: float, max_bytes: int) -> None:
        self._random = random.Random()  # noqa: S311 - jitter, not a secret
        self.in_processing = 0
        self.bytes_in_flight = 0
        self.waiting = 0
        self.rejected = 0
        self.use(maximum=maximum, threshold=threshold, max_delay=max_delay, max_bytes=max_bytes)

    def use(self, *, maximum: int, threshold: int, max_delay: float, max_bytes: int) -> None:
        """Set the limits; requests in processing stay, also beyond a lower limit."""
        if not 1 <= threshold <= maximum:
            raise ValueError(f"the throttle threshold {threshold} must be between 1 and the maximum {maximum}")
        self.maximum = maximum
        self.max_bytes = max_bytes
        self._threshold = threshold
        self._max_delay = max_delay

    @asynccontextmanager
    async def admitted(self, size: int) -> AsyncIterator[Reservation]:
        """Reserve capacity for a message of `size` bytes; raise Overloaded if there is none."""
        if self.in_processing >= self._threshold:
            await self._throttle()
        self._require_capacity(size)
        self.in_processing += 1
        self.bytes_in_flight += size
        reservation = Reservation(self, size)
        try:
            yield reservation
        finally:
            self.in_processing -= 1
            self.bytes_in_flight -= reservation.size

    async def _throttle(self) -> None:
        """Wait outside the count, longer as load grows; waiting requests hold no capacity, or goodput collapses."""
        delay = self.delay()
        if delay is None:
            raise self._rejection()
        self.waiting += 1
        try:
            await asyncio.sleep(delay)
        finally:
            self.waiting -= 1

    @property
    def max_waiting(self) -> int:
        """Return how many requests may wait at once: none if the threshold equals the maximum."""
        return self.maximum if self._threshold < self.maximum else 0

    def delay(self) -> float | None:
        """Return how long a guard request must wait now, in seconds, or None if it is rejected at once."""
        n, threshold, maximum = self.in_processing, self._threshold, self.maximum
        if n < threshold:
            return 0.0
        if n >= maximum or self.waiting >= self.max_waiting:
            return None
        return self._max_delay * (n - threshold + 1) / (maximum - threshold)

    def _require_capacity(self, size: int) -> None:
        if self.in_processing >= self.maximum:
            raise self._rejection()
        self.require_bytes(size)

    def require_bytes(self, size: int) -> None:
        """Raise Overloaded if `size` more bytes do not fit."""
        if self.bytes_in_flight + size > self.max_bytes:
            raise self._rejection()

    def _rejection(self) -> Overloaded:
        self.rejected += 1
        # Callers that were rejected together should not retry together.
        return Overloaded(
            f"{self.in_processing} of {self.maximum} guard requests are in processing; try again shortly.",
            retry_after=self._random.randint(1, 5),
        )
