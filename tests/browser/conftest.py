"""A product of its own with people of every role, and Debian's Chromium to visit it."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from rig.engines import Engines
from tests.acceptance.house import House, Town, open_house
from tests.browser.visitor import Visitor

CHROMIUM = "/usr/bin/chromium"
SCREENSHOTS = Path(os.environ.get("MAILWARDEN_SCREENSHOTS", "run/screenshots"))


@pytest.fixture(scope="package")
def stage(engines: Engines, town: Town, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Return a product that nobody but the browser tests changes."""
    with open_house(engines, town, tmp_path_factory.mktemp("stage")) as opened:
        yield opened


# For the package and not for the run: Playwright's own loop would stand in the way of the asynchronous tests after it.
@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visitor(stage: House, chromium: Browser) -> Iterator[Callable[..., Visitor]]:
    """Return what opens a browser window of its own; whatever it reported against us fails the test."""
    visitors: list[Visitor] = []

    def open_window(*, width: int = 1280, dark: bool = False) -> Visitor:
        visitors.append(Visitor(chromium, stage.product.url, SCREENSHOTS, width=width, dark=dark))
        return visitors[-1]

    yield open_window
    for each in visitors:
        each.close()
    assert [problem for each in visitors for problem in each.problems] == []
