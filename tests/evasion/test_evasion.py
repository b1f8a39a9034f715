"""The whole evasion suite through the real product: no payload comes back as if everything had been inspected."""

import asyncio
from pathlib import Path

import pytest

from workshop.evasion.cases import attacks, harmless
from workshop.evasion.product import GUARD, block, scan_all
from workshop.rig.engines import Engines
from workshop.rig.product import start_product

pytestmark = pytest.mark.slow

LEAST = 600


@pytest.mark.contract("8")
def test_no_payload_in_any_wrapper_is_clean(engines: Engines, database_url: str, tmp_path: Path) -> None:
    with start_product(tmp_path, engines, database_url, guards=[GUARD]) as product:
        block(product)
        outcomes = asyncio.run(scan_all(product, attacks()))
        controls = asyncio.run(scan_all(product, harmless()))
    assert len(outcomes) >= LEAST
    assert [str(outcome) for outcome in outcomes if outcome.passed] == []
    assert [str(outcome) for outcome in controls if not outcome.passed] == []
