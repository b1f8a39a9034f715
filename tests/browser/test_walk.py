"""From the first run to a blocked message, by mouse and by keyboard alone, within two minutes."""

import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyotp
import pytest
from playwright.sync_api import Browser, Page

from tests.acceptance.client import ENVELOPE, Client
from tests.acceptance.deployment import FEW_WORKERS
from tests.acceptance.list_client import ListClient
from tests.browser.conftest import SCREENSHOTS
from tests.browser.page_input import Keyboard, Mouse, PageInput
from tests.browser.window import Window
from tests.waiting import wait_until
from workshop.rig.engines import Engines
from workshop.rig.product import Product, install_product
from workshop.rig.samples import plain_message

SECONDS = 120.0
PASSWORD = "four unrelated words here"
_numbers = itertools.count(1)


@pytest.fixture
def fresh(engines: Engines, database_template: str, tmp_path: Path) -> Iterator[Product]:
    """Return a product that was installed just now, which nobody has opened yet."""
    database = engines.postgresql.create_database(f"walk_{next(_numbers)}", template=database_template)
    product = install_product(tmp_path, engines, database, guards=(FEW_WORKERS,), one_process=True)
    with product:
        product.start()
        yield product


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param(Mouse, marks=pytest.mark.long), Keyboard])
def test_first_run_to_first_key_to_first_entry_to_a_blocked_message(
    fresh: Product, engines: Engines, chromium: Browser, kind: type[Mouse | Keyboard]
) -> None:
    window = Window(chromium, fresh.url, SCREENSHOTS, width=1280, dark=False)
    inputs = kind(window.page)
    message = engines.dns.sign(plain_message(), "pass.example")
    client = Client(fresh.url, fresh.ca, fresh.token)
    assert client.submit(message, {"borderMtaData": ENVELOPE}).result["decision"] == "deliver"

    began = time.monotonic()
    set_up(inputs, fresh.setup_link.replace("127.0.0.1", "localhost"))
    key = make_key(inputs)
    add_entry(inputs, "pass.example")
    assert ListClient(client.using(None), key).names("sender-block") == ["pass.example"]
    assert wait_until(
        lambda: client.submit(message, {"borderMtaData": ENVELOPE}).result["verdict"] == "blocked", pause=0.2
    )
    find_blocked(inputs, window.page)
    took = time.monotonic() - began
    window.close()
    assert window.problems == []
    assert took < SECONDS
    print(f"walk by {kind.__name__.lower()}: {took:.0f} s")  # noqa: T201 - shown by pytest -rP


def set_up(inputs: PageInput, link: str) -> None:
    inputs.page.goto(link)
    inputs.type("Name", "alice")
    inputs.type("Password", PASSWORD)
    inputs.type("Password again", PASSWORD)
    inputs.press("Continue")
    secret = inputs.page.locator("#secret").text_content() or ""
    inputs.type("Code", pyotp.TOTP(re.sub(r"\s", "", secret)).now())
    inputs.press("Finish")
    inputs.page.wait_for_url(re.compile(r"/console/(account/codes|$)"))


def make_key(inputs: PageInput) -> str:
    inputs.page.goto(re.sub(r"/console/.*", "/console/", inputs.page.url))
    inputs.press("API keys", "link")
    inputs.press("Create a key", "link")
    inputs.type("Name", "soar")
    inputs.tick("lists:read")
    inputs.tick("lists:write")
    inputs.choose("Bound to", "Every tenant and the global scope")
    inputs.press("Create the key")
    key = inputs.page.locator("#key-text").text_content() or ""
    assert key.strip().startswith("mwk_")
    return key.strip()


def add_entry(inputs: PageInput, entry: str) -> None:
    inputs.press("Lists", "link")
    inputs.press("Blocked senders", "link")
    inputs.press("Add", "link")
    inputs.type("Entries", entry)
    inputs.press("Preview")
    inputs.page.get_by_text("Preview for").first.wait_for()
    inputs.press("Add 1 entry")
    inputs.page.get_by_text(entry, exact=True).first.wait_for()


def find_blocked(inputs: PageInput, page: Page) -> None:
    inputs.press("Messages", "link")
    inputs.type("Search", "verdict:blocked")
    inputs.page.keyboard.press("Enter")
    page.locator(".mw-line").get_by_text("blocked", exact=True).first.wait_for()
    inputs.press("Minutes of the meeting", "link")
    page.get_by_text("sender-block").first.wait_for()
