"""One product for the whole run: abby and two guards over TLS, before the real engines; and one that may be hurt."""

from collections.abc import Iterator

import pytest

from rig.engines import Engines
from rig.samples import plain_message
from tests.acceptance.client import Client, wait_until
from tests.acceptance.house import House, Town, open_house
from tests.acceptance.sluice import Sluice

PLACES = {"mainWorkerCount": 5, "maxGuardRequestsInProcessing": 5, "guardRequestThrottleThreshold": 5}


@pytest.fixture(scope="session")
def house(engines: Engines, town: Town, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with open_house(engines, town, tmp_path_factory.mktemp("house"), guards=({}, {})) as opened:
        yield opened


@pytest.fixture(scope="session")
def client(house: House) -> Client:
    """Return a caller whose token may do everything."""
    return house.client()


@pytest.fixture(scope="session")
def plain(engines: Engines) -> bytes:
    """Return a harmless message, signed by the domain that it comes from."""
    return engines.dns.sign(plain_message(), "pass.example")


@pytest.fixture(scope="session")
def sluice(engines: Engines) -> Iterator[Sluice]:
    with Sluice(engines.clamd.socket) as running:
        yield running


@pytest.fixture(scope="session")
def built_yard(
    engines: Engines, town: Town, sluice: Sluice, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[House]:
    guard = {**PLACES, "engines": {"clamav": {"address": sluice.address, "maxConcurrency": 3}}}
    with open_house(engines, town, tmp_path_factory.mktemp("yard"), guards=(guard, guard), start=False) as opened:
        yield opened


@pytest.fixture
def yard(built_yard: House, sluice: Sluice) -> House:
    """Return a product whose processes may be stopped and killed: two guards of five places behind the sluice."""
    sluice.open()
    built_yard.product.start()
    return built_yard


@pytest.fixture
def harmed_engines(engines: Engines, client: Client, plain: bytes) -> Iterator[Engines]:
    """Return the engines to be hurt; afterwards they run again and the product for all tests has recovered."""
    yield engines
    for server in engines.servers:
        if not server.running:
            server.start()

    def recovered() -> bool:
        answer = client.submit(plain)
        well = answer.status == 200 and answer.result["verdict"] == "clean"
        return well and client.explain(answer.result["ggrid"]).status == 200

    assert wait_until(recovered, pause=0.2)
