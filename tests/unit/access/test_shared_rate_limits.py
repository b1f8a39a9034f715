"""Rate limits that several processes share: what each may accept, and what happens without a database."""

import asyncio

from mailwarden.access.rate_limits import BATCHES, WINDOW_SECONDS, Lease, SharedRateLimiter
from mailwarden.errors import StorageUnavailable


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Table:
    """Stands for the table where a failure is wanted, or a clock that can be moved."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._end, self._taken = 0.0, 0
        self.leases = 0
        self.away = False

    async def lease(self, subject: str, limit: int) -> Lease:
        await asyncio.sleep(0)
        self.leases += 1
        if self.away:
            raise StorageUnavailable("away", retry_after=1)
        if self._clock.now >= self._end:
            self._end, self._taken = self._clock.now + WINDOW_SECONDS, 0
        granted = min(max(0, limit - self._taken), max(1, (limit - self._taken) // BATCHES))
        self._taken += granted
        return Lease(granted, self._taken, self._end - self._clock.now)


async def accepted(limiter: SharedRateLimiter, calls: int) -> int:
    quotas = await asyncio.gather(*(limiter.count("a") for _ in range(calls)))
    return sum(not quota.exceeded for quota in quotas)


async def test_one_process_gets_the_whole_limit_and_counts_down_by_one() -> None:
    clock = Clock()
    limiter = SharedRateLimiter(600, Table(clock), clock)  # type: ignore[arg-type]
    assert [(await limiter.count("a")).remaining for _ in range(601)] == [*range(599, -1, -1), -1]
    assert (await limiter.count("a")).seconds == 60
    clock.now += 60
    assert (await limiter.count("a")).remaining == 599


async def test_all_processes_together_accept_the_limit_and_lease_seldom() -> None:
    clock = Clock()
    table = Table(clock)
    limiters = [SharedRateLimiter(6_000, table, clock) for _ in range(4)]  # type: ignore[arg-type]
    total = 0
    for _ in range(40):
        total += sum([await accepted(limiter, 60) for limiter in limiters])
    assert total == 6_000
    assert table.leases < 300, "of 9,600 calls"
    before = table.leases
    assert await accepted(limiters[0], 1_000) == 0
    assert table.leases == before, "a key that used up its limit costs no query"


async def test_calls_that_another_process_holds_are_at_most_a_sixteenth() -> None:
    clock = Clock()
    table = Table(clock)
    idle, busy = (SharedRateLimiter(1_600, table, clock) for _ in range(2))  # type: ignore[arg-type]
    assert await accepted(idle, 1) == 1
    assert await accepted(busy, 2_000) == 1_600 - 100


async def test_without_a_database_each_process_keeps_the_limit_by_itself() -> None:
    clock = Clock()
    table = Table(clock)
    limiter = SharedRateLimiter(100, table, clock)  # type: ignore[arg-type]
    assert await accepted(limiter, 30) == 30
    table.away = True
    assert await accepted(limiter, 200) == 70
    leases = table.leases
    assert await accepted(limiter, 50) == 0
    assert table.leases == leases
    clock.now += 60
    assert await accepted(limiter, 200) == 100
    table.away = False
    clock.now += 60
    assert await accepted(limiter, 200) == 100
