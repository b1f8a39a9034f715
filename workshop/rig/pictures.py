"""`make pictures`: the pictures of the docs, taken in Debian's Chromium from a demo that it starts and removes.

Full colour and twice the pixels, as a screen with a high resolution shows them. Example of one picture, from a demo
that runs already: python -m workshop.rig.pictures --url https://localhost:9081 --only verdict
"""

import argparse
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct
from playwright.sync_api import Browser, Page, expect, sync_playwright

from workshop.rig.demo import Demo
from workshop.rig.engines import start_engines

CHROMIUM = "/usr/bin/chromium"
TARGET = Path("docs/pictures")
SCALE = 2
PATIENCE = 60_000  # milliseconds


class Scene(Struct, frozen=True):
    """A picture: the user who looks, the page, and what that user clicks there."""

    name: str
    path: str
    clicks: tuple[str, ...] = ()  # selectors of Playwright, in order
    user: str = "Analyst"
    width: int = 1280
    height: int = 800
    dark: bool = False
    part: str = ""  # a selector: this part alone


HELD = "/console/messages?q=is:held"
LURE = "a:has-text('Gehaltsanpassung 2027')"
PAGE = (LURE, "text=Open as a page")
SCENES = (
    Scene("queue", HELD, (LURE,), width=1440, height=860),
    Scene("verdict", HELD, PAGE, part="main section >> nth=0"),
    Scene("dashboard", "/console/?range=7d", height=1000),
    Scene("messages", "/console/messages?q=-verdict:clean", ("summary:has-text('similar')",)),
    Scene(
        "block",
        HELD,
        (*PAGE, "nav >> button:has-text('Block')", "text=Domain and its subdomains", "text=Show the impact"),
        height=1000,
    ),
    Scene("tune", HELD, (*PAGE, "nav >> a:has-text('Tune')"), user="administrator", height=1000),
    Scene("quarantine", "/console/quarantine", dark=True),
    Scene("report", "/console/reports", user="tom.ashby", height=1000),
    Scene("health", "/console/health", user="administrator"),
    Scene("message-phone", HELD, (LURE,), width=390, height=844, dark=True),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="address of a demo that runs (default: start one)")
    parser.add_argument("--only", nargs="+", choices=[scene.name for scene in SCENES], help="these pictures")
    parser.add_argument("--target", type=Path, default=TARGET, help="folder to write to (default: %(default)s)")
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    scenes = [scene for scene in SCENES if not options.only or scene.name in options.only]
    with running_demo(options.url) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for scene in scenes:
            file = options.target / f"{scene.name}.png"
            take(browser, url, scene, file)
            print(f"{file}  {file.stat().st_size // 1000} KB", flush=True)
        browser.close()
    return 0


@contextmanager
def running_demo(url: str | None) -> Iterator[str]:
    """Return the address of the given demo, or of one that is started here and removed at the end."""
    if url:
        yield url.rstrip("/")
        return
    with tempfile.TemporaryDirectory() as name, start_engines(progress=print) as engines:
        demo = Demo(Path(name), engines)
        demo.start()
        try:
            yield demo.address
        finally:
            demo.stop()


def take(browser: Browser, url: str, scene: Scene, file: Path) -> None:
    """Log in as the user of the scene, open its page, click, and keep the picture."""
    context = browser.new_context(
        viewport={"width": scene.width, "height": scene.height},
        device_scale_factor=SCALE,
        color_scheme="dark" if scene.dark else "light",
        locale="en-GB",
        timezone_id="UTC",
        ignore_https_errors=True,
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    page.goto(f"{url}/console/login")
    page.locator(".mw-demo-user").filter(has_text=scene.user).first.click()
    page.wait_for_url(re.compile(r"/console/(?!login)"))
    page.goto(url + scene.path)
    settle(page)
    for selector in scene.clicks:
        page.locator(selector).first.click()
        settle(page)
    page.mouse.move(0, 0)
    seen = page.locator(scene.part) if scene.part else page
    seen.screenshot(path=file, animations="disabled")
    context.close()


def settle(page: Page) -> None:
    """Wait until the page and the parts that it loads are there."""
    page.wait_for_load_state("networkidle")
    expect(page.locator(".htmx-request")).to_have_count(0, timeout=PATIENCE)


if __name__ == "__main__":
    sys.exit(main())
