"""The figures of one simulated run, and the central queue that no distributed choice can beat."""

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from simulate.guards import ONE_WAY, SimulatedGuard

GOOD_SECONDS = 1.0  # a message answered within ten times the mean work is answered in time
GOOD_SHARE = 0.99
BIN = 0.5
WIDE_BIN = 2.0  # one guard gets few messages in half a second, and chance alone would double them
RETURNING = 10.0  # seconds after its return in which a guard is looked at


@dataclass(frozen=True, slots=True)
class Message:
    """One message: when it arrives, at which abby, and the seconds of work that it needs."""

    arrival: float
    abby: int
    work: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a message: its time, and the code of the error and which limit caused it, empty for a result."""

    arrival: float
    end: float
    error: str
    reason: str = ""

    @property
    def seconds(self) -> float:
        return self.end - self.arrival


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def central_queue(messages: Sequence[Message], slots: int) -> list[Answer]:
    """Return the answers of one queue for all slots of all guards, which knows everything at once."""
    free = [0.0] * slots
    answers = []
    for message in messages:
        begin = max(message.arrival + ONE_WAY, heapq.heappop(free))
        heapq.heappush(free, begin + message.work)
        answers.append(Answer(message.arrival, begin + message.work + ONE_WAY, ""))
    return answers


@dataclass(frozen=True, slots=True)
class Result:
    """The answers of a run; those to messages of the warm-up do not count."""

    answers: Sequence[Answer]
    messages: int
    attempts: int
    capacity: float  # messages a second
    begin: float
    end: float
    guards: Sequence[SimulatedGuard]
    offered: float  # messages a second
    rooms: Sequence[float] = ()  # share of the places that were free in running guards, at some of the errors
    capacities: Sequence[float] = (1.0,)  # of the running guards in the course of the run, as a share of all

    @property
    def counted(self) -> list[Answer]:
        return [each for each in self.answers if self.begin <= each.arrival < self.end]

    @property
    def goodput(self) -> float:
        """Return the messages answered a second, as a share of the capacity."""
        done = sum(not each.error and self.begin <= each.end < self.end for each in self.answers)
        return done / (self.end - self.begin) / self.capacity

    def latency(self, share: float) -> float:
        return percentile([each.seconds for each in self.counted if not each.error], share)

    @property
    def errors(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in self.counted:
            if each.error:
                found[each.error] = found.get(each.error, 0) + 1
        return dict(sorted(found.items()))

    @property
    def reasons(self) -> dict[str, int]:
        """Return the messages that failed by the limit that ended their attempts, the most frequent first."""
        return dict(Counter(each.reason for each in self.counted if each.error).most_common())

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    @property
    def free_room(self) -> float:
        """Return the share of places that were free in running guards while messages failed, on average."""
        return sum(self.rooms) / len(self.rooms) if self.rooms else 0.0

    @property
    def least_capacity(self) -> float:
        """Return the smallest capacity of the running guards, as a share of that of all; a cold guard has half."""
        return min(self.capacities)

    @property
    def attempts_per_message(self) -> float:
        return self.attempts / self.messages

    @property
    def longest(self) -> float:
        return max((each.seconds for each in self.answers), default=0.0)

    @property
    def digest(self) -> str:
        """Return a short digest of every answer: the same for the same seed."""
        lines = "\n".join(f"{each.arrival!r} {each.end!r} {each.error}" for each in self.answers)
        return hashlib.sha256(lines.encode()).hexdigest()[:12]

    @property
    def unanswered(self) -> int:
        """Return the messages that got neither a result nor an error."""
        return self.messages - len(self.answers)

    def recovery(self, since: float) -> float:
        """Return the seconds from `since` until nearly all messages of every later second are answered in time."""
        seconds: dict[int, list[bool]] = {}
        for each in self.answers:
            if each.arrival >= since:
                good = not each.error and each.seconds <= GOOD_SECONDS
                seconds.setdefault(int(each.arrival - since), []).append(good)
        bad = [second for second, good in seconds.items() if sum(good) < GOOD_SHARE * len(good)]
        if bad and max(bad) == max(seconds):
            return math.inf  # the load ended before the recovery
        return float(max(bad) + 1) if bad else 0.0

    @property
    def herd(self) -> float:
        """Return the largest number of attempts in half a second at all guards that returned, by their fair share."""
        together = Counter(place for places in self._attempts_after_returns(BIN) for place in places.elements())
        fair = self._fair(BIN) * sum(len(guard.returned) for guard in self.guards)
        return max(together.values(), default=0) / fair if fair else 0.0

    @property
    def herd_at_one(self) -> float:
        """Return the attempts in two seconds at one guard that returned, by its fair share: the 99th percentile."""
        counts = [
            places[place] / self._fair(WIDE_BIN)
            for places in self._attempts_after_returns(WIDE_BIN)
            for place in range(int(RETURNING / WIDE_BIN))
        ]
        return percentile(counts, 0.99)

    def _fair(self, seconds: float) -> float:
        return self.offered / len(self.guards) * seconds

    def _attempts_after_returns(self, seconds: float) -> Iterator[Counter[int]]:
        """Yield, for each return of a guard, its attempts in each stretch of `seconds` after it."""
        for guard in self.guards:
            for moment in guard.returned:
                after = (attempt - moment for attempt in guard.attempts)
                yield Counter(int(each / seconds) for each in after if 0 <= each < RETURNING)
