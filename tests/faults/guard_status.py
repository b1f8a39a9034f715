"""The state of the product besides its answers: guard's status and metrics, and the rows of history."""

import asyncio
import re
import time

from workshop.rig.caller import Answer, Caller, caller_context
from workshop.rig.engines import Engines
from workshop.rig.product import Service


async def ask_guard(guard: Service, path: str) -> Answer:
    """Ask a guard on its own port, showing abby's certificate."""
    tls = guard.folder / "tls"
    async with Caller(guard.port, caller_context(tls / "ca.crt", tls), "") as caller:
        return await caller.call("GET", path)


async def figure(guard: Service, name: str) -> float:
    """Read one figure from guard's metrics."""
    page = (await ask_guard(guard, "/metrics")).body.decode("utf-8")
    found = re.search(rf"^{name} ([\d.e+-]+)$", page, re.MULTILINE)
    assert found, page
    return float(found.group(1))


async def in_processing(guard: Service) -> int:
    count = (await ask_guard(guard, "/v1/guard/status")).record["inProcessing"]
    assert isinstance(count, int)
    return count


async def wait_until_filled(guards: list[Service]) -> list[int]:
    """Wait until every guard has guard requests in processing, and return how many."""
    end = time.monotonic() + 30.0
    while not all(counts := [await in_processing(guard) for guard in guards]):
        assert time.monotonic() < end, f"in processing: {counts}"
        await asyncio.sleep(0.01)
    return counts


async def wait_until_empty(guard: Service) -> None:
    end = time.monotonic() + 30.0
    while await in_processing(guard):
        assert time.monotonic() < end, "guard still counts abandoned requests"
        await asyncio.sleep(0.05)


def rows(engines: Engines, database_url: str) -> dict[str, int]:
    """Count the rows of history for each ggrid."""
    text = engines.postgresql.execute(
        "SELECT ggrid, count(*) FROM history GROUP BY ggrid", database_url.rpartition("/")[2]
    )
    return {ggrid: int(count) for ggrid, _, count in (line.partition("|") for line in text.splitlines())}
