"""The messages of `python -m workshop.bench.growth`, and a load of a fixed rate."""

import asyncio

import pytest

from workshop.bench.growth import KINDS
from workshop.bench.load import run_paced


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [5_000, 200_000])
def test_a_message_has_about_its_size_and_no_twin(kind: str, size: int) -> None:
    first, second = (KINDS[kind](number, size) for number in (1, 2))
    assert 0.9 * size < len(first) < 1.3 * size
    assert first != second


async def test_a_wait_for_a_free_client_counts_as_duration() -> None:
    async def ask(_: bytes) -> None:
        await asyncio.sleep(0.05)

    load = await run_paced([ask], [b""] * 4, rate=1_000.0)
    assert sorted(load.latencies) == list(load.latencies)
    assert load.latencies[-1] > 0.15
