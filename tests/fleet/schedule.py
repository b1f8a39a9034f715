"""Which component has which fault, in which order and for how long: all of it follows from the seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cut", "kill", "pause", "full"]
KINDS: tuple[Kind, ...] = ("cut", "kill", "pause", "full")
ENGINE_KINDS: tuple[Kind, ...] = ("kill", "pause")  # an engine has no network and no disk of its own
ENGINES = ("rspamd", "clamd")
FAULTY = ("lb", "abby", "guard", "db", "redis", "ch")  # kinds of components; Postfix belongs to the load
SECONDS = (4.0, 8.0)
SHORT_SECONDS = 2.0
PRIMARY_SHARE = 0.6  # of the faults of databases that hit the primary


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault to come; `primary` stands for the database that is the primary at that time."""

    kind: Kind
    component: str
    seconds: float
    engine: str = ""
    primary: bool = False


def short_plan(names: Sequence[str]) -> list[Planned]:
    """Return one fault of each kind, none of which needs a failover of the databases."""
    targets: dict[Kind, str] = {"kill": "abby", "cut": "guard", "pause": "lb", "full": "guard"}
    return [Planned(kind, _of_kind(names, name)[0], SHORT_SECONDS) for kind, name in targets.items()]


def plan(seed: int, names: Sequence[str]) -> list[Planned]:
    """Return one fault for each kind of component in random order; over four seeds each kind has every fault once."""
    chance = random.Random(f"fleet {seed}")
    planned = []
    for place, name in enumerate(name for name in FAULTY if _of_kind(names, name)):
        component = chance.choice(_of_kind(names, name))
        kind = KINDS[(seed + place) % len(KINDS)]
        primary = name == "db" and chance.random() < PRIMARY_SHARE
        planned.append(Planned(kind, component, chance.uniform(*SECONDS), primary=primary))
    guard = chance.choice(_of_kind(names, "guard"))
    engine = Planned(chance.choice(ENGINE_KINDS), guard, chance.uniform(*SECONDS), engine=chance.choice(ENGINES))
    return chance.sample([*planned, engine], len(planned) + 1)


def kind_of(name: str) -> str:
    """Return the kind of a component: its name without the number."""
    return name.rstrip("0123456789")


def _of_kind(names: Sequence[str], kind: str) -> list[str]:
    return [name for name in names if kind_of(name) == kind]
