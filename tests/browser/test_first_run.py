"""The first run in the browser: a key that waits for its first request, and a tenant up to its first message."""

import time
from collections.abc import Callable
from typing import Literal

import pytest
from playwright.sync_api import expect

from mailwarden.access.sessions import COOKIE
from tests.acceptance.client import STATUS
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.screens import LOOKS
from tests.browser.test_screens import kept
from tests.browser.window import Window


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_new_key_shows_its_first_request_by_itself(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    page = window.open("/console/keys/new")
    page.get_by_label("Name").fill("gateway")
    page.get_by_label("status:read").check()
    page.get_by_label("messages:submit").check()
    page.get_by_label("Bound to").select_option(label="acme")
    barriers = kept(window, "key-form")
    page.get_by_role("button", name="Create the key").click()
    expect(page.get_by_text("waiting for the first request")).to_be_visible()
    barriers += kept(window, "key-waiting")
    key = page.locator("#key-text").inner_text()
    headers = {"Authorization": f"apikey {key}"}
    assert deployment.client().using(None).call("POST", STATUS, headers=headers).status == 200
    expect(page.get_by_text("First request:")).to_be_visible()
    expect(page.locator("#key-text")).to_have_text(key)
    barriers += kept(window, "key-used")
    page.get_by_role("link", name="I have stored it").click()
    expect(page.get_by_text("First request:")).to_be_visible()
    barriers += kept(window, "key-page")
    assert barriers == []


def test_a_tenant_is_onboarded_within_ten_clicks(deployment: Deployment, open_window: Callable[..., Window]) -> None:
    window, clicks, _began = open_window(), 0, time.monotonic()
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    page = window.open("/console/start")  # the dashboard leads there until every step is done

    def click(role: Literal["button", "link"], name: str) -> None:
        nonlocal clicks
        clicks += 1
        page.get_by_role(role, name=name, exact=True).click()

    click("link", "Create a tenant")
    page.get_by_label("Name").fill("onboarded")
    page.get_by_label("Recipient domains").fill("onboarded.example")
    click("button", "Create the tenant")
    expect(page.get_by_text("To postmaster@onboarded.example")).to_be_visible()
    window.keep("start-onboarded")
    click("button", "Send the sample Harmless message")
    expect(page.get_by_role("heading", name="Mailwarden sample: harmless")).to_be_visible()
    assert clicks <= 10
