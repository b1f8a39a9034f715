"""A recipient opens a link of a digest and presses its button; the page has no script and keeps nothing."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from mailwarden.quarantine.digest import DigestLink
from tests.acceptance.deployment import Deployment, run_command
from tests.acceptance.held import finish_releases, keep, link_seal, state_of
from tests.browser.screens import LOOKS
from tests.browser.test_screens import kept
from tests.browser.window import Window

LONG = "Your invoice 4711 " * 6 + "https://letters.example/" + "x" * 80


@pytest.fixture(scope="module")
def wanted(deployment: Deployment) -> None:
    run_command("quarantine", "digest", "acme", "--on", "--config", str(deployment.product.abby.folder))


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_a_link_is_opened_and_its_button_pressed(
    deployment: Deployment, wanted: None, open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    ann, bob = "ann@company.example", "bob@company.example"
    sender, name = "billing@letters.example", "<b>Billing</b> \u202edepartment"
    uid = keep(deployment, subject=LONG, sender=sender, name=name, recipients=(ann, bob))
    path = f"/held/{link_seal(deployment).token(DigestLink(UUID(uid), 2, datetime.now(UTC) + timedelta(days=1)))}"
    window = open_window(width=width, dark=dark)
    page = window.open(path)
    barriers = kept(window, "link-held")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="on its way").wait_for()
    assert state_of(deployment, uid) == {ann: "held", bob: "releasing"}
    barriers += kept(window, "link-done")
    finish_releases(deployment)
    page.reload()  # which sends the form again, as a browser does that was asked to
    page.get_by_role("heading", name="released already").wait_for()
    assert state_of(deployment, uid) == {ann: "held", bob: "released"}
    barriers += kept(window, "link-before")
    window.open(path[:-1] + ("A" if path[-1] != "A" else "B")).get_by_role("heading", name="Invalid link").wait_for()
    barriers += kept(window, "link-nothing")
    assert page.context.cookies() == []
    assert barriers == []
