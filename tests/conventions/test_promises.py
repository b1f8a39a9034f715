"""Every promise has a test that the gate runs, or a reason; docs/promises.md is current."""

from measure.promises import PAGE, TITLES, page, promises

# Shown by longer runs alone; each costs minutes or needs a machine of its own.
LONG_ALONE: frozenset[str] = frozenset()


def test_every_promise_has_a_test_in_the_gate() -> None:
    every = [promise for kind in TITLES for promise in promises(kind)]
    missing = [each.section for each in every if not each.cases and not each.reason]
    long = [each.section for each in every if each.cases and not each.in_gate and each.section not in LONG_ALONE]

    assert (missing, long) == ([], [])


def test_the_page_of_promises_is_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "run `make docs`"
