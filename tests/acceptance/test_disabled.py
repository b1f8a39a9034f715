"""scanSources without restApi: the Email Scanning API is there, and says that it is disabled."""

import pytest

from rig.product import CONFIGURATION_FILES
from tests.waiting import wait_until

pytestmark = pytest.mark.long  # test_one_process.py shows it in the gate


@pytest.mark.spec("1 static configuration")
@pytest.mark.spec("1 restApi")
@pytest.mark.spec("1 restart")
@pytest.mark.contract("5 scanning_disabled")
def test_scanning_is_disabled_until_rest_api_is_added_and_guard_restarted(restartable, plain):
    client, (guard, other) = restartable.client(), restartable.product.guards
    other.stop()
    guard.stop()
    path = guard.folder / CONFIGURATION_FILES["guard"]
    enabled = path.read_text("utf-8")
    path.write_text(enabled.replace("scanSources:\n  restApi: {}", "scanSources: {}"), "utf-8")
    assert path.read_text("utf-8") != enabled
    guard.start()

    answer = client.submit(plain)
    assert (answer.status, answer.error) == (503, "scanning_disabled")
    assert int(answer.headers["Retry-After"]) >= 1

    path.write_text(enabled, "utf-8")
    assert client.submit(plain).error == "scanning_disabled", "the settings need a restart"
    guard.restart()
    assert wait_until(lambda: client.submit(plain).status == 200)
