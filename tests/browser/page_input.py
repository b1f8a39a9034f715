"""Two ways to use a page: with a mouse, and with the keyboard alone."""

from typing import Protocol

from playwright.sync_api import Locator, Page

MAX_TABS = 150


class PageInput(Protocol):
    page: Page

    def type(self, label: str, text: str) -> None:
        """Fill in the field of that label."""

    def tick(self, label: str) -> None:
        """Tick the box whose label begins so."""

    def choose(self, label: str, option: str) -> None:
        """Choose the option of that menu."""

    def press(self, name: str, kind: str = "button") -> None:
        """Press the button, or follow the link, of that name."""


class Mouse:
    def __init__(self, page: Page) -> None:
        self.page = page

    def type(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).fill(text)

    def tick(self, label: str) -> None:
        self.page.get_by_role("checkbox", name=label).check()

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_label(label, exact=True).select_option(label=option)

    def press(self, name: str, kind: str = "button") -> None:
        found(self.page, name, kind).click()


class Keyboard:
    """Goes from one thing to the next with Tab, and touches nothing that it does not reach so."""

    def __init__(self, page: Page) -> None:
        self.page = page

    def type(self, label: str, text: str) -> None:
        self._reach(self.page.get_by_label(label, exact=True))
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(text)

    def tick(self, label: str) -> None:
        self._reach(self.page.get_by_role("checkbox", name=label))
        self.page.keyboard.press("Space")

    def choose(self, label: str, option: str) -> None:
        self._reach(self.page.get_by_label(label, exact=True))
        self.page.keyboard.type(option)

    def press(self, name: str, kind: str = "button") -> None:
        self._reach(found(self.page, name, kind))
        self.page.keyboard.press("Enter")

    def _reach(self, wanted: Locator) -> None:
        wanted.wait_for()
        for _ in range(MAX_TABS):
            if wanted.evaluate("element => element === document.activeElement"):
                assert wanted.evaluate("element => element.matches(':focus-visible')"), "the focus cannot be seen"
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{wanted} is not to be reached by keyboard at {self.page.url}")


def found(page: Page, name: str, kind: str) -> Locator:
    return page.get_by_role("link" if kind == "link" else "button", name=name, exact=True).first
