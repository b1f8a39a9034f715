"""One browser window: where it goes, what it sees, and everything that it reports against us."""

from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Dialog, Page, expect

from tests.browser.screens import FULL

HEIGHT = 900
PATIENCE = 60_000  # milliseconds, as long as a busy machine may take
LAYOUT = Path(__file__).with_name("layout.js").read_text()
# Counts what the policy stopped in this page, and every script that a message managed to run.
WATCH = """
window.stopped = [];
window.hit = () => { window.stopped.push("a script of a message ran"); };
document.addEventListener("securitypolicyviolation", (event) => {
  window.stopped.push(event.effectiveDirective + " " + event.blockedURI);
});
"""


class Window:
    """A window with cookies of its own."""

    def __init__(
        self, browser: Browser, url: str, screenshots: Path, *, width: int, dark: bool, zone: str = "UTC"
    ) -> None:
        self.url = url.replace("127.0.0.1", "localhost")
        self.width = width
        self.scheme = "dark" if dark else "light"
        self.problems: list[str] = []
        self._screenshots = screenshots
        self._context = browser.new_context(
            viewport={"width": width, "height": HEIGHT},
            color_scheme="dark" if dark else "light",
            timezone_id=zone,
            ignore_https_errors=True,
            permissions=["clipboard-read", "clipboard-write"],
        )
        self._context.add_init_script(WATCH)
        self._context.set_default_timeout(PATIENCE)
        self.page: Page = self._context.new_page()
        self.page.on("dialog", self._refuse)
        self.page.on("pageerror", lambda error: self.problems.append(f"{self.page.url}: {error}"))

    def open(self, path: str) -> Page:
        """Go to a path of the console, wait for the parts it loads, and note what went against the policy there."""
        self.page.goto(self.url + path)
        expect(self.page.locator(".htmx-request")).to_have_count(0, timeout=PATIENCE)
        self.look()
        return self.page

    def look(self) -> None:
        """Note what the policy stopped in the page that is open."""
        stopped = self.page.evaluate("window.stopped.splice(0)")
        self.problems += [f"{self.page.url}: {each}" for each in stopped]

    def resize(self, width: int) -> None:
        self.width = width
        self.page.set_viewport_size({"width": width, "height": HEIGHT})

    def carry(self, name: str, value: str) -> None:
        """Put a cookie in the window, as if its owner had signed in here."""
        self._context.add_cookies([{"name": name, "value": value, "url": self.url, "secure": True}])

    def keep(self, name: str) -> None:
        """Look at the page that is open; a full run keeps a picture of it."""
        self.look()
        if FULL:
            self._screenshots.mkdir(parents=True, exist_ok=True)
            path = self._screenshots / f"{name}-{self.width}-{self.scheme}.png"
            self.page.screenshot(path=path, full_page=True)

    def barriers(self) -> list[str]:
        """Return what axe-core finds serious or critical in the page that is open."""
        violations = Axe().run(self.page).response["violations"]
        return [
            f"{self.page.url}: {each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}"
            for each in violations
            if each["impact"] in ("serious", "critical")
        ]

    def overflows(self) -> bool:
        """Tell whether the page is wider than the window."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))

    def misplaced(self) -> list[str]:
        """Return text over text, cut tables and pop-ups beyond the window in the page that is open."""
        return [str(problem) for problem in self.page.evaluate(LAYOUT)]

    def widest(self) -> list[str]:
        """Return the elements that reach beyond the window, the innermost ones only."""
        found = self.page.evaluate(
            """() => {
              const reach = (each) => each.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
              const scrolls = (each) => each.closest(".table-responsive, pre");
              return [...document.querySelectorAll("main *")]
                .filter((each) => reach(each) && !scrolls(each) && ![...each.children].some(reach))
                .map((each) => each.outerHTML.slice(0, 160));
            }"""
        )
        return [str(each) for each in found]

    def close(self) -> None:
        self.look()
        self._context.close()

    def _refuse(self, dialog: Dialog) -> None:
        message = dialog.message
        if "hit" in message:
            self.problems.append(f"{self.page.url}: a script of a message asked {message!r}")
        dialog.accept()
