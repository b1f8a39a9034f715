"""Every screen in every look: a picture is kept, nothing overflows, overlaps or is cut, axe-core finds no barrier."""

from collections.abc import Callable, Iterator, Mapping

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_session import sign_in
from tests.acceptance.deployment import Deployment
from tests.browser.screens import LOOKS, NARROW, OPEN_SCREENS, SCREENS, WIDE
from tests.browser.window import Window


@pytest.fixture
def known(
    deployment: Deployment,
    reported: dict[str, str],
    held: dict[str, str],
    cases: dict[str, str],
    last_week: None,
    feed: str,
    receivers: dict[str, str],
) -> Mapping[str, str]:
    return {
        **deployment.tenants,
        **reported,
        **held,
        **cases,
        "key": deployment.keys["all"].split("_")[1],
        "feed": feed,
        **receivers,
    }


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_every_screen_fits_and_is_accessible(
    deployment: Deployment, known: Mapping[str, str], open_window: Callable[..., Window], width: int, dark: bool
) -> None:
    window = open_window(width=width, dark=dark)
    problems: list[str] = []
    for name in every_screen(window, deployment, known):
        problems += kept(window, name)
        if width == WIDE:  # and does the same page still fit when the window gets narrow?
            window.resize(NARROW)
            problems += too_wide(window, name) + misplaced(window, name)
            window.resize(WIDE)
    assert problems == []


@pytest.mark.slow
@pytest.mark.parametrize("width", [pytest.param(390, marks=pytest.mark.long), 320])
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


def every_screen(window: Window, deployment: Deployment, known: Mapping[str, str]) -> Iterator[str]:
    """Open each screen, first those that need no account, and tell its name."""
    for name, path in OPEN_SCREENS.items():
        window.open(path)
        yield name
    window.carry(COOKIE, sign_in(deployment, "deployment-administrator").cookie)
    for name, path in SCREENS.items():
        window.open(path.format(**known))
        yield name


def kept(window: Window, name: str) -> list[str]:
    """Keep a picture of the page that is open, and return what stands in somebody's way there."""
    window.keep(name)
    return window.barriers() + too_wide(window, name) + misplaced(window, name)


def misplaced(window: Window, name: str) -> list[str]:
    """Return what lies over something else, is cut off or opens beyond the window."""
    return [f"{name} at {window.width} pixels: {problem}" for problem in window.misplaced()]


def too_wide(window: Window, name: str) -> list[str]:
    """Tell whether a page does not fit; a chart keeps its width, so such a page is opened again."""
    if window.overflows():
        window.page.reload()
    return [f"{name} is wider than a window of {window.width} pixels"] if window.overflows() else []
