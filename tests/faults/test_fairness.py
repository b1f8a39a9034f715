"""Heavy messages do not keep others waiting: the starvation attack, small, against real processes."""

from statistics import median

import pytest

from tests.faults.conftest import Note, Start
from tests.faults.invariants import check_nothing_spooled
from workshop.torture.harm import measure_harm, p99

pytestmark = pytest.mark.slow

# `workshop.torture --only harm` measures the p99 with hundreds of messages. Of sixty, the p99 is the slowest one, and a
# pause of the machine decides it. With one queue for all messages, every one waited for many seconds.
STARVED = 3.0
SOON_MILLISECONDS = 1_000.0


@pytest.mark.flaky(reruns=1)  # a duration that is measured: a pause of the machine gets a second measurement
@pytest.mark.contract("8 fairness")
@pytest.mark.parametrize(
    "attack", [pytest.param("large pictures", marks=pytest.mark.long), "small files of large pictures"]
)
async def test_a_harmless_message_is_not_kept_waiting_by_heavy_ones(attack: str, start_own_product: Start, note: Note):
    product = start_own_product()
    harm = await measure_harm(product, attack, phases=1, messages=60)
    note(str(harm))
    assert harm.sent > 0, "messages of the attack were answered"
    assert median(harm.beside) < STARVED * median(harm.alone), str(harm)
    assert p99(harm.beside) < SOON_MILLISECONDS, str(harm)
    await check_nothing_spooled(product)
