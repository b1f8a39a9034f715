"""The colour of the message queue, by real events."""

import time

import pytest

from tests.acceptance.client import STATUS
from tests.acceptance.deployment import in_processing, submitting
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
AT_ONCE = 6.0  # on a busy machine, and still told from the ten seconds that it takes to get better


@pytest.fixture
def fresh(restartable):
    """Return the product with an abby that remembers no bad colour."""
    if restartable.client().colour() != "GREEN":
        restartable.product.abby.restart()
    assert wait_until(lambda: restartable.client().colour() == "GREEN")
    return restartable


@pytest.mark.spec("4 status")
@pytest.mark.spec("2 messageQueueStatus")
@pytest.mark.contract("3 green")
@pytest.mark.contract("3 status 200")
def test_it_is_green_while_all_is_well_and_needs_no_body(fresh):
    client = fresh.client()

    assert client.colour() == "GREEN"
    assert client.call("POST", STATUS, data=b"").json == {"messageQueueStatus": "GREEN"}
    answer = client.call("POST", STATUS, headers={"Content-Type": "application/json"}, data=b"{}")
    assert answer.json == {"messageQueueStatus": "GREEN"}


@pytest.mark.contract("3 yellow")
@pytest.mark.contract("3 red full")
@pytest.mark.contract("3 worse at once")
def test_it_is_yellow_at_four_fifths_and_red_when_full_and_better_only_after_ten_seconds(fresh, plain, pausable_clamd):
    client, numbers = fresh.client(), range(2)
    pausable_clamd.pause()
    with submitting(fresh, plain, 7, pausable_clamd):
        assert wait_until(lambda: sum(in_processing(fresh, number) for number in numbers) == 7)
        assert client.colour() == "GREEN"
        with submitting(fresh, plain, 1, pausable_clamd):
            assert wait_until(lambda: client.colour() == "YELLOW", AT_ONCE)
            with submitting(fresh, plain, 2, pausable_clamd):
                assert wait_until(lambda: client.colour() == "RED", AT_ONCE)
    assert wait_until(lambda: sum(in_processing(fresh, number) for number in numbers) == 0)
    ended = time.monotonic()

    assert client.colour() == "RED", "it was red a moment ago"
    assert wait_until(lambda: client.colour() == "GREEN", pause=0.2)
    assert 8.0 <= time.monotonic() - ended <= 20.0


@pytest.mark.contract("3 green")
def test_a_busy_engine_is_not_down(fresh, plain, pausable_clamd):
    pausable_clamd.pause()
    with submitting(fresh, plain, 7, pausable_clamd):
        assert wait_until(lambda: pausable_clamd.waiting == 6), "three turns at each guard, and one message behind them"
        time.sleep(5.0)  # several health checks of the engine pass meanwhile
        assert fresh.client().colour() == "GREEN"


@pytest.mark.contract("3 yellow")
@pytest.mark.contract("3 red unreachable")
@pytest.mark.contract("3 readyz")
@pytest.mark.contract("5 core_unreachable")
def test_it_is_yellow_without_one_guard_and_red_without_all(fresh, plain):
    client, (first, second) = fresh.client(), fresh.product.guards
    nobody = client.using(None)
    assert nobody.call("GET", "/readyz").status == 200

    # abby asks its guards again when the last answers are a quarter of a second old.
    first.stop()
    assert wait_until(lambda: client.colour() == "YELLOW", AT_ONCE)
    assert client.submit(plain).outcome == ("clean", "deliver")

    second.stop()
    assert wait_until(lambda: client.colour() == "RED", AT_ONCE)
    answer = client.submit(plain)
    assert (answer.status, answer.error) == (502, "core_unreachable")
    assert wait_until(lambda: nobody.call("GET", "/readyz").status == 503, AT_ONCE)
    assert nobody.call("GET", "/healthz").status == 200


@pytest.mark.contract("3 red engine")
def test_it_is_red_while_a_required_engine_is_down_everywhere(fresh, stoppable_engines):
    stoppable_engines.clamd.kill()

    assert wait_until(lambda: fresh.client().colour() == "RED", AT_ONCE)


@pytest.mark.contract("3 yellow database")
@pytest.mark.contract("6 database down")
@pytest.mark.contract("5 storage_unavailable")
def test_it_is_yellow_while_the_database_is_down_and_scans_continue(fresh, stoppable_engines, plain):
    client = fresh.client()
    stoppable_engines.postgresql.kill()

    assert wait_until(lambda: client.colour() == "YELLOW", AT_ONCE)
    answer = client.submit(plain, tenant=fresh.tenants["acme"])
    assert answer.outcome == ("clean", "deliver")
    for needs_the_database in (
        client.explain(answer.result["ggrid"]),
        client.submit(plain, headers={"Idempotency-Key": "without-a-database"}),
    ):
        assert (needs_the_database.status, needs_the_database.error) == (503, "storage_unavailable")
        assert int(needs_the_database.headers["Retry-After"]) >= 1

    stoppable_engines.postgresql.start()
    assert wait_until(lambda: client.explain(answer.result["ggrid"]).status == 200), "history is written later"
