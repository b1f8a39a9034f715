"""Figures are read once for all who ask for them, and a slow query holds only those who ask for the same."""

import asyncio
from uuid import uuid4

from mailwarden.history import recent
from mailwarden.history.recent import Recent
from mailwarden.history.store import Range
from mailwarden.model.scope import Scope

SLOW, QUICK = Scope.of(uuid4()), Scope.of(uuid4())


class Reader:
    """Counts what is read; the figures of one scope come when they are released."""

    def __init__(self) -> None:
        self.read = list[Scope]()
        self.released = asyncio.Event()

    async def __call__(self, scope: Scope, range_: Range) -> int:
        self.read.append(scope)
        if scope == SLOW:
            await self.released.wait()
        return len(self.read)


async def test_a_query_that_hangs_holds_no_other_scope() -> None:
    reader = Reader()
    figures = Recent(60.0, reader)
    waiting = [asyncio.create_task(figures.get(SLOW, Range.DAY)) for _ in range(3)]
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        assert await figures.get(QUICK, Range.DAY) == 2
        reader.released.set()
        assert await asyncio.gather(*waiting) == [2, 2, 2], "one query for all three"
    assert reader.read == [SLOW, QUICK]
    assert not figures._locks


async def test_few_queries_run_at_a_time() -> None:
    reader = Reader()
    running = most = 0

    async def read(scope: Scope, range_: Range) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return await reader(scope, range_)

    figures = Recent(60.0, read)
    await asyncio.gather(*(figures.get(Scope.of(uuid4()), Range.DAY) for _ in range(20)))
    assert (most, len(reader.read)) == (recent.MAX_READS, 20)
