"""A false positive is tuned from its message in a browser: by few clicks, with the impact in view, and undone."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.acceptance.test_console_weights import HELD_MESSAGE, RULE, decision_of, scanned
from tests.browser.window import Window
from tests.waiting import wait_until

MAX_CLICKS = 4


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_false_positive_is_tuned_and_undone(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    root, club = sign_in(deployment, "deployment-administrator"), deployment.tenants["club"]
    root.post(f"/console/tenants/{club}/weights", {"rule": RULE, "weight": "90"})
    assert wait_until(lambda: decision_of(deployment, "club") == "quarantine", pause=0.3)
    ggrid = scanned(deployment, HELD_MESSAGE)
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "tenant-administrator", ["club"]).cookie)
    page = window.open(f"/console/messages/{ggrid}")
    page.get_by_role("link", name="Tune").click()
    expect(page.get_by_text("of club would have been delivered instead of held")).to_be_visible()
    window.keep("tune")
    assert not window.barriers()
    assert not window.overflows()
    save = page.get_by_role("button", name="Save")
    save.click()
    expect(page.get_by_text("The weights were changed.")).to_be_visible()
    assert wait_until(lambda: decision_of(deployment, "club") == "deliver", pause=0.3)
    window.keep("tune-saved")
    page.get_by_role("button", name="Undo").first.click()
    expect(page.get_by_text("The change was undone.")).to_be_visible()
    assert wait_until(lambda: decision_of(deployment, "club") == "quarantine", pause=0.3)
    root.post(f"/console/tenants/{club}/weights/remove", {"rule": RULE})


@pytest.mark.slow
def test_another_rule_and_weight_take_four_clicks(deployment: Deployment, open_window: Callable[..., Window]) -> None:
    ggrid, clicks = scanned(deployment, HELD_MESSAGE), 0
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "tenant-administrator", ["club"]).cookie)
    page = window.open(f"/console/messages/{ggrid}")
    steps = (
        page.get_by_role("link", name="Tune"),
        page.get_by_role("link", name="Page that sends its reader on"),
        page.get_by_role("button", name="Show the impact"),
        page.get_by_role("button", name="Save 7 points"),
    )
    for step in steps:
        if step is steps[2]:
            page.get_by_label("Points for club").fill("7")
        step.click()
        clicks += 1
    expect(page.get_by_text("The weights were changed.")).to_be_visible()
    assert clicks <= MAX_CLICKS
    page.get_by_role("button", name="Undo").first.click()
    expect(page.get_by_text("The change was undone.")).to_be_visible()
