"""Writes sentences for people: rule templates filled with facts, and the summary of a judgement.

Security: facts come from hostile messages. They are shortened, stripped of control, format and bidirectional
characters, and inserted as plain text. No part of a fact is read as a template.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from mailwarden.model.evidence import Fact, Report, Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.place import WHOLE_MESSAGE, Place, place_text, shorten

FACT_LENGTH = 80
SENTENCE_LENGTH = 240
MISSING = "(unknown)"

_PLACEHOLDER = re.compile(r"\{([a-z][a-z_]*)\}")
_LABELS = {Verdict.UNKNOWN: "Not decided"}


def template_problems(template: str) -> Iterator[str]:
    """Yield the errors of a summary template."""
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        yield "has a brace that is not part of a {fact} in lower-case letters"
    if not template[:1].isalpha():
        yield "must begin with a word, not with a fact"
    if template.rstrip().endswith((".", "!", "?")):
        yield "must not end with a full stop: it is put where the sentence ends"


def fill(template: str, facts: Mapping[str, Fact], place: Place = WHOLE_MESSAGE) -> str:
    """Insert the facts and the place into a template; a missing fact becomes "unknown"."""
    pieces = _pieces(template)
    if len(pieces) == 1:
        return template
    shown = list(pieces)
    for number in range(1, len(pieces), 2):
        name = pieces[number]
        fact = place_text(place) or "the message" if name == "place" and name not in facts else facts.get(name, MISSING)
        shown[number] = show(fact)
    if not pieces[-1]:
        shown[-2] = shown[-2].removesuffix(".")  # a fact may be a sentence; the template has its own full stop
    return "".join(shown)


@lru_cache(maxsize=4_096)  # there are only as many templates as rules
def _pieces(template: str) -> tuple[str, ...]:
    """Split a template at its facts: text, name of a fact, text, and so on."""
    return tuple(_PLACEHOLDER.split(template))


def show(value: Fact) -> str:
    """Return one fact as text that is safe to display."""
    if isinstance(value, str):
        return shorten(value, FACT_LENGTH) or MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return shorten(str(value), FACT_LENGTH) or MISSING


def sentence(body: str) -> str:
    """Return a body with a capital letter and a full stop."""
    return f"{body[:1].upper()}{body[1:]}."


def conclusion(verdict: Verdict, body: str, more: int = 0) -> str:
    """Return the summary of a judgement: the verdict, its main reason, and the number of further reasons."""
    label = _LABELS.get(verdict, verdict.capitalize())
    rest = f" ({more} more {'reason' if more == 1 else 'reasons'})" if more else ""
    return f"{label}: {body}{rest}."


def missing_body(missing: Sequence[Report]) -> str:
    """Return the part of the summary that names the required analyzers without a result."""
    if not missing:
        return "no analyzer finished, and nothing convicts"
    first = min(missing, key=lambda report: report.analyzer)
    reason = first.failure.sentence if first.failure else f"the analyzer {first.analyzer} did not finish"
    others = f" and {len(missing) - 1} more required did not finish" if len(missing) > 1 else ""
    return f"{shorten(reason, SENTENCE_LENGTH).rstrip('.')}{others}, and nothing else convicts"


def clean_body(reports: Sequence[Report], highest: tuple[Verdict, int] | None) -> str:
    """Return the part of the summary with the number of analyzers, and the points below every threshold."""
    finished = sum(report.status is Status.FINISHED for report in reports)
    who = f"all {finished}" if finished == len(reports) else f"{finished} of {len(reports)}"
    noun = "analyzer" if len(reports) == 1 else "analyzers"
    if highest:
        verdict, points = highest
        return f"{who} {noun} finished, with too few points for a verdict ({verdict}: {points} points)"
    return f"{who} {noun} finished without a finding"
