"""The schedules of the fleet test: the same for the same seed, and every fault for every kind of component."""

from collections import defaultdict

from tests.fleet.schedule import KINDS, kind_of, plan, short_plan

COUNTS = {"lb": 2, "abby": 2, "guard": 4, "db": 3, "redis": 3, "mx": 1, "ch": 2}
NAMES = [f"{kind}{number + 1}" for kind, count in COUNTS.items() for number in range(count)]


def test_a_seed_gives_the_same_schedule_again() -> None:
    assert plan(7, NAMES) == plan(7, NAMES)
    assert len({tuple(plan(seed, NAMES)) for seed in range(30)}) == 30


def test_four_seeds_have_every_fault_for_every_kind_of_component() -> None:
    seen = defaultdict[str, set[str]](set)
    for planned in (each for seed in range(5, 9) for each in plan(seed, NAMES) if not each.server):
        seen[kind_of(planned.component)].add(planned.kind)
    assert seen == {kind: set(KINDS) for kind in COUNTS if kind != "mx"}


def test_thirty_seeds_hit_every_member_and_the_primary() -> None:
    faults = [each for seed in range(1, 31) for each in plan(seed, NAMES)]
    assert {each.component for each in faults} == set(NAMES) - {"mx1"}
    assert any(each.primary for each in faults)


def test_the_short_form_has_one_fault_of_each_kind() -> None:
    assert {each.kind for each in short_plan(NAMES)} == set(KINDS)
