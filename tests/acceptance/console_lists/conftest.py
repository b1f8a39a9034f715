"""Who works with lists in the console, an entry of each test's own, and lists that are tidy afterwards."""

import itertools
from collections.abc import Iterator

import pytest

from tests.acceptance.console_session import ConsoleSession, sign_in
from tests.acceptance.deployment import Deployment

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def root(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "deployment-administrator")


@pytest.fixture(scope="module")
def analyst(deployment: Deployment) -> ConsoleSession:
    return sign_in(deployment, "analyst", ("acme",))


@pytest.fixture
def entry() -> str:
    """Return a domain that no other test uses."""
    return f"n{next(_numbers)}.console.example"


@pytest.fixture(scope="module", autouse=True)
def tidy(deployment: Deployment) -> Iterator[None]:
    yield
    for lists in (deployment.lists(), deployment.lists(tenant="acme"), deployment.lists(tenant="bank")):
        for name in ("sender-block", "subject-block", "sender-allow"):
            if names := lists.names(name):
                lists.delete(name, *names[:500])
