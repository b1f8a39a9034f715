"""The profile of a worker."""

import pytest

from workshop.bench.messages import make_message
from workshop.bench.worker_profile import sample

pytestmark = pytest.mark.slow


def test_the_profile_has_the_functions_of_the_worker():
    sampler, used = sample([make_message(number, 20_000) for number in range(20)])
    assert used > 0
    assert sampler.samples > 0
    assert sum(sampler.alone.values()) == sampler.samples
    assert any(name.startswith("pipeline/worker_steps.py examine") for name in sampler.with_callees)
