"""The status colour: the contract's rules, and its memory."""

import pytest

from mailwarden.abby.status import Colour, ColourMemory, causes, colour
from mailwarden.hop.records import EngineState, GuardStatus

GREEN, YELLOW, RED = Colour


def guard(busy=0, places=10, *, down=(), database=True, scans=True, stopping=False, optional_down=False):
    engines = [EngineState(name, name not in down, required=True) for name in ("rspamd", "clamav")]
    engines.append(EngineState("extra", not optional_down, required=False))
    return GuardStatus("g", "1", busy, places, tuple(engines), database, scans, stopping)


@pytest.mark.parametrize(
    ("expected", "guards"),
    [
        (GREEN, [guard(), guard()]),
        (GREEN, [guard(7), guard(8)]),
        (GREEN, [guard(optional_down=True)]),
        (YELLOW, [guard(8), guard(8)]),
        (YELLOW, [guard(10), guard(6)]),
        (GREEN, [guard(10), guard(5)]),
        (YELLOW, [guard(), None]),
        (YELLOW, [guard(), guard(stopping=True)]),
        (YELLOW, [guard(), guard(scans=False)]),
        (YELLOW, [guard(), guard(down=["clamav"])]),
        (YELLOW, [guard(down=["rspamd"]), guard(down=["clamav"])]),
        (YELLOW, [guard(database=False), guard()]),
        (RED, []),
        (RED, [None]),
        (RED, [None, None]),
        (RED, [guard(10), guard(12)]),
        (RED, [guard(10), None]),
        (RED, [guard(down=["clamav"]), guard(down=["rspamd", "clamav"])]),
        (RED, [guard(scans=False), guard(stopping=True)]),
    ],
)
def test_the_colour_follows_the_rules(expected, guards):
    assert colour(guards, database_up=True) is expected
    assert bool([*causes(guards, database_up=True)]) is (expected is not GREEN), "every other colour has a cause"


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        ([], "No guard scans messages."),
        ([guard(down=["clamav"])], "The engine clamav is down."),
        ([guard(), guard(down=["clamav"])], "The engine clamav is down on some guards."),
        ([guard(10)], "Every guard is at its maximum of messages."),
        ([guard(9)], "The guards are busy."),
        ([guard(), None], "Some guards do not answer."),
        ([guard(database=False)], "The database does not answer."),
    ],
)
def test_a_colour_names_its_cause(guards, expected):
    assert [*causes(guards, database_up=True)] == [expected]


def test_a_database_that_is_down_is_yellow_at_best():
    assert colour([guard()], database_up=False) is YELLOW
    assert [*causes([guard()], database_up=False)] == ["The database does not answer."]
    assert colour([None], database_up=False) is RED


def test_worse_is_shown_at_once_and_better_only_after_ten_seconds():
    now = 0.0
    memory = ColourMemory(lambda: now)
    shown = []
    for moment, seen in [(0, GREEN), (1, RED), (2, GREEN), (10.9, GREEN), (11.1, GREEN)]:
        now = moment
        shown.append(memory.show(seen))
    assert shown == [GREEN, RED, RED, RED, GREEN]


def test_better_comes_step_by_step_where_the_trouble_did():
    now = 0.0
    memory = ColourMemory(lambda: now)
    shown = []
    for moment, seen in [(0, RED), (5, YELLOW), (11, GREEN), (14.9, GREEN), (15.1, GREEN)]:
        now = moment
        shown.append(memory.show(seen))
    assert shown == [RED, RED, YELLOW, YELLOW, GREEN]
