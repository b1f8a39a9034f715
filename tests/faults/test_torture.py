"""The torture run in small: every cheap case and a sample of the large bombs, over HTTPS."""

import itertools
from collections.abc import Iterator

import pytest

from tests.faults.conftest import Note, Start
from tests.faults.invariants import check_nothing_spooled
from workshop.torture.bombs import Bomb, bombs
from workshop.torture.results import Results
from workshop.torture.runs import ABBY, GUARD, RUNS, run_bombs

pytestmark = pytest.mark.slow

LEAST_CASES = {"ambiguous": 200, "http": 43, "multipart": 24, "json": 300}
SMALL = 1024 * 1024
BUSY_MILLISECONDS = 600.0  # `make torture` holds the check to 250; here other tests and builds may share the cores.
LARGE_SAMPLE = {0, 12}  # Which of the large bombs are run here; `make torture` runs them all.


def affordable_bombs() -> Iterator[Bomb]:
    """Yield all bombs but the large ones, of which there are a few."""
    numbers = itertools.count()
    for bomb in bombs():
        large = "50 MiB" in bomb.name or len(bomb.make()) > SMALL
        if not large or next(numbers) in LARGE_SAMPLE:
            yield bomb


def reported(results: Results) -> str:
    return "\n".join(f"{result.name}: {result.wrong}" for result in results.wrong)


@pytest.mark.contract("6 hostile message")
async def test_no_bomb_holds_the_structure_check_up_or_passes_for_clean(start_own_product: Start, note: Note) -> None:
    product = start_own_product(GUARD, abby=ABBY)
    results = Results()
    await run_bombs(product, results, affordable_bombs(), BUSY_MILLISECONDS)
    note(f"bombs: {results.summary()}")
    assert len(results.all) >= 63
    assert not results.wrong, reported(results)
    await check_nothing_spooled(product)


@pytest.mark.contract("5 errors")
async def test_every_broken_request_gets_its_one_answer_and_no_ambiguous_message_is_silent(
    start_own_product: Start, note: Note
) -> None:
    product = start_own_product(GUARD, abby=ABBY)
    results = Results()
    for kind, least in LEAST_CASES.items():
        await RUNS[kind](product, results)
        assert len(results.of(kind)) >= least
    note(f"other cases: {results.summary()}")
    assert not results.wrong, reported(results)
    await check_nothing_spooled(product)
