"""The training of a tenant is deleted in the browser, by keyboard and only with the name of the tenant."""

from collections.abc import Callable

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.window import Window
from workshop.rig.samples import plain_message


@pytest.mark.slow
def test_all_is_forgotten_by_keyboard_and_only_with_the_name(
    deployment: Deployment, open_window: Callable[..., Window]
) -> None:
    window = open_window()
    window.carry(COOKIE, sign_in(deployment, "tenant-administrator", ["club"]).cookie)
    page = window.open("/console/training")
    page.set_input_files("#message", {"name": "m.eml", "mimeType": "message/rfc822", "buffer": plain_message()})
    page.get_by_role("button", name="Spam").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Undo the report").wait_for()
    page.get_by_role("link", name="Delete everything").focus()
    page.keyboard.press("Enter")
    for name, sentence in (("acme", "Nothing was deleted."), ("club", "The training of this tenant was deleted")):
        page.get_by_label("Type the name of the tenant").fill(name)
        page.keyboard.press("Enter")
        page.get_by_text(sentence).first.wait_for()
    assert page.get_by_role("button", name="Undo the report").count() == 0
