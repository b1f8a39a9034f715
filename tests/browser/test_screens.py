"""Every screen, wide and narrow, light and dark: a picture is kept, nothing overflows, axe-core finds no barrier."""

from collections.abc import Callable, Mapping

import pytest

from mailwarden.access.sessions import COOKIE
from tests.acceptance.console_guest import sign_in
from tests.acceptance.house import House
from tests.browser.screens import LOOKS, OPEN_SCREENS, SCREENS
from tests.browser.visitor import Visitor


@pytest.mark.slow
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_every_screen_is_whole_and_open_to_everybody(
    stage: House,
    taught: dict[str, str],
    held: dict[str, str],
    visitor: Callable[..., Visitor],
    width: int,
    dark: bool,
) -> None:
    window = visitor(width=width, dark=dark)
    known = {**stage.tenants, **taught, **held}
    barriers = look_at(window, OPEN_SCREENS, known)
    window.carry(COOKIE, sign_in(stage, "deployment-administrator").cookie)
    barriers += look_at(window, SCREENS, known)
    assert barriers == []


def look_at(window: Visitor, screens: Mapping[str, str], known: Mapping[str, str]) -> list[str]:
    """Open each, keep its picture, and return what stands in somebody's way."""
    barriers: list[str] = []
    for name, path in screens.items():
        window.open(path.format(**known))
        barriers += kept(window, name)
    return barriers


def kept(window: Visitor, name: str) -> list[str]:
    """Keep a picture of the page that is open, and return what stands in somebody's way there."""
    window.keep(name)
    wide = [f"{name} is wider than a window of {window.width} pixels"] if window.overflows() else []
    return window.barriers() + wide
