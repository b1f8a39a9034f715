"""Held messages are chosen, released, shown and deleted in the browser, by mouse and by keyboard."""

from collections.abc import Callable
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from mailwarden.access.sessions import COOKIE
from mailwarden.model.outcome import Verdict
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.acceptance.held import finish_releases, keep, state_of
from tests.browser.screens import LOOKS
from tests.browser.test_screens import kept
from tests.browser.window import Window
from workshop.rig.samples import plain_message


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_several_are_chosen_asked_about_and_deleted(
    deployment: Deployment, held: dict[str, str], open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    look = f"{'dark' if dark else 'light'} {width}"
    uids = [keep(deployment, subject=f"Prices of {look}, number {number}") for number in range(3)]
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    page = window.open(f"/console/quarantine?subject={quote(look)}")
    if width > 1000:
        page.get_by_label("Choose all of this page").check()
        assert page.locator("input[name=uid]:checked").count() == 3
    for number in range(2 if width > 1000 else 3):
        page.get_by_label(f"number {number}").set_checked(number == 2 or width < 1000)
    page.get_by_role("button", name="Delete the chosen").click()
    page.get_by_role("heading", name="?").wait_for()
    barriers = kept(window, "quarantine-chosen")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("heading", name="deleted").wait_for()
    barriers += kept(window, "quarantine-done")
    deleted = [uid for uid in uids if set(state_of(deployment, uid).values()) == {"deleted"}]
    assert deleted == (uids[2:] if width > 1000 else uids)
    page = window.open("/console/quarantine?verdict=malware")
    page.get_by_label("Choose “Invoice").check()
    page.get_by_role("button", name="Release the chosen").click()
    page.get_by_role("alert").get_by_text("malware is never delivered").wait_for()
    barriers += kept(window, "quarantine-chosen-malware")
    assert barriers == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_message_is_shown_released_to_one_and_the_page_follows(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    ann, bob = "ann@company.example", "bob@company.example"
    uid = keep(deployment, subject="Minutes", raw=plain_message(), recipients=(ann, bob))
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    page = window.open(f"/console/quarantine/{uid}")
    page.get_by_role("button", name="Show it").click()
    page.frame_locator("iframe").get_by_text("shared drive").wait_for()
    barriers = kept(window, "held-preview")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("heading", name="Delete this message?").wait_for()
    barriers += kept(window, "held-delete")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("heading", name="Release options").wait_for()
    page.get_by_label(bob).uncheck()
    expect(page.get_by_label(bob)).not_to_be_checked()
    page.get_by_role("button", name="Release").focus()
    page.keyboard.press("Enter")
    page.get_by_text("this page reloads by itself").wait_for()
    assert state_of(deployment, uid) == {ann: "releasing", bob: "held"}
    barriers += kept(window, "held-asked")
    finish_releases(deployment)
    page.get_by_role("cell", name="released").or_(page.get_by_text("released", exact=True)).first.wait_for()
    assert barriers == []


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_dangerous_message_is_released_with_its_evidence_in_view(
    deployment: Deployment, held: dict[str, str], open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    uid = keep(deployment, subject="Your parcel", verdict=Verdict.PHISHING, sentence="It is phishing: a link misleads.")
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    page = window.open(f"/console/quarantine/{uid}")
    page.mouse.wheel(0, 600)
    page.get_by_role("button", name="Release", exact=True).click(timeout=5_000)
    page.get_by_role("heading", name="It is phishing").wait_for()
    barriers = kept(window, "held-confirm")
    assert set(state_of(deployment, uid).values()) == {"held"}
    page.get_by_role("button", name="Release anyway").click()
    page.get_by_text("this page reloads by itself").wait_for()
    finish_releases(deployment)
    window.open("/console/quarantine?verdict=phishing&subject=parcel+is+waiting")
    page.get_by_label("Choose “Your parcel is waiting").check()
    page.get_by_role("button", name="Release the chosen").click()
    page.get_by_text("I have read the evidence").wait_for()
    barriers += kept(window, "quarantine-chosen-dangerous")
    assert barriers == []
