"""Decides which failed calls are repeated, and when."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from mailwarden_client.errors import ApiError, Unreachable

# The errors that the API marks as worth a retry.
RETRIED = frozenset({429, 502, 503, 504})


@dataclass(frozen=True)
class Retries:
    """At most `attempts` tries of one call, the last begun at most `seconds` after the first.

    Only 429, 502, 503 and 504 are repeated, after `Retry-After`. A call without a complete response is repeated too if
    a second call has the same effect: reading, scanning, adding and deleting entries. If the response of a successful
    deletion was lost, the retry finds nothing left and counts 0.
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

    def wait_after(self, failure: ApiError, *, repeatable: bool = True) -> float | None:
        """Return the seconds to wait before the next try, or None if there is none."""
        self._failures += 1
        if not may_retry(failure, repeatable=repeatable) or self._failures >= self._retries.attempts:
            return None
        longest = min(self._retries.first_wait * 2.0 ** (self._failures - 1), self._retries.longest_wait)
        # Half of the delay is random, so that callers that failed together do not retry together.
        wait = longest * (1 + self._chance()) / 2
        if failure.retry_after is not None:
            wait = max(wait, failure.retry_after)
        return wait if self._clock() + wait <= self._end else None


def may_retry(failure: ApiError, *, repeatable: bool = True) -> bool:
    if isinstance(failure, Unreachable):
        return repeatable and failure.code != "certificate"
    return failure.status in RETRIED
