"""The health of one guard in the eyes of abby: ejected after failures, and used again step by step.

A status is up to a second old, and a guard can answer it and still fail messages. So the attempts themselves count.
"""

FAILURES_UNTIL_EJECTION = 3  # in a row, of a guard that had accepted the message
FIRST_EJECTION, LONGEST_EJECTION = 1.0, 30.0  # seconds; each ejection in a row is twice as long
SLOW_START_SECONDS = 10.0
FIRST_SHARE = 0.1  # of its messages, for a guard that has just returned


class Health:
    """Counts failures in a row; times are seconds of the event loop's clock."""

    __slots__ = ("_back_since", "_ejected_until", "_ejections", "_failures")

    def __init__(self) -> None:
        self._failures = 0
        self._ejections = 0
        self._ejected_until = float("-inf")
        self._back_since = float("-inf")

    def is_ejected(self, now: float) -> bool:
        return now < self._ejected_until

    def share(self, now: float) -> float:
        """Return the share of its messages that the guard gets: less than 1 after its return."""
        return min(1.0, max(FIRST_SHARE, (now - self._back_since) / SLOW_START_SECONDS))

    def succeed(self) -> None:
        self._failures = self._ejections = 0

    def fail(self, *, accepted: bool) -> bool:
        """Count a failure; return whether the guard should be ejected. An unreachable guard is ejected at once."""
        self._failures += 1
        return not accepted or self._failures >= FAILURES_UNTIL_EJECTION

    def eject(self, now: float, jitter: float) -> float:
        """Eject the guard and return for how many seconds; `jitter` lets several abbys return at different times."""
        seconds = min(LONGEST_EJECTION, FIRST_EJECTION * 2.0 ** min(self._ejections, 10)) * jitter
        self._ejections += 1
        self._failures = 0
        self._ejected_until = now + seconds
        self.return_at(self._ejected_until)
        return seconds

    def return_at(self, moment: float) -> None:
        """Begin a slow start at `moment`, or at the end of an ejection if that is later."""
        self._back_since = max(moment, self._ejected_until)
