"""Who works with lists in the console, an entry of each test's own, and lists that are tidy afterwards."""

import itertools
from collections.abc import Iterator

import pytest

from tests.acceptance.console_guest import ConsoleGuest, sign_in
from tests.acceptance.house import House

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def root(house: House) -> ConsoleGuest:
    return sign_in(house, "deployment-administrator")


@pytest.fixture(scope="module")
def analyst(house: House) -> ConsoleGuest:
    return sign_in(house, "analyst", ("acme",))


@pytest.fixture
def entry() -> str:
    """Return a domain that no other test uses."""
    return f"n{next(_numbers)}.console.example"


@pytest.fixture(scope="module", autouse=True)
def tidy(house: House) -> Iterator[None]:
    yield
    for lists in (house.lists(), house.lists(tenant="acme"), house.lists(tenant="bank")):
        for name in ("sender-block", "subject-block", "sender-allow"):
            if names := lists.names(name):
                lists.delete(name, *names[:500])
