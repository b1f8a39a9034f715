"""The conclusion of the policy with its reasons: the data of every explanation."""

from msgspec import Struct

from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.place import WHOLE_MESSAGE, Place


class Reason(Struct, frozen=True):
    """One matching rule: its weight, its verdict, and its sentence."""

    rule: str
    analyzer: str
    verdict: Verdict
    weight: int
    summary: str
    place: Place = WHOLE_MESSAGE
    tag: str = ""


class Judgement(Struct, frozen=True):
    """The verdict, its reasons, and the points of each verdict."""

    verdict: Verdict
    summary: str
    reasons: tuple[Reason, ...]
    points: dict[str, int]
    tags: tuple[str, ...]
    incomplete: bool = False
    forces_quarantine: bool = False


class Step(Struct, frozen=True):
    """One step of the decision trace and its outcome."""

    step: str
    outcome: str


class Ruling(Struct, frozen=True):
    """The decision, the tags it adds, the decision trace, and the list entry that decided."""

    decision: Decision
    tags: tuple[str, ...]
    trace: tuple[Step, ...]
    entry: ListHit | None = None
