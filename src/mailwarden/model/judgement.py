"""What policy concluded from the evidence, with its reasons: the data behind every explanation."""

from msgspec import Struct

from mailwarden.model.listing import ListHit
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.place import WHOLE_MESSAGE, Place


class Reason(Struct, frozen=True):
    """One rule that spoke: how much it weighs for which verdict, and its sentence for people."""

    rule: str
    analyzer: str
    verdict: Verdict
    weight: int
    summary: str
    place: Place = WHOLE_MESSAGE
    tag: str = ""


class Judgement(Struct, frozen=True):
    """The verdict, what it rests on, and the points each verdict gathered."""

    verdict: Verdict
    summary: str
    reasons: tuple[Reason, ...]
    points: dict[str, int]
    tags: tuple[str, ...]
    incomplete: bool = False
    forces_quarantine: bool = False


class Step(Struct, frozen=True):
    """One step of the decision trace: what was considered and what came of it."""

    step: str
    outcome: str


class Ruling(Struct, frozen=True):
    """The decision, the tags it adds, how it was reached, and the list entry that it rests on."""

    decision: Decision
    tags: tuple[str, ...]
    trace: tuple[Step, ...]
    entry: ListHit | None = None
