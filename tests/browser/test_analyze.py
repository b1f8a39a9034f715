"""A message is analyzed in the browser, and its page and its preview are looked at: every width, light and dark."""

from collections.abc import Callable

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.acceptance.test_console_message import phishing
from tests.browser.hostile import hostile_strings, some_hostile_strings
from tests.browser.screens import FULL, LOOKS
from tests.browser.window import Window

MESSAGE = phishing()


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_message_is_analyzed_shown_and_previewed(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    page = window.open("/console/analyze")
    page.set_input_files("#message", {"name": "m.eml", "mimeType": "message/rfc822", "buffer": MESSAGE})
    page.wait_for_function("document.querySelector('#sender').value === 'service@pass.example'")
    assert page.input_value("#recipients") == "bob@company.example"
    page.click("button:has-text('Safe preview')")
    page.frame_locator("iframe").get_by_text("hxxp://203[.]0[.]113[.]9/login").wait_for()
    barriers = looked_at(window, "analyze")

    page.fill("#address", "192.0.2.10")
    page.click("button:has-text('Analyze')")
    page.wait_for_selector(".mw-done")
    assert not page.is_visible(".mw-working")
    barriers += looked_at(window, "analysis")

    page.click("text=The page of this message")
    page.wait_for_selector("#preview-message")
    page.set_input_files("#preview-message", {"name": "m.eml", "mimeType": "message/rfc822", "buffer": MESSAGE})
    page.click("button:has-text('Show it')")
    page.frame_locator("iframe").get_by_text("hxxp://203[.]0[.]113[.]9/login").wait_for()
    barriers += looked_at(window, "message")
    page.click("summary:has-text('Export')")
    page.click("[data-copy=as-curl]")
    assert "/v1/messages/" in page.evaluate("navigator.clipboard.readText()")
    page.get_by_role("checkbox", name="Sender service@pass.example").check()
    page.get_by_role("button", name="Block", exact=True).click()
    page.get_by_role("button", name="Block: add 1 entry").wait_for()
    assert barriers == []


def looked_at(window: Window, name: str) -> list[str]:
    """Keep a picture and return what stands in somebody's way."""
    if window.page.locator("iframe").count():
        window.page.locator("iframe").scroll_into_view_if_needed()  # what was never seen is not painted
        window.page.wait_for_timeout(300)
    window.look()
    window.keep(name)
    wide = [f"{name} is wider than a window of {window.width} pixels"] if window.overflows() else []
    return window.barriers() + wide


@pytest.mark.slow
def test_a_message_is_analyzed_by_keyboard_alone(deployment: Deployment, open_window: Callable[..., Window]) -> None:
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "analyst").cookie)
    page = window.open("/console/analyze")
    page.focus("#text")
    page.keyboard.insert_text("From: alice@pass.example\nTo: bob@company.example\nSubject: keys\n\nhello\n")
    for _ in range(7):  # sender, recipients, address, HELO, tenant, do not store, Analyze
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Analyze"
    page.keyboard.press("Enter")
    page.wait_for_selector(".mw-done")
    assert page.locator("h2.mw-sentence").inner_text().endswith(".")


@pytest.mark.slow
def test_hostile_strings_come_to_nothing_on_an_analysis(
    deployment: Deployment, open_window: Callable[..., Window]
) -> None:
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "analyst").cookie)
    strings = hostile_strings() if FULL else some_hostile_strings()
    for start in range(0, len(strings), 50):
        batch = strings[start : start + 50]
        window.open("/console/analyze")
        window.page.set_input_files(
            "#message", {"name": "m.eml", "mimeType": "message/rfc822", "buffer": hostile_message(batch)}
        )
        window.page.click("button:has-text('Safe preview')")
        window.page.frame_locator("iframe").get_by_text("the end of it").wait_for()
        window.page.click("button:has-text('Analyze')")
        window.page.wait_for_selector(".mw-done")
        window.look()


def hostile_message(strings: list[str]) -> bytes:
    """Make a message that has each string as a link's text, and the first ones in its headers and a file's name."""
    name = strings[0].replace('"', "'").replace("\\", "/")
    links = "".join(f'<a href="https://x.example/{number}">{text}</a>' for number, text in enumerate(strings))
    return (
        f'From: "{name}" <a@pass.example>\r\nTo: bob@company.example\r\nSubject: {" ".join(strings)[:900]}\r\n'
        f"Received: from {strings[1]} by {strings[2]}; {strings[3]}\r\n"
        "Content-Type: multipart/mixed; boundary=zz\r\n\r\n--zz\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
        f"<p>the end of it</p><p>{links}</p>\r\n--zz\r\nContent-Type: application/pdf\r\n"
        f'Content-Disposition: attachment; filename="{name}"\r\n\r\nx\r\n--zz--\r\n'
    ).encode()
