"""The rig runs abby with any number of guards, each with its own configuration, and each can fail alone."""

import pytest

from workshop.rig import watcher
from workshop.rig.engines import Engines
from workshop.rig.product import Overrides, start_product

pytestmark = pytest.mark.slow


def test_guards_have_their_own_configuration_and_fail_and_return_alone(engines: Engines, database_url, tmp_path):
    guards: list[Overrides] = [{"mainWorkerCount": 20}, {"onEngineFailure": "tempfail"}]

    with start_product(tmp_path, engines, database_url, guards=guards, abby={"maxUploads": 7}) as product:
        pids = [pid for service in product.services for pid in watcher.tree(service.pid)]
        first, second = product.guards
        assert len({service.url for service in product.services}) == 3
        assert "onEngineFailure: tempfail" in (second.folder / "guard/core/guard.yml").read_text("utf-8")
        abby_file = (product.abby.folder / "abby/abby/abby.yml").read_text("utf-8")
        assert all(guard.url in abby_file for guard in product.guards)
        assert len(product.token) == 64

        workers = watcher.tree(second.pid)
        second.kill()

        assert not [pid for pid in workers if watcher.is_running(pid)]
        assert first.is_healthy()
        assert product.abby.is_healthy()
        second.configure({"name": "second"})
        second.start()
        assert second.is_healthy()
        pids += watcher.tree(second.pid)

    assert not [pid for pid in pids if watcher.is_running(pid)]
