"""Chooses the guards for a message, and limits how many a rejected message may ask.

The less loaded of two random guards gets the message. Each abby knows the load of others only from a status of up to a
second ago: if all abbys took the least loaded of all guards, they would all take the same one until the next status.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence

from mailwarden.hop.guards import Guard
from mailwarden.telemetry.logs import get_logger

CHOICES = 2
DRAWS = 12  # random guards to look at, until all are looked at
RETRIES_PER_MESSAGE = 0.25  # that abby may add to the load of guards that reject
RETRY_RESERVE = 50.0
MAX_REJECTIONS = 8  # of one message
LONGEST_EJECTED_SHARE = 0.5

log = get_logger("guard_choice")


def loop_time() -> float:
    """Return the time of the running event loop."""
    return asyncio.get_running_loop().time()


class LeastLoadedOfTwo:
    """Draws guards at random, skips ejected ones, and gives returning ones a small share; learns from the attempts."""

    def __init__(
        self,
        source: random.Random | None = None,
        clock: Callable[[], float] = loop_time,
        *,
        choices: int = CHOICES,
    ) -> None:
        self._random = source or random.Random()  # noqa: S311 - spreads load, not a secret
        self._clock = clock
        self._choices = choices

    def order(self, guards: Sequence[Guard]) -> Iterator[Guard]:
        """Yield the guards in the order in which to ask them, each once."""
        asked: list[Guard] = []
        while len(asked) < len(guards):
            guard = self._draw(guards, asked) or self._best(guards, asked)
            asked.append(guard)
            yield guard

    def note_success(self, guard: Guard) -> None:
        guard.health.succeed()

    def note_failure(self, guards: Sequence[Guard], guard: Guard, *, accepted: bool) -> None:
        """Eject a guard that fails, but never more than half of all: the others could not take their messages."""
        now = self._clock()
        if guard.health.is_ejected(now):
            return  # messages that failed together are one failure
        if not guard.health.fail(accepted=accepted):
            return
        ejected = sum(candidate.health.is_ejected(now) for candidate in guards if candidate is not guard)
        if ejected + 1 > LONGEST_EJECTED_SHARE * len(guards):
            return
        seconds = guard.health.eject(now, self._random.uniform(0.75, 1.25))
        log.warning("guard_ejected", guard=guard.name, seconds=round(seconds, 1))

    def _draw(self, guards: Sequence[Guard], asked: Sequence[Guard]) -> Guard | None:
        """Return the least loaded of a few random guards, or None if the draws found too few that can be used.

        A message that another guard rejected may use a guard that returns at its full share: such a guard has room, and
        while many return, the others cannot take all messages.
        """
        now, chance = self._clock(), self._random.random
        draw_count = min(self._choices, len(guards) - len(asked))
        drawn: list[Guard] = []
        passed: list[Guard] = []  # a guard that returns draws once for each message
        for _ in range(DRAWS):
            guard = guards[int(chance() * len(guards))]
            if guard in (*drawn, *passed, *asked) or not guard.usable or guard.health.is_ejected(now):
                continue
            share = 1.0 if asked else guard.health.share(now)
            if share < 1.0 and chance() >= share:
                passed.append(guard)
                continue
            drawn.append(guard)
            if len(drawn) == draw_count:
                return min(drawn, key=lambda candidate: candidate.load)
        return min(drawn, key=lambda candidate: candidate.load) if drawn and passed else None

    def _best(self, guards: Sequence[Guard], asked: Sequence[Guard]) -> Guard:
        """Return the best of all guards that were not asked: usable, not ejected, least loaded."""
        now, chance = self._clock(), self._random.random
        left = [guard for guard in guards if guard not in asked]
        return min(
            left,
            key=lambda candidate: (not candidate.usable, candidate.health.is_ejected(now), candidate.load, chance()),
        )


class RetryBudget:
    """Limits the attempts after a rejection: under overload they would only add load to guards that are full.

    Each message adds a part of an attempt. Attempts after a lost connection are not limited here: ejection ends them.
    """

    def __init__(self, per_message: float = RETRIES_PER_MESSAGE, reserve: float = RETRY_RESERVE) -> None:
        self._per_message = per_message
        self._reserve = reserve
        self._left = reserve

    def add_message(self) -> None:
        self._left = min(self._reserve, self._left + self._per_message)

    def take(self, rejections: int) -> bool:
        """Take one attempt for a message that was rejected so often; return whether it may be made."""
        if rejections >= MAX_REJECTIONS or self._left < 1.0:
            return False
        self._left -= 1.0
        return True
