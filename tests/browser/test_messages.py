"""The list of messages in a browser: rows, keys, selection, campaigns, and the message beside the list."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, expect

from mailwarden.access.sessions import COOKIE
from mailwarden.model.outcome import Verdict
from mailwarden.model.record import CampaignIds
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import finish_releases, keep, state_of
from tests.browser.screens import LOOKS
from tests.browser.test_screens import kept
from tests.browser.window import Window

MIN_ROWS = 14
REASON = "Spam: Rspamd gives it 14 points, and its sender has never written to this organisation before."
# The rows that a user sees whole, with their heights.
VISIBLE = """() => {
  const list = document.querySelector(".mw-panes-list").getBoundingClientRect();
  const end = Math.min(list.bottom, window.innerHeight);
  return [...document.querySelectorAll(".mw-messages > .mw-entry > .mw-line")]
    .filter((line) => !line.closest("details"))
    .map((line) => line.parentElement.getBoundingClientRect())
    .filter((box) => box.top >= 0 && box.bottom <= end)
    .map((box) => box.height);
}"""


@pytest.fixture
def windows(deployment: Deployment, open_window: Callable[..., Window]) -> Callable[..., Window]:
    cookie = sign_in(deployment, "analyst", ["acme"]).cookie

    def window(*, width: int = 1280, dark: bool = False) -> Window:
        opened = open_window(width=width, dark=dark)
        opened.carry(COOKIE, cookie)
        return opened

    return window


def hold(deployment: Deployment, mark: str, number: int, **changes: Any) -> str:
    """Hold a message of the list; the highest number is on top."""
    return keep(
        deployment,
        subject=f"{mark} Your invoice {number} is overdue, and we must ask you for the payment without delay",
        sender=f"billing@{mark}.long-name-of-a-sender.letters.example",
        name="Billing department of the letters",
        sentence=REASON,
        **changes,
    )


@pytest.fixture(scope="module")
def listed(deployment: Deployment) -> str:
    """Return the first word of the subjects of 24 held messages."""
    mark = f"w{uuid4().hex[:12]}"
    for number in range(24):
        hold(deployment, mark, number)
    return mark


def focused(page: Page) -> str:
    """Return the number of the message that has the focus."""
    return str(page.evaluate("document.activeElement.textContent.match(/invoice (\\d+)/)?.[1]"))


def path_of(mark: str) -> str:
    return f"/console/messages?q=subject:{mark}"


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, pytest.param(True, marks=pytest.mark.long)])
def test_fourteen_rows_of_two_lines_are_visible(windows: Callable[..., Window], listed: str, dark: bool) -> None:
    window = windows(dark=dark)
    barriers: list[str] = []
    for name, path in (("messages-list", "/console/messages"), ("messages-search", path_of(listed))):
        page = window.open(path)
        expect(page.locator(".mw-facet-place strong")).to_be_visible()
        heights = page.evaluate(VISIBLE)
        assert len(heights) >= MIN_ROWS, (path, len(heights))
        assert all(44 <= height <= 56 for height in heights), heights
        barriers += kept(window, name)
    page.locator(".mw-line-open").first.click()
    expect(page.locator("#pane h1")).to_contain_text(listed)
    heights = page.evaluate(VISIBLE)
    assert len(heights) >= MIN_ROWS
    assert all(44 <= height <= 56 for height in heights), heights
    barriers += kept(window, "messages-pane")
    assert barriers == []
    print(f"{len(heights)} rows of {heights[0]:.0f} px in a window of 1280 x 900")  # noqa: T201 - shown by pytest -rP


@pytest.mark.slow
def test_rows_fit_a_narrow_window_and_open_the_page(windows: Callable[..., Window], listed: str) -> None:
    for dark in (False, True):
        window = windows(width=390, dark=dark)
        page = window.open(path_of(listed))
        line = page.locator(".mw-line").first
        for text in ("spam", "letters.example", "Your invoice 23", REASON[:20]):
            expect(line).to_contain_text(text)
        expect(line.locator(".mw-line-reason")).to_be_visible()
        assert kept(window, "messages-list") == []
        line.locator(".mw-line-open").click()
        page.wait_for_url("**/console/messages/*")
        expect(page.get_by_role("heading", level=1)).to_contain_text("Your invoice 23")
    place = page.url.rpartition("/")[2].partition("?")[0]
    window.open(f"{path_of(listed)}&open={place}")
    page.wait_for_url(f"**/console/messages/{place}*")


@pytest.mark.slow
def test_keys_move_select_open_and_search(windows: Callable[..., Window], listed: str) -> None:
    window = windows()
    page = window.open(path_of(listed))
    expect(page.get_by_text("move")).to_be_visible()
    page.keyboard.press("j")
    assert focused(page) == "23"
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert focused(page) == "22"
    page.keyboard.press("x")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_text("2 selected")).to_be_visible()
    assert page.locator("input[name=row]:checked").count() == 2
    assert kept(window, "messages-selected") == []
    page.keyboard.press("x")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#pane h1")).to_contain_text("Your invoice 21")
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.keyboard.press("j")
    expect(page.locator("#pane h1")).to_contain_text("Your invoice 20")
    assert focused(page) == "20"
    page.keyboard.press("Escape")
    expect(page.locator("#pane")).to_be_hidden()
    assert "open=" not in page.url
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "q"
    page.keyboard.press("End")
    page.keyboard.type(" jxk/")
    expect(page.locator("#q")).to_have_value(f"subject:{listed} jxk/")
    expect(page.get_by_text("1 selected")).to_be_visible()
    window.look()


@pytest.mark.slow
def test_the_list_keeps_its_place_and_the_url_its_message(windows: Callable[..., Window], listed: str) -> None:
    window = windows()
    page = window.open(path_of(listed))
    page.locator(".mw-line").nth(20).scroll_into_view_if_needed()
    top = page.evaluate("document.querySelector('.mw-panes-list').scrollTop")
    assert top > 0
    page.locator(".mw-line").nth(20).locator(".mw-line-reason").click()
    expect(page.locator("#pane h1")).to_contain_text("Your invoice 3 ")
    assert page.evaluate("document.querySelector('.mw-panes-list').scrollTop") == top
    shared = page.url
    assert "open=" in shared
    page.locator("#pane").hover()
    page.mouse.wheel(0, 700)
    page.wait_for_function("() => document.getElementById('pane').scrollTop > 0")
    bar = page.get_by_role("navigation", name="Actions on this message")
    expect(bar.get_by_role("button", name="Release")).to_be_in_viewport()
    page.reload()
    expect(page.locator("#pane h1")).to_contain_text("Your invoice 3 ")
    expect(page.locator('.mw-line-open[aria-current="true"]')).to_be_in_viewport()
    page.get_by_role("link", name="Open as a page").click()
    page.wait_for_url("**/console/messages/*?tenant=*")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Your invoice 3 ")
    page.goto(shared)
    expect(page.locator("#pane h1")).to_contain_text("Your invoice 3 ")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#pane")).to_be_hidden()
    window.look()


@pytest.mark.slow
def test_actions_of_the_open_message_stay_beside_the_list(
    deployment: Deployment, windows: Callable[..., Window]
) -> None:
    mark = f"w{uuid4().hex[:12]}"
    fraud = hold(deployment, mark, 1, verdict=Verdict.FRAUD)
    spam = hold(deployment, mark, 2)
    window = windows()
    page = window.open(path_of(mark))
    pane = page.locator("#pane")
    page.locator(".mw-line-open").first.click()
    pane.get_by_role("button", name="Delete").click()
    expect(pane.get_by_role("heading", name="Delete this message?")).to_be_visible()
    assert state_of(deployment, spam) == {"ann@north.example": "held"}
    barriers = kept(window, "messages-pane-confirm")
    pane.get_by_role("link", name="Cancel").click()
    expect(pane.get_by_role("heading", level=1)).to_contain_text("Your invoice 2")
    pane.get_by_role("button", name="Delete").click()
    pane.get_by_role("button", name="Delete").click()
    expect(pane.get_by_text("The message was deleted.")).to_be_visible()
    assert state_of(deployment, spam) == {"ann@north.example": "deleted"}
    page.keyboard.press("j")
    expect(pane.get_by_role("heading", level=1)).to_contain_text("Your invoice 1")
    pane.get_by_role("button", name="Release").click()
    pane.get_by_role("button", name="Release anyway").click()
    expect(pane.get_by_text("this page reloads by itself")).to_be_visible()
    assert state_of(deployment, fraud) == {"ann@north.example": "releasing"}
    finish_releases(deployment)
    expect(pane.get_by_text("Released to ann@north.example")).to_be_visible()
    expect(page.locator(".mw-line")).to_have_count(2)
    pane.get_by_role("button", name="Spam").click()
    expect(pane.get_by_text("Thank you. The report is stored.")).to_be_visible()
    pane.get_by_role("button", name="Undo the report").click()
    expect(pane.get_by_text("The report was undone.")).to_be_visible()
    pane.get_by_role("checkbox", name="Sender billing@").check()
    pane.get_by_role("button", name="Block").click()
    expect(pane.get_by_role("heading", name="Block values of this message")).to_be_visible()
    barriers += kept(window, "messages-pane-block")
    expect(page.locator(".mw-line")).to_have_count(2)
    assert barriers == []


@pytest.mark.slow
def test_the_list_follows_an_action_on_the_open_message(deployment: Deployment, windows: Callable[..., Window]) -> None:
    mark = f"w{uuid4().hex[:12]}"
    for number in range(3):
        hold(deployment, mark, number)
    page = windows().open(f"{path_of(mark)}+is:held")
    pane, rows = page.locator("#pane"), page.locator(".mw-line")
    page.locator("input[name=row]").nth(2).check()
    page.locator(".mw-line-open").nth(0).click()
    expect(pane.get_by_role("heading", level=1)).to_contain_text("Your invoice 2")
    pane.get_by_role("button", name="Delete").click()
    pane.get_by_role("button", name="Delete").click()
    expect(pane.get_by_text("The message was deleted.")).to_be_visible()
    expect(rows).to_have_count(2)
    expect(page.get_by_text("1 selected")).to_be_visible()
    expect(page.locator("input[name=row]").nth(1)).to_be_checked()
    page.keyboard.press("j")
    expect(pane.get_by_role("heading", level=1)).to_contain_text("Your invoice 1")
    page.get_by_text("How to search").click()
    page.get_by_label("Shortcuts of a single key").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("x")
    page.reload()
    page.locator(".mw-line-open").first.focus()
    page.keyboard.press("x")
    assert page.locator("input[name=row]:checked").count() == 0
    page.goto(page.url.partition("~")[0])  # the message without its tenant
    expect(page.locator('.mw-line-open[aria-current="true"]')).to_contain_text("Your invoice 1")


@pytest.mark.slow
def test_the_list_works_without_scripts(deployment: Deployment, chromium: Browser, listed: str) -> None:
    context = chromium.new_context(java_script_enabled=False, ignore_https_errors=True)
    url = deployment.product.url.replace("127.0.0.1", "localhost")
    cookie = sign_in(deployment, "analyst", ["acme"]).cookie
    context.add_cookies([{"name": COOKIE, "value": cookie, "url": url, "secure": True}])
    page = context.new_page()
    page.goto(url + path_of(listed))
    page.locator("input[name=row]").nth(1).check()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", name="Delete 1 message?")).to_be_visible()
    page.get_by_role("link", name="Cancel").click()
    page.locator(".mw-line-open").nth(1).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Your invoice 22")
    assert "/console/messages/" in page.url
    context.close()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_campaign_is_one_row_with_its_actions(
    deployment: Deployment, windows: Callable[..., Window], width: int, dark: bool
) -> None:
    mark, ids = f"w{uuid4().hex[:12]}", CampaignIds(uuid4(), uuid4())
    people = [(f"user{number % 9}@company.example",) for number in range(12)]
    uids = [hold(deployment, mark, number, campaign=ids, recipients=people[number]) for number in range(12)]
    alone = hold(deployment, mark, 99)
    window = windows(width=width, dark=dark)
    page = window.open(path_of(mark))
    assert page.locator(".mw-messages > .mw-entry:visible").count() == 2
    heights = page.evaluate(VISIBLE)
    assert width < 1000 or all(44 <= height <= 56 for height in heights), heights
    barriers = kept(window, "messages-campaign")
    page.locator(".mw-group > summary").click()
    assert page.locator(".mw-group .mw-line:visible").count() == 12
    barriers += kept(window, "messages-campaign-open")
    page.get_by_label("Select 12 similar messages").check()
    expect(page.get_by_text("12 selected")).to_be_visible()
    page.locator(".mw-group input[name=row]").first.uncheck()
    expect(page.get_by_text("11 selected")).to_be_visible()
    page.locator(".mw-selection").get_by_role("button", name="Delete").click()
    page.get_by_role("heading", name="Delete 11 messages?").wait_for()
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("link", name="Block the campaign").click()
    page.get_by_label("Domain and its subdomains").check()
    page.get_by_role("button", name="Show the impact").click()
    button = page.get_by_role("button", name="Block and delete the 12 held messages of this campaign")
    button.wait_for()
    barriers += kept(window, "messages-campaign-block")
    button.click()
    expect(page.get_by_text("the held messages of the campaign were deleted")).to_be_visible()
    assert "/console/messages?q=subject" in page.url
    assert {state for uid in uids for state in state_of(deployment, uid).values()} == {"deleted"}
    assert set(state_of(deployment, alone).values()) == {"held"}
    assert barriers == []
