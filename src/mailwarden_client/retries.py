"""Decides which failed calls are repeated, and when."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from mailwarden_client.errors import ApiError, Unreachable
from mailwarden_client.requests import Repeat

# The errors that the API marks as worth a retry.
RETRIED = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class Retries:
    """At most `attempts` tries of one call, the last begun at most `seconds` after the first.

    Only 429, 502, 503 and 504 are repeated, after `Retry-After`, and calls whose connection failed before they were
    sent. A call without a complete response is repeated too if a second call has the same effect: reading, scanning
    with an `idempotency_key`, adding and deleting entries. If the response of a successful deletion was lost, the retry
    finds nothing left and counts 0. Releases and other calls that must not run twice are repeated only if the service
    refused them: after 429, after 503 with `Retry-After`, and if they were not sent.
    """

    attempts: int = 8
    seconds: float = 180.0
    first_wait: float = 0.5
    longest_wait: float = 30.0


NO_RETRIES = Retries(attempts=1)


class RetrySchedule:
    """The tries of one call: returns after each failure the delay before the next, or None after the last."""

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._chance = chance
        self._end = clock() + retries.seconds
        self._failures = 0

    def wait_after(self, failure: ApiError, repeat: Repeat = Repeat.ALWAYS) -> float | None:
        """Return the seconds to wait before the next try, or None if there is none."""
        self._failures += 1
        if not may_retry(failure, repeat) or self._failures >= self._retries.attempts:
            return None
        longest = min(self._retries.first_wait * 2.0 ** (self._failures - 1), self._retries.longest_wait)
        # Half of the delay is random, so that callers that failed together do not retry together.
        wait = longest * (1 + self._chance()) / 2
        if failure.retry_after is not None:
            wait = max(wait, failure.retry_after)
        return wait if self._clock() + wait <= self._end else None


def may_retry(failure: ApiError, repeat: Repeat = Repeat.ALWAYS) -> bool:
    if isinstance(failure, Unreachable):
        return failure.code != "certificate" and (repeat is Repeat.ALWAYS or not failure.sent)
    if repeat is Repeat.IF_REFUSED:  # a proxy answers 502 and 504 also for calls that run
        return failure.status == 429 or (failure.status == 503 and failure.retry_after is not None)
    return failure.status in RETRIED
