"""Event receivers in the browser: add a webhook, send a test event, rotate the secret, delete it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.screens import LOOKS
from tests.browser.test_screens import kept
from tests.browser.webhook_receiver import run_receiver
from tests.browser.window import Window


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_receiver_from_its_form_to_its_deletion(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    with run_receiver() as receiver:
        page = window.open("/console/events/new")
        page.get_by_label("Name").fill(f"soar {width}")
        page.get_by_label("Target").fill(receiver.url)
        page.get_by_label("Events of").select_option(label="Every tenant and the deployment")
        page.get_by_label("message.held").check()
        barriers = kept(window, "event-form")
        page.get_by_role("button", name="Add the receiver").click()
        secret = page.locator("#endpoint-secret").inner_text()
        barriers += kept(window, "event-secret")
        page.get_by_role("link", name="I have stored it").click()

        page.get_by_role("button", name="Send a test event").click()
        expect(page.get_by_text("The receiver accepted the test event.")).to_be_visible()
        assert receiver.verified(secret)["type"] == "endpoint.test"
        barriers += kept(window, "event-tested")

        page.get_by_role("link", name="Rotate the secret").click()
        page.get_by_role("button", name="Rotate the secret").click()
        expect(page.locator("#endpoint-secret")).not_to_have_text(secret)
        rotated = page.locator("#endpoint-secret").inner_text()
        page.get_by_role("link", name="I have stored it").click()
        receiver.status = 503
        page.get_by_role("button", name="Send a test event").click()
        expect(page.get_by_text("The receiver answered 503.").first).to_be_visible()
        assert receiver.verified(rotated)["type"] == "endpoint.test"
        barriers += kept(window, "event-test-failed")

        page.get_by_role("link", name="Delete").click()
        page.get_by_role("button", name="Delete the receiver").click()
        expect(page.get_by_text("The receiver was deleted.")).to_be_visible()
        assert barriers == []
