"""A message is reported in the browser, with its file, and taken back again; a rule is found and weighed."""

from collections.abc import Callable

import pytest

from mailwarden.access.sessions import COOKIE
from rig.samples import plain_message
from tests.acceptance.client import ENVELOPE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.screens import LOOKS
from tests.browser.test_screens import kept
from tests.browser.window import Window


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_message_is_reported_on_its_page_and_taken_back(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    raw = plain_message().replace(b"minutes@", f"reported-{width}@".encode(), 1)
    ggrid = str(deployment.client().submit(raw, {"borderMtaData": ENVELOPE}).result["ggrid"])
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    page = window.open(f"/console/messages/{ggrid}")
    page.set_input_files("#report-message", {"name": "m.eml", "mimeType": "message/rfc822", "buffer": raw + b"more"})
    page.get_by_role("button", name="Phishing").click()
    page.get_by_role("alert").get_by_text("These are not the bytes of that message").wait_for()
    barriers = kept(window, "message-mistake")
    page.set_input_files("#report-message", {"name": "m.eml", "mimeType": "message/rfc822", "buffer": raw})
    page.get_by_role("button", name="Phishing").click()
    page.get_by_role("status").get_by_text("Thank you.").wait_for()
    page.get_by_text("phishing by").or_(page.get_by_text("by analyst")).first.wait_for()
    barriers += kept(window, "message-said")
    page.get_by_role("button", name="Undo the report").click()
    page.get_by_role("status").get_by_text("The report was undone.").wait_for()
    assert page.get_by_role("button", name="Undo the report").count() == 0
    assert barriers == []


@pytest.mark.slow
def test_all_is_forgotten_by_keyboard_and_only_with_the_name(
    deployment: Deployment, open_window: Callable[..., Window]
) -> None:
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "tenant-administrator", ["club"]).cookie)
    page = window.open("/console/learning")
    page.set_input_files("#message", {"name": "m.eml", "mimeType": "message/rfc822", "buffer": plain_message()})
    page.get_by_role("button", name="Spam").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo the report").wait_for()
    page.get_by_role("link", name="Delete everything").focus()
    page.keyboard.press("Enter")
    for name, sentence in (("acme", "Nothing was deleted."), ("club", "Everything learned")):
        page.get_by_label("Type the name of the tenant").fill(name)
        page.keyboard.press("Enter")
        page.get_by_text(sentence).first.wait_for()
    assert page.get_by_role("button", name="Undo the report").count() == 0


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_rule_is_found_weighed_and_let_go(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    page = window.open(f"/console/tenants/{deployment.tenants['bank']}")
    page.get_by_label("Rule").fill("form that asks for a password")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="Form that asks for a password").click()
    page.get_by_label("Points for bank").fill("500")
    page.evaluate("document.querySelector('#weight').form.noValidate = true")  # as a browser that checks nothing
    page.keyboard.press("Enter")
    page.get_by_text("You may let").wait_for()
    barriers = kept(window, "tenant-weight-mistake")
    page.get_by_label("Points for bank").fill("50")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Save 50 points").click()
    page.get_by_text("50 points", exact=True).wait_for()
    page.get_by_role("button", name="Remove the weight of html.credential-form").click()
    page.get_by_role("status").get_by_text("The weights were changed.").wait_for()
    assert page.get_by_role("button", name="Remove the weight").count() == 0
    assert barriers == []
