"""The product with the real engines, which are restarted after every test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workshop.rig.engines import Engines, start_engines
from workshop.rig.product import Overrides, Product, install_product

# Short enough to distinguish a paused engine from a slow one within a test, long enough for two busy cores.
ENGINE_MILLISECONDS = 2_000
GUARD: Overrides = {
    "engines": {"rspamd": {"timeout": ENGINE_MILLISECONDS}, "clamav": {"timeout": ENGINE_MILLISECONDS}},
    "maxGuardRequestsInProcessing": 32,
    "guardRequestThrottleThreshold": 32,
}
# Tests that stop no engine need long timeouts on a busy machine.
STEADY: Overrides = {**GUARD, "engines": {"rspamd": {"timeout": 20_000}, "clamav": {"timeout": 20_000}}}

Start = Callable[..., Product]
Note = Callable[[str], None]


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """Return engines as in production: PostgreSQL waits for the disk at each commit."""
    with start_engines() as running:
        yield running


@pytest.fixture
def restored_engines(engines: Engines, database_url: str) -> Iterator[Engines]:
    """Restart stopped engines after the test, before its database is dropped."""
    yield engines
    for server in engines.servers:
        if server.running:
            server.resume()
        else:
            server.start()


@pytest.fixture
def start_own_product(restored_engines: Engines, database_url: str, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a product for this test."""
    started: list[Product] = []

    def start_one(*guards: Overrides, abby: Overrides | None = None) -> Product:
        product = install_product(tmp_path, restored_engines, database_url, guards=guards or (STEADY,), abby=abby)
        started.append(product)
        # The guards come first: an abby that finds none shows RED for the next ten seconds.
        for guard in product.guards:
            guard.start()
        product.start()
        return product

    yield start_one
    for product in started:
        product.stop()
