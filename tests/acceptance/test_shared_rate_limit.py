"""The rate limit of an API key over two abby processes that share a database."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.acceptance.client import Client
from tests.acceptance.deployment import run_deployment
from tests.acceptance.list_client import ListClient
from workshop.rig.ports import free_port
from workshop.rig.product import Service

LIMIT = 160


@pytest.mark.slow
@pytest.mark.contract("4 rate limit")
def test_two_abbys_together_accept_no_more_than_the_limit(engines, deployment_template, tmp_path):
    with run_deployment(
        engines, deployment_template, tmp_path, abby={"listsRateLimit": LIMIT}, start=False, one_process=False
    ) as deployment:
        first = deployment.product.abby
        folder = tmp_path / "second"
        shutil.copytree(first.folder, folder)
        port = free_port()
        second = Service("second-abby", "abby", folder, port)
        second.configure({"listen": {"port": port}, "spool": str(tmp_path / "second-spool")})
        first.start()
        second.start()
        try:
            there = Client(second.url, deployment.product.ca, deployment.tokens["everything"])
            callers = [deployment.lists(), ListClient(there.using(None), deployment.keys["all"], None)]
            with ThreadPoolExecutor(8) as threads:
                statuses = list(threads.map(lambda number: callers[number % 2].available().status, range(2 * LIMIT)))
        finally:
            second.stop()
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= LIMIT
    assert statuses.count(200) >= LIMIT - LIMIT // 16
