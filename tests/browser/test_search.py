"""The search box in a browser: suggestions by keyboard and mouse, near matches, saved searches, and the order."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.window import Window

# The points of each entry of the list: of a message, or of the first message of a campaign.
FACES = 'ol[aria-label="Messages"] > .mw-entry > .mw-line .mw-line-points'


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


@pytest.mark.slow
def test_a_search_is_saved_opened_and_deleted(windows: Callable[..., Window]) -> None:
    for width, dark in ((1280, True), (390, False)):
        window = windows(width=width, dark=dark)
        page = window.open("/console/messages?q=to:company.example&order=oldest")
        page.get_by_text("Saved searches").click()
        page.get_by_label("Save this search as").fill("Mail to the company, oldest first")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("The search was saved.")).to_be_visible()
        page.get_by_text("Saved searches (1)").click()
        window.keep("messages-saved")
        assert not window.barriers()
        assert not window.overflows()
        window.open("/console/messages")
        page.get_by_text("Saved searches (1)").click()
        page.get_by_role("link", name="Mail to the company, oldest first").click()
        page.wait_for_url("**/console/messages?q=to%3Acompany.example&order=oldest")
        page.get_by_text("Saved searches (1)").click()
        page.get_by_role("button", name="Delete Mail to the company, oldest first").click()
        expect(page.get_by_text("The saved search was deleted.")).to_be_visible()
        window.look()
        assert not window.problems


@pytest.mark.slow
def test_a_search_without_matches_leads_to_near_ones(windows: Callable[..., Window], scanned: dict[str, str]) -> None:
    for width, dark in ((1280, False), (390, True)):
        window = windows(width=width, dark=dark)
        page = window.open("/console/messages?q=to:compnay.example")
        link = page.get_by_role("link", name="to:company.example")
        expect(link).to_be_visible()
        window.keep("messages-near")
        assert not window.barriers()
        assert not window.overflows()
        link.click()
        page.wait_for_url("**/console/messages?q=to%3Acompany.example")
        page.select_option("#order", "points")
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".mw-list-head").get_by_text("Most points first")).to_be_visible()
        points = [int(each.split()[0]) for each in page.locator(FACES).all_text_contents()]
        assert points[0] > 0
        assert points == sorted(points, reverse=True)
        expect(page.locator(".mw-facet-place strong")).to_be_visible()
        window.keep("messages-by-points")
        assert not window.overflows()
        window.look()
        assert not window.problems
