"""The product with the real engines, made whole again after every test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rig.engines import Engines
from rig.product import Overrides, Product, install_product

# Short enough that a paused engine is told from a slow one within a test, long enough for two busy cores.
ENGINE_MILLISECONDS = 2_000
GUARD: Overrides = {
    "engines": {"rspamd": {"timeout": ENGINE_MILLISECONDS}, "clamav": {"timeout": ENGINE_MILLISECONDS}},
    "maxGuardRequestsInProcessing": 32,
    "guardRequestThrottleThreshold": 32,
}
# Where no engine is taken away, none is to look as if one were on a machine that is busy with other things.
STEADY: Overrides = {**GUARD, "engines": {"rspamd": {"timeout": 20_000}, "clamav": {"timeout": 20_000}}}

Start = Callable[..., Product]
Note = Callable[[str], None]


@pytest.fixture
def whole_engines(engines: Engines, database_url: str) -> Iterator[Engines]:
    """Bring back whatever a test took away, also when the test failed, before its database is dropped."""
    yield engines
    for server in engines.servers:
        if server.running:
            server.resume()
        else:
            server.start()


@pytest.fixture
def start_product_of(whole_engines: Engines, database_url: str, tmp_path: Path) -> Iterator[Start]:
    """Return what starts a product of this test's own."""
    started: list[Product] = []

    def start_one(*guards: Overrides, abby: Overrides | None = None) -> Product:
        product = install_product(tmp_path, whole_engines, database_url, guards=guards or (STEADY,), abby=abby)
        started.append(product)
        # The guards come first: an abby that finds none shows RED for the next ten seconds.
        for guard in product.guards:
            guard.start()
        product.start()
        return product

    yield start_one
    for product in started:
        product.stop()
