"""Every screen, wide and narrow, light and dark: a picture is kept, nothing overflows, axe-core finds no barrier."""

from collections.abc import Callable, Mapping

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.screens import LOOKS, OPEN_SCREENS, SCREENS
from tests.browser.window import Window


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_every_screen_fits_and_is_accessible(
    deployment: Deployment,
    reported: dict[str, str],
    held: dict[str, str],
    cases: dict[str, str],
    last_week: None,
    feed: str,
    endpoints: dict[str, str],
    open_window: Callable[..., Window],
    width: int,
    dark: bool,
) -> None:
    window = open_window(width=width, dark=dark)
    known = {
        **deployment.tenants,
        **reported,
        **held,
        **cases,
        "key": deployment.keys["all"].split("_")[1],
        "feed": feed,
        **endpoints,
    }
    barriers = look_at(window, OPEN_SCREENS, known)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    barriers += look_at(window, SCREENS, known)
    assert barriers == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 320])
def test_no_part_of_a_message_page_is_wider_than_a_phone(
    deployment: Deployment,
    scanned: dict[str, str],
    held: dict[str, str],
    open_window: Callable[..., Window],
    width: int,
) -> None:
    window = open_window(width=width)
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    known = {**deployment.tenants, **scanned, **held}
    wide: dict[str, list[str]] = {}
    for name in ("message-long", "held", "held-refused", "held-released", "held-malware", "held-deleted"):
        page = window.open(SCREENS[name].format(**known))
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        if window.overflows():
            wide[name] = window.widest()
    assert wide == {}


def look_at(window: Window, screens: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Open each, keep its picture, and return what stands in somebody's way."""
    barriers: list[str] = []
    for name, path in screens.items():
        window.open(path.format(**known))
        barriers += kept(window, name)
    return barriers


def kept(window: Window, name: str) -> list[str]:
    """Keep a picture of the page that is open, and return what stands in somebody's way there."""
    window.keep(name)
    wide = [f"{name} is wider than a window of {window.width} pixels"] if window.overflows() else []
    return window.barriers() + wide
