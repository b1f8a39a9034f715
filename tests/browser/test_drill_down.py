"""The chart of the dashboard shows its numbers on hover and focus, and leads to the messages of an interval."""

from collections.abc import Callable

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.window import Window

# The newest interval that has messages.
FULL = '[data-points] a:not([aria-label*=": 0 messages"])'


@pytest.fixture
def window(deployment: Deployment, scanned: dict[str, str], open_window: Callable[..., Window]) -> Window:
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    return window


@pytest.mark.slow
def test_an_interval_shows_its_numbers_and_lists_its_messages(window: Window) -> None:
    page = window.open("/console/?range=1h")
    page.wait_for_selector(FULL)
    tip = page.locator("[data-tip]")
    assert tip.is_hidden()
    interval = page.locator(FULL).last
    interval.hover()
    assert tip.inner_text() == interval.get_attribute("aria-label")
    assert "UTC: " in tip.inner_text()
    page.mouse.move(0, 0)
    tip.wait_for(state="hidden")
    interval.click()
    page.wait_for_url("**/console/messages?range=between*")
    assert page.locator('a[href^="/console/messages/"]').count() > 0
    window.look()


@pytest.mark.slow
def test_the_chart_is_one_stop_and_the_arrow_keys_move(window: Window) -> None:
    page = window.open("/console/?range=24h")
    page.wait_for_selector("[data-points] a")
    assert page.locator('[data-points] a[tabindex="0"]').count() == 1
    page.locator('[data-points] a[tabindex="0"]').focus()
    tip = page.locator("[data-tip]")
    last = tip.inner_text()
    page.keyboard.press("ArrowLeft")
    assert tip.is_visible()
    assert tip.inner_text() != last
    page.keyboard.press("End")
    assert tip.inner_text() == last
    page.keyboard.press("Escape")
    assert tip.is_hidden()
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/messages?range=between*")
