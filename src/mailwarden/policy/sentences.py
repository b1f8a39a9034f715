"""Writes sentences for people: rule templates filled with facts, and the summary of a judgement.

Security: facts come from hostile messages. They are shortened, stripped of control, format and bidirectional
characters, and inserted as plain text. No part of a fact is read as a template.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from msgspec import Struct, field

from mailwarden.model.evidence import Fact, Report, Status
from mailwarden.model.outcome import Verdict
from mailwarden.model.place import ENGLISH_PLACES, WHOLE_MESSAGE, Place, PlaceWords, place_text, shorten

FACT_LENGTH = 80
SENTENCE_LENGTH = 240

_PLACEHOLDER = re.compile(r"\{([a-z][a-z_]*)\}")
_LABELS = {**{verdict.value: verdict.capitalize() for verdict in Verdict}, Verdict.UNKNOWN.value: "Not decided"}


class Wording(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The words around the rules' own texts, in one language; a `{fact}` is inserted as in a summary."""

    verdicts: dict[str, str] = field(default_factory=lambda: dict(_LABELS))
    missing_fact: str = "(unknown)"
    yes: str = "yes"
    no: str = "no"
    the_message: str = "the message"
    one_more: str = "{body} (1 more reason)"
    more: str = "{body} ({count} more reasons)"
    nothing_finished: str = "no analyzer finished"
    unfinished: str = "the analyzer {analyzer} did not finish"
    one_missing: str = "{reason}, and nothing else is enough for a verdict"
    missing: str = "{reason} and {count} more required did not finish, and nothing else is enough for a verdict"
    no_points: str = "no points against it"
    few_points: str = "at most {points} points ({verdict}); {line} are needed"
    some_finished: str = "{body}; {count} of {all} analyzers finished"
    places: PlaceWords = ENGLISH_PLACES


ENGLISH = Wording()


def template_problems(template: str) -> Iterator[str]:
    """Yield the errors of a summary template."""
    if re.search(r"[{}]", _PLACEHOLDER.sub("", template)):
        yield "has a brace that is not part of a {fact} in lower-case letters"
    if not template[:1].isalpha():
        yield "must begin with a word, not with a fact"
    if template.rstrip().endswith((".", "!", "?")):
        yield "must not end with a full stop: it is put where the sentence ends"


def fact_names(template: str) -> frozenset[str]:
    """Return the names of the facts that a template inserts."""
    return frozenset(_pieces(template)[1::2])


def fill(template: str, facts: Mapping[str, Fact], place: Place = WHOLE_MESSAGE, words: Wording = ENGLISH) -> str:
    """Insert the facts and the place into a template; a missing fact becomes "unknown"."""
    pieces = _pieces(template)
    if len(pieces) == 1:
        return template
    shown = list(pieces)
    for number in range(1, len(pieces), 2):
        name = pieces[number]
        if name == "place" and name not in facts:
            fact: Fact = place_text(place, words.places) or words.the_message
        else:
            fact = facts.get(name, words.missing_fact)
        shown[number] = show(fact, words)
    if not pieces[-1]:
        shown[-2] = shown[-2].removesuffix(".")  # a fact may be a sentence; the template has its own full stop
    return "".join(shown)


@lru_cache(maxsize=4_096)  # there are only as many templates as rules
def _pieces(template: str) -> tuple[str, ...]:
    """Split a template at its facts: text, name of a fact, text, and so on."""
    return tuple(_PLACEHOLDER.split(template))


def show(value: Fact, words: Wording = ENGLISH) -> str:
    """Return one fact as text that is safe to display."""
    if isinstance(value, str):
        return shorten(value, FACT_LENGTH) or words.missing_fact
    if isinstance(value, bool):
        return words.yes if value else words.no
    if isinstance(value, float):
        return f"{value:g}"
    return shorten(str(value), FACT_LENGTH) or words.missing_fact


def sentence(body: str) -> str:
    """Return a body with a capital letter and a full stop."""
    return f"{body[:1].upper()}{body[1:]}."


def conclusion(verdict: Verdict, body: str, more: int = 0, words: Wording = ENGLISH) -> str:
    """Return the summary of a judgement: the verdict, its main reason, and the number of further reasons."""
    if more:
        body = _insert(words.one_more if more == 1 else words.more, body=body, count=str(more))
    return f"{words.verdicts[verdict]}: {body}."


def missing_body(missing: Sequence[Report], words: Wording = ENGLISH) -> str:
    """Return the part of the summary that names the required analyzers without a result."""
    if not missing:
        return words.nothing_finished
    first = min(missing, key=lambda report: report.analyzer)
    reason = first.failure.sentence if first.failure else _insert(words.unfinished, analyzer=first.analyzer)
    template = words.missing if len(missing) > 1 else words.one_missing
    return _insert(template, reason=shorten(reason, SENTENCE_LENGTH).rstrip("."), count=str(len(missing) - 1))


def clean_body(
    reports: Sequence[Report], highest: tuple[Verdict, int] | None, line: int, words: Wording = ENGLISH
) -> str:
    """Return the part of the summary with the highest points of a verdict, below its line."""
    body = words.no_points
    if highest:
        verdict, points = highest
        body = _insert(words.few_points, verdict=verdict.value, points=str(points), line=str(line))
    finished, every = sum(report.status is Status.FINISHED for report in reports), len(reports)
    if finished < every:
        return _insert(words.some_finished, body=body, count=str(finished), all=str(every))
    return body


def _insert(template: str, **facts: str) -> str:
    """Insert texts of our own; none is shortened and none is read as a template."""
    return "".join(facts[piece] if number % 2 else piece for number, piece in enumerate(_pieces(template)))
