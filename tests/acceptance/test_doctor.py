"""`mailwarden doctor` before a running product: test messages go through every guard, and history keeps none."""

import asyncio

import asyncpg
import pytest

from mailwarden.cli.doctor import check_host
from tests.acceptance.deployment import Deployment
from workshop.rig.engines import Engines


async def _rows(engines: Engines, deployment: Deployment) -> int:
    connection = await asyncpg.connect(engines.postgresql.url(deployment.database))
    try:
        return int(await connection.fetchval("SELECT count(*) FROM history"))
    finally:
        await connection.close()


@pytest.mark.long  # test_support_bundle.py runs all checks in the gate
async def test_all_is_well_with_a_product_that_is_set_up_right(engines: Engines, deployment: Deployment):
    before = await _rows(engines, deployment)
    found = [line async for line in check_host(deployment.product.abby.folder)]
    assert [str(line) for line in found if not line.well] == []
    names = [line.name for line in found]
    assert {"clamav settings", "rspamd settings", "clock", "self-tests"} <= set(names)
    scans = [line for line in found if line.name.startswith("scans ")]
    assert len(scans) == len(deployment.product.guards)
    await asyncio.sleep(2.0)  # history is written behind the answers
    assert await _rows(engines, deployment) == before, "nothing is kept"
