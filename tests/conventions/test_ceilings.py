"""The checkout does not grow: no count is above its ceiling."""

import pytest
from msgspec.structs import asdict

from tests.conventions.project_files import ROOT
from workshop.measure.ceilings import LOOP, read_ceilings
from workshop.measure.counts import count


@pytest.mark.slow
def test_no_count_is_above_its_ceiling() -> None:
    counts = asdict(count(ROOT))
    ceilings = {name: value for name, value in read_ceilings().items() if name != LOOP}
    above = [f"{name} {counts[name]}, ceiling {value}" for name, value in ceilings.items() if counts[name] > value]
    assert not above, "delete something, or raise workshop/measure/ceilings.toml with a reason"
