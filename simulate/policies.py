"""The ways to choose a guard that are compared: abby's own, and the usual ones of load balancers."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mailwarden.abby.guard_choice import Chooser, LeastLoadedOfTwo, RetryBudget
from mailwarden.abby.guards import Guard
from simulate.guards import SimulatedGuard

UNLIMITED = 1 << 60
Key = Callable[[Guard], float]


class ObservedBudget(RetryBudget):
    """The real retry budget, which remembers why it last ended the attempts of a message."""

    refused = ""

    def take(self, rejections: int) -> bool:
        allowed = super().take(rejections)
        if not allowed:
            most = rejections >= self._max_rejections
            self.refused = f"rejected by {rejections} guards" if most else "retry budget empty"
        return allowed

    def pop_reason(self) -> str:
        reason, self.refused = self.refused, ""
        return reason


class BestOfAll:
    """Takes the guard with the smallest key among those whose last status says that they can be used."""

    def __init__(self, key: Key, source: random.Random) -> None:
        self._key = key
        self._random = source

    def order(self, guards: Sequence[Guard]) -> Iterator[Guard]:
        left = [guard for guard in guards if guard.usable]
        unusable = [guard for guard in guards if not guard.usable] if len(left) < len(guards) else []
        for group in (left, unusable):
            while group:
                yield group.pop(self._place(group))

    def _place(self, guards: Sequence[Guard]) -> int:
        """Return the place of the best guard; of several that are equal each has the same chance."""
        keys = [self._key(guard) for guard in guards]
        least = min(keys)
        places = [place for place, key in enumerate(keys) if key == least]
        return places[int(self._random.random() * len(places))]

    def note_success(self, guard: Guard) -> None:
        """Learn nothing."""

    def note_failure(self, guards: Sequence[Guard], guard: Guard, *, accepted: bool) -> None:
        """Learn nothing."""


class RoundRobin(BestOfAll):
    """Takes the guards in turn; each abby begins at another one."""

    def __init__(self, source: random.Random) -> None:
        super().__init__(lambda _: 0.0, source)
        self._next = source.randrange(1 << 20)

    def order(self, guards: Sequence[Guard]) -> Iterator[Guard]:
        count, start = len(guards), self._next
        self._next += 1
        unusable = []
        for place in range(count):
            guard = guards[(start + place) % count]
            if guard.usable:
                self._next = start + place + 1
                yield guard
            else:
                unusable.append(guard)
        yield from unusable


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to choose, and how many attempts a rejected message has."""

    name: str
    chooser: Callable[[random.Random, Mapping[str, SimulatedGuard]], Chooser]
    budget: Callable[[], ObservedBudget] = ObservedBudget


def _load_by_status(guard: Guard) -> float:
    """Return the load as abby computed it before decision 99: the last status, and own messages since then."""
    if guard.status is None:
        return float(guard.in_flight)
    others = max(0, guard.status.in_processing - guard.in_flight_when_asked)
    return (others + guard.in_flight) / max(1, guard.status.max_in_processing)


def _shortest_queue(source: random.Random, guards: Mapping[str, SimulatedGuard]) -> Chooser:
    return BestOfAll(lambda guard: guards[guard.address].queue / guards[guard.address].size.slots, source)


ABBY = Policy("abby", lambda source, _: LeastLoadedOfTwo(source))
POLICIES = (
    ABBY,
    Policy("round robin", lambda source, _: RoundRobin(source)),
    Policy("least connections", lambda source, _: BestOfAll(lambda guard: guard.in_flight, source)),
    Policy("least loaded by last status", lambda source, _: BestOfAll(_load_by_status, source)),
    Policy("shortest queue, all known", _shortest_queue),
)
WITHOUT_BUDGET = Policy(
    "the same, any number of retries",
    lambda source, _: BestOfAll(_load_by_status, source),
    lambda: ObservedBudget(UNLIMITED, UNLIMITED, max_rejections=UNLIMITED),
)
