"""The search box in a browser: suggestions by keyboard and mouse, and their order."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.window import Window


@pytest.fixture
def windows(
    deployment: Deployment, scanned: dict[str, str], open_window: Callable[..., Window]
) -> Callable[..., Window]:
    cookie = sign_in(deployment, "analyst", ["acme"]).cookie

    def window(*, width: int = 1280, dark: bool = False) -> Window:
        opened = open_window(width=width, dark=dark)
        opened.carry(COOKIE, cookie)
        return opened

    return window


@pytest.mark.slow
def test_suggestions_are_chosen_by_keyboard_and_mouse(windows: Callable[..., Window]) -> None:
    window = windows()
    page = window.open("/console/messages")
    box = page.get_by_role("combobox", name="Search")
    box.focus()
    page.keyboard.type("hello ver")
    expect(page.get_by_role("listbox", name="Suggestions").get_by_role("option")).to_have_count(1)
    expect(box).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("ArrowDown")
    expect(box).to_have_attribute("aria-activedescendant", "q-completions-0")
    page.keyboard.press("Enter")
    expect(box).to_have_value("hello verdict:")
    expect(page.get_by_role("listbox", name="Suggestions").get_by_role("option")).to_have_count(8)
    window.keep("messages-suggestions")
    assert not window.barriers()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Escape")
    expect(page.locator(".mw-completions")).to_be_hidden()
    expect(box).to_have_value("hello verdict:")
    page.keyboard.type("mal")
    page.get_by_role("option", name="verdict:malware").click()
    expect(box).to_have_value("hello verdict:malware ")
    page.keyboard.type("to:bob")
    page.get_by_role("option", name="to:bob@company.example").click()
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/messages?q=hello+verdict%3Amalware+to%3Abob%40company.example*")
    window.look()
    assert not window.problems
