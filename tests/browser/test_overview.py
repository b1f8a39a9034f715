"""The dashboard and the messages in a browser: the chart is drawn, new messages appear."""

from collections.abc import Callable

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.client import ENVELOPE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.window import Window
from workshop.rig.samples import plain_message

# Tells how many points of the chart have the colour of what was delivered.
GREEN = """() => {
  const canvas = document.querySelector("[data-decisions] canvas");
  if (!canvas) return 0;
  const points = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  let found = 0;
  for (let at = 0; at < points.length; at += 4)
    if (points[at] === 47 && points[at + 1] === 179 && points[at + 2] === 68) found += 1;
  return found > 50 ? found : 0;
}"""


@pytest.fixture
def window(deployment: Deployment, scanned: dict[str, str], open_window: Callable[..., Window]) -> Window:
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    return window


@pytest.mark.slow
def test_the_dashboard_draws_its_counts_in_both_themes(window: Window) -> None:
    page = window.open("/console/?range=1h")
    page.wait_for_function(GREEN)
    page.click("[data-theme-switch]")
    page.wait_for_function(GREEN)
    page.get_by_text("Show as a table").click()
    assert page.get_by_role("columnheader", name="quarantine").is_visible()
    window.look()


@pytest.mark.slow
def test_a_new_message_appears_without_a_reload(window: Window, deployment: Deployment) -> None:
    page = window.open("/console/messages?q=to:company.example")
    page.get_by_role("link", name="Follow live").click()
    page.wait_for_selector("#rows")
    page.evaluate("window.stayed = true")
    envelope = {**ENVELOPE, "envelopeRecipients": ["bob@company.example"]}
    ggrid = deployment.client().submit(plain_message(), {"borderMtaData": envelope}).result["ggrid"]
    page.wait_for_selector(f'.mw-new a[href^="/console/messages/{ggrid}"]')
    assert page.evaluate("window.stayed") is True
    window.look()
