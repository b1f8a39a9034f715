"""The command palette, times in the user's zone, error pages, and the frame of the safe preview in a browser."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import BytesIO

import pytest
from PIL import Image, ImageStat
from playwright.sync_api import Locator, Page, expect

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.screens import LOOKS
from tests.browser.window import Window


def options(page: Page, name: str | None = None) -> Locator:
    return page.get_by_role("dialog").get_by_role("option", name=name)


def opened_palette(page: Page) -> None:
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Go to a page")).to_be_visible()
    expect(options(page).first).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_the_palette_leads_to_pages_tenants_and_searches_by_keyboard(
    deployment: Deployment, scanned: dict[str, str], open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst").cookie)
    page = window.open("/console/")
    opened_palette(page)
    box = page.get_by_role("combobox", name="Go to or search for")
    expect(box).to_be_focused()
    expect(box).to_have_attribute("aria-activedescendant", "mw-palette-0")
    window.keep("palette")
    assert not window.barriers()
    assert not window.overflows()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    opened_palette(page)
    page.keyboard.type("quaran")
    expect(options(page).first).to_have_text("Quarantine page")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/quarantine")
    opened_palette(page)
    page.keyboard.type("acme")
    expect(options(page).first).to_have_text("acme tenant")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/console/tenants/{deployment.tenants['acme']}")
    opened_palette(page)
    page.keyboard.type("minutes alice")
    options(page, "Search messages for “minutes alice”").click()
    page.wait_for_url("**/console/messages?q=minutes+alice")
    opened_palette(page)
    expect(options(page).first).to_have_text("minutes alice recent search")
    page.keyboard.press("ArrowUp")
    expect(options(page).last).to_have_attribute("aria-selected", "true")


@pytest.mark.slow
def test_the_palette_has_no_pages_beyond_the_role(deployment: Deployment, open_window: Callable[..., Window]) -> None:
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    page = window.open("/console/")
    opened_palette(page)
    for words in ("health", "club", "new tenant"):
        page.get_by_role("combobox", name="Go to or search for").fill(words)
        expect(options(page)).to_have_text([f"Search messages for “{words}” search"])


@pytest.mark.slow
def test_times_are_shown_in_the_zone_of_the_browser_or_the_account(
    deployment: Deployment, scanned: dict[str, str], held: dict[str, str], open_window: Callable[..., Window]
) -> None:
    window = open_window(zone="Asia/Tokyo")
    window.carry(COOKIE, sign_in(deployment, "analyst").cookie)
    page = window.open(f"/console/quarantine/{held['held']}")
    first = page.locator(".mw-events time").first
    utc = first.get_attribute("title") or ""
    assert utc.endswith(" UTC")
    assert shifted(utc, 9) == first.text_content()
    status = page.locator(".mw-status-line time").first
    assert shifted(status.get_attribute("title") or "", 9)[:16] == status.text_content()
    expect(page.locator(".mw-status-line").first).not_to_contain_text("UTC")
    window.open("/console/messages")
    line = page.locator(".mw-line-time").first
    assert (line.get_attribute("title") or "").endswith(" UTC")
    assert re.fullmatch(r"this minute|\d+(m|h) ago", line.text_content() or ""), "of the last day: how long ago"
    window.open("/console/quarantine")
    expect(page.get_by_role("columnheader", name="Held since (Asia/Tokyo)")).to_be_visible()
    window.open("/console/account")
    page.get_by_label("Zone for times in the console").fill("Asia/Kolkata")
    page.get_by_role("button", name="Save the zone").click()
    expect(page.get_by_text("The console now shows times in this zone.")).to_be_visible()
    window.open(f"/console/quarantine/{held['held']}")
    assert shifted(utc, 5.5) == page.locator(".mw-events time").first.text_content()
    window.open("/console/account")
    page.get_by_label("Zone for times in the console").fill("Mars/Olympus")
    page.get_by_role("button", name="Save the zone").click()
    expect(page.get_by_text("`Mars/Olympus` is no time zone.")).to_be_visible()


def shifted(utc: str, hours: float) -> str:
    moment = datetime.strptime(utc, "%Y-%m-%d %H:%M:%S UTC").replace(tzinfo=UTC)
    return (moment + timedelta(hours=hours)).strftime("%Y-%m-%d %H:%M:%S")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_an_error_keeps_the_menu(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    for path, title in (("/console/no-such-page", "Not Found"), ("/console/health", "Forbidden")):
        page = window.open(path)
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        expect(page.locator("nav[aria-label=Main]")).to_be_attached()  # folded on a phone
        window.keep(f"error-{title.lower().replace(' ', '-')}")
        assert not window.barriers()
        assert not window.overflows()


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_the_frame_of_the_preview_follows_the_theme(
    deployment: Deployment, held: dict[str, str], open_window: Callable[..., Window], dark: bool
) -> None:
    window = open_window(dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst").cookie)
    page = window.open(f"/console/quarantine/{held['held']}")
    page.get_by_role("button", name="Show it").click()
    expect(page.frame_locator("iframe[name=preview]").locator("body")).to_contain_text("minutes of our meeting")
    assert is_dark(page) is dark
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-bs-theme", "light" if dark else "dark")
    assert is_dark(page) is not dark
    window.keep("preview-other-theme")


def is_dark(page: Page) -> bool:
    """Return whether the frame of the preview looks dark."""
    picture = Image.open(BytesIO(page.locator("iframe[name=preview]").screenshot())).convert("L")
    return ImageStat.Stat(picture).mean[0] < 128


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_of_an_error_inside_a_page_has_enough_contrast(
    deployment: Deployment, open_window: Callable[..., Window], dark: bool
) -> None:
    window = open_window(dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    page = window.open("/console/account")
    page.evaluate(
        """async () => {
          const answer = await fetch("/console/messages/none", { headers: { "HX-Request": "true" } });
          document.querySelector("main").innerHTML += await answer.text();
        }"""
    )
    expect(page.get_by_role("alert").get_by_text("request")).to_be_visible()
    assert window.barriers() == []
