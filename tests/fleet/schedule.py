"""Which component has which fault, in which order and for how long: all of it follows from the seed."""

import random
from dataclasses import dataclass
from typing import Literal

from tests.fleet.topology import Fleet

Kind = Literal["cut", "kill", "pause", "full"]
KINDS: tuple[Kind, ...] = ("cut", "kill", "pause", "full")
ENGINE_KINDS: tuple[Kind, ...] = ("kill", "pause")  # an engine has no network and no disk of its own
ENGINES = ("rspamd", "clamd")
SECONDS = (4.0, 8.0)
SHORT_SECONDS = 3.0
PRIMARY_SHARE = 0.6  # of the faults of databases that hit the primary


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault to come; `primary` stands for the database that is the primary at that time."""

    kind: Kind
    component: str
    seconds: float
    engine: str = ""
    primary: bool = False


def short_plan(fleet: Fleet) -> list[Planned]:
    """Return one fault of each kind, none of which needs a failover of the databases."""
    targets: dict[Kind, str] = {"kill": "guard", "cut": "abby", "pause": "lb", "full": "guard"}
    return [Planned(kind, fleet.of_kind(name)[0].name, SHORT_SECONDS) for kind, name in targets.items()]


def plan(seed: int, fleet: Fleet) -> list[Planned]:
    """Return one fault for each kind of component in random order; over four seeds each kind has every fault once."""
    chance = random.Random(f"fleet {seed}")
    kinds = [kind for kind in ("lb", "abby", "guard", "db", "redis") if fleet.of_kind(kind)]
    planned = []
    for place, name in enumerate(kinds):
        component = chance.choice(fleet.of_kind(name)).name
        kind = KINDS[(seed + place) % len(KINDS)]
        primary = name == "db" and chance.random() < PRIMARY_SHARE
        planned.append(Planned(kind, component, chance.uniform(*SECONDS), primary=primary))
    guard = chance.choice(fleet.of_kind("guard")).name
    engine = Planned(chance.choice(ENGINE_KINDS), guard, chance.uniform(*SECONDS), engine=chance.choice(ENGINES))
    return chance.sample([*planned, engine], len(planned) + 1)
