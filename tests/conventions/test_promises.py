"""Every promise has a test that the gate runs, or a reason; docs/promises.md is current; breaks find their place."""

from pathlib import Path

from workshop.measure.breaks import LIST, read
from workshop.measure.promises import PAGE, TITLES, page, promises

MIN_BREAKS = 30
# Shown by longer runs alone; each costs minutes or needs a machine of its own.
LONG_ALONE: frozenset[str] = frozenset()


def test_every_promise_has_a_test_in_the_gate() -> None:
    every = [promise for kind in TITLES for promise in promises(kind)]
    missing = [each.section for each in every if not each.cases and not each.reason]
    long = [each.section for each in every if each.cases and not each.in_gate and each.section not in LONG_ALONE]

    assert (missing, long) == ([], [])


def test_the_page_of_promises_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make docs`"


def test_every_break_fits_the_product() -> None:
    """`make check-long ONLY=breaks` takes minutes; that a break still finds its text, and its tests, shows at once."""
    breaks = read(LIST)
    gone = [each.promise for each in breaks if Path(each.file).read_text("utf-8").count(each.old) != 1]
    lost = [place for each in breaks for place in each.tests if not Path(place.partition("::")[0]).exists()]

    assert (gone, lost) == ([], [])
    assert len(breaks) >= MIN_BREAKS
