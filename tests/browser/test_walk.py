"""From the first run to a blocked message, by mouse and by keyboard alone, within two minutes."""

import itertools
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pyotp
import pytest
from playwright.sync_api import Browser, Page

from rig.engines import Engines
from rig.product import Product, install_product
from rig.samples import plain_message
from tests.acceptance.client import ENVELOPE, Client, wait_until
from tests.acceptance.list_client import ListClient
from tests.browser.conftest import SCREENSHOTS
from tests.browser.hands import Hands, Keyboard, Mouse
from tests.browser.visitor import Visitor

SECONDS = 120.0
PASSWORD = "four unrelated words here"
_numbers = itertools.count(1)


@pytest.fixture
def fresh(engines: Engines, database_template: str, tmp_path: Path) -> Iterator[Product]:
    """Return a product that was installed just now, which nobody has opened yet."""
    database = engines.postgresql.create_database(f"walk_{next(_numbers)}", template=database_template)
    product = install_product(tmp_path, engines, database)
    with product:
        product.start()
        yield product


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Mouse, Keyboard])
def test_first_run_to_first_key_to_first_entry_to_a_blocked_message(
    fresh: Product, engines: Engines, chromium: Browser, kind: type[Mouse | Keyboard]
) -> None:
    window = Visitor(chromium, fresh.url, SCREENSHOTS, width=1280, dark=False)
    hands = kind(window.page)
    message = engines.dns.sign(plain_message(), "pass.example")
    client = Client(fresh.url, fresh.ca, fresh.token)
    assert client.submit(message, {"borderMtaData": ENVELOPE}).result["decision"] == "deliver"

    began = time.monotonic()
    set_up(hands, fresh.setup_link.replace("127.0.0.1", "localhost"))
    key = make_key(hands)
    add_entry(hands, "pass.example")
    assert ListClient(client.using(None), key).names("sender-block") == ["pass.example"]
    assert wait_until(
        lambda: client.submit(message, {"borderMtaData": ENVELOPE}).result["verdict"] == "blocked", pause=0.2
    )
    find_blocked(hands, window.page)
    took = time.monotonic() - began
    window.close()
    assert window.problems == []
    assert took < SECONDS
    print(f"walk by {kind.__name__.lower()}: {took:.0f} s")  # noqa: T201 - shown by pytest -rP


def set_up(hands: Hands, link: str) -> None:
    hands.page.goto(link)
    hands.type("Name", "alice")
    hands.type("Password", PASSWORD)
    hands.type("Password again", PASSWORD)
    hands.press("Continue")
    secret = hands.page.locator("#secret").text_content() or ""
    hands.type("Code", pyotp.TOTP(re.sub(r"\s", "", secret)).now())
    hands.press("Finish")
    hands.page.wait_for_url(re.compile(r"/console/(account/codes|$)"))


def make_key(hands: Hands) -> str:
    hands.page.goto(re.sub(r"/console/.*", "/console/", hands.page.url))
    hands.press("API keys", "link")
    hands.press("Create a key", "link")
    hands.type("Name", "soar")
    hands.press("Create the key")
    key = hands.page.locator("#key-text").text_content() or ""
    assert key.strip().startswith("mwk_")
    return key.strip()


def add_entry(hands: Hands, entry: str) -> None:
    hands.press("Lists", "link")
    hands.press("Blocked senders", "link")
    hands.press("Add", "link")
    hands.type("Entries", entry)
    hands.press("Preview")
    hands.page.get_by_text("Preview for").first.wait_for()
    hands.press("Add 1 entry")
    hands.page.get_by_text(entry, exact=True).first.wait_for()


def find_blocked(hands: Hands, page: Page) -> None:
    hands.press("Messages", "link")
    hands.type("Search", "verdict:blocked")
    hands.page.keyboard.press("Enter")
    page.get_by_role("cell", name="blocked").or_(page.get_by_text("blocked", exact=True)).first.wait_for()
    hands.press("Minutes of the meeting", "link")
    page.get_by_text("sender-block").first.wait_for()
