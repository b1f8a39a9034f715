"""Which component has which fault, in which order and for how long: all of it follows from the seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["cut", "kill", "pause", "full"]
KINDS: tuple[Kind, ...] = ("cut", "kill", "pause", "full")
ENGINE_KINDS: tuple[Kind, ...] = ("kill", "pause")  # an engine has no network and no disk of its own
ENGINES = ("rspamd", "clamd")
PROXY = "haproxy"
FAULTY = ("lb", "abby", "guard", "db", "redis", "ch")  # kinds of components; Postfix belongs to the load
SECONDS = (4.0, 8.0)
SHORT_SECONDS = 2.0
PRIMARY_SHARE = 0.6  # of the faults of databases that hit the primary


@dataclass(frozen=True, slots=True)
class Planned:
    """A fault to come of a host, or of one `server` on it; `primary` is the database that is primary at that time."""

    kind: Kind
    component: str
    seconds: float
    server: str = ""
    primary: bool = False


def short_plan(names: Sequence[str]) -> list[Planned]:
    """Return one fault of each kind and a killed proxy, none of which needs a failover of the databases."""
    targets: dict[Kind, str] = {"kill": "abby", "cut": "guard", "pause": "lb", "full": "guard"}
    planned = [Planned(kind, _of_kind(names, name)[0], SHORT_SECONDS) for kind, name in targets.items()]
    return [*planned, Planned("kill", _of_kind(names, "lb")[0], SHORT_SECONDS, server=PROXY)]


def plan(seed: int, names: Sequence[str]) -> list[Planned]:
    """Return one fault for each kind of component, an engine and a proxy, in random order.

    Over four seeds each kind of component has every fault once.
    """
    chance = random.Random(f"fleet {seed}")
    planned = []
    for place, name in enumerate(name for name in FAULTY if _of_kind(names, name)):
        component = chance.choice(_of_kind(names, name))
        kind = KINDS[(seed + place) % len(KINDS)]
        primary = name == "db" and chance.random() < PRIMARY_SHARE
        planned.append(Planned(kind, component, chance.uniform(*SECONDS), primary=primary))
    guard = chance.choice(_of_kind(names, "guard"))
    engine = Planned(chance.choice(ENGINE_KINDS), guard, chance.uniform(*SECONDS), server=chance.choice(ENGINES))
    proxy = Planned("kill", chance.choice(_of_kind(names, "lb")), chance.uniform(*SECONDS), server=PROXY)
    return chance.sample([*planned, engine, proxy], len(planned) + 2)


def kind_of(name: str) -> str:
    """Return the kind of a component: its name without the number."""
    return name.rstrip("0123456789")


def _of_kind(names: Sequence[str], kind: str) -> list[str]:
    return [name for name in names if kind_of(name) == kind]
