"""Answers that the browser gets when the test wants it to, and where the controls of a page are before and after."""

import re
from collections.abc import Callable
from typing import Final

from playwright.sync_api import Page, Route, expect

from tests.browser.window import PATIENCE

STEP: Final = 20  # milliseconds
# Remembers every visible control of the page with its place in the document.
REMEMBER: Final = """() => {
  const CONTROLS = "main :is(a, button, input, select, textarea, summary)";
  const place = (each) => {
    const box = each.getBoundingClientRect();
    return [box.left + scrollX, box.top + scrollY, box.width, box.height].map(Math.round).join(" ");
  };
  const seen = (each) => each.checkVisibility() && each.getBoundingClientRect().width > 1;
  window.controls = [...document.querySelectorAll(CONTROLS)].filter(seen).map((each) => [each, place(each)]);
  // A control that was replaced counts as the same one if it has the same id.
  window.moved = () => window.controls.flatMap(([each, before]) => {
    const now = each.isConnected ? each : each.id && document.getElementById(each.id);
    if (!now) return ["gone: " + each.outerHTML.slice(0, 120)];
    return place(now) === before ? [] : [before + " -> " + place(now) + ": " + each.outerHTML.slice(0, 120)];
  });
  return window.controls.length;
}"""


class LateAnswers:
    """Holds the requests for some addresses back until `arrive` lets them go."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self._waiting: list[Route] = []
        page.route(pattern, self._wait)

    def _wait(self, route: Route) -> None:
        self._waiting.append(route)

    def arrive(self) -> None:
        """Wait for the first request, let all of them go, and wait until the page shows the answers."""
        for route in self._requests():
            route.continue_()
        expect(self._page.locator(".htmx-request")).to_have_count(0)

    def fail(self) -> None:
        """Wait for the first request, and answer all of them with an error."""
        for route in self._requests():
            route.fulfill(status=500, content_type="text/html", body="<p>Internal error</p>" * 5)

    def _requests(self) -> list[Route]:
        wait_in(self._page, lambda: bool(self._waiting))
        return self._waiting


def wait_in(page: Page, condition: Callable[[], bool]) -> None:
    """Wait until something is true while the page goes on, as long as a busy machine may take."""
    for _ in range(PATIENCE // STEP):
        if condition():
            return
        page.wait_for_timeout(STEP)
    raise AssertionError(f"{page.url}: nothing came in {PATIENCE} ms")


def change_answers(page: Page, pattern: str | re.Pattern[str], change: Callable[[str], str]) -> list[str]:
    """Change the answers to the requests for some addresses, and return the list that counts them."""
    answered: list[str] = []

    def answer(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, status=200, body=change(response.text()))
        answered.append(route.request.url)

    page.route(pattern, answer)
    return answered


def remember_controls(page: Page) -> None:
    """Note where the controls of the page are; there must be some."""
    assert page.evaluate(REMEMBER) > 0


def moved_controls(page: Page) -> list[str]:
    """Return the noted controls that are somewhere else now, or gone."""
    return [str(each) for each in page.evaluate("window.moved()")]
