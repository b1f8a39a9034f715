"""A case of user reports is found, read, closed and shown as closed, by mouse and by keyboard."""

from collections.abc import Callable

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.acceptance.reported_cases import report_case
from tests.browser.screens import LOOKS
from tests.browser.test_screens import kept
from tests.browser.window import Window


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_case_is_opened_closed_and_shown_as_closed(
    deployment: Deployment, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    subject = f"Voucher of {width}"
    report_case(deployment, subject=subject, reporters=("ann@company.example", "bob@company.example"))
    window = open_window(width=width, dark=dark)
    window.carry(COOKIE, sign_in(deployment, "analyst", ["acme"]).cookie)
    page = window.open("/console/cases")
    page.get_by_role("link", name=subject, exact=True).click()
    page.get_by_role("heading", name=subject).wait_for()
    assert page.get_by_text("they agree:").count() == 1
    barriers = kept(window, "case-open")
    page.get_by_role("link", name="Close as spam").click()
    page.get_by_role("heading", name="Close this case?").wait_for()
    barriers += kept(window, "case-question")
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("heading", name="Close the case").wait_for()
    page.get_by_role("link", name="Close as spam").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Close as spam").focus()
    page.keyboard.press("Enter")
    page.get_by_text("The case is closed. guard answers its reporters.").wait_for()
    assert page.get_by_role("link", name="Close as").count() == 0
    barriers += kept(window, "case-done")
    window.open("/console/cases?state=closed")
    page.get_by_role("link", name=subject, exact=True).wait_for()
    window.open("/console/cases")
    assert page.get_by_role("link", name=subject, exact=True).count() == 0
    assert barriers == []
