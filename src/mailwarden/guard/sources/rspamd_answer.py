"""What Rspamd would answer on `/checkv2`, made of a judgement: the fields, names and scale that its clients know.

Rspamd's own symbols are evidence of ours and not shown again: each symbol here is a rule that spoke, and one more
makes the sum what the action says, for clients that look at scores alone.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from mailwarden.guard.sources.appraisal import Answer, Appraisal, sentence_of
from mailwarden.guard.sources.result_fields import OWN
from mailwarden.model.judgement import Reason
from mailwarden.model.place import shown_place
from mailwarden.model.record import FinishedRequest

REQUIRED_SCORE = 15.0  # Rspamd's usual score to reject at: 100 points, which convict
MARK_SCORE = 7.5  # 50 points, which make a message suspicious
STEP = 0.01
MAX_OPTIONS = 5
POINTS = 100
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9]+")

ACTIONS: Mapping[Answer, str] = {
    Answer.PASS: "no action",
    Answer.MARK: "add header",
    Answer.HOLD: "quarantine",
    Answer.DISCARD: "discard",
    Answer.REFUSE: "reject",
    Answer.LATER: "soft reject",
}


class Symbol(Struct, frozen=True):
    name: str
    score: float
    metric_score: float
    description: str
    options: tuple[str, ...] = ()


class AddedHeader(Struct, frozen=True):
    value: str
    order: int = 1  # below the Received line that Postfix writes itself, and above all that came


class Milter(Struct, frozen=True):
    add_headers: dict[str, AddedHeader] = {}
    remove_headers: dict[str, int] = {}


class CheckAnswer(Struct, frozen=True):
    action: str
    score: float = 0.0
    required_score: float = REQUIRED_SCORE
    is_skipped: bool = False
    is_spam: bool = False  # Rspamd's proxy reads it when it translates for clients of the older protocol
    thresholds: dict[str, float] = field(default_factory=lambda: {"reject": REQUIRED_SCORE, "add header": MARK_SCORE})
    symbols: dict[str, Symbol] = {}
    messages: dict[str, str] = {}
    urls: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    message_id: str = field(default="undef", name="message-id")
    time_real: float = 0.0
    milter: Milter = Milter()


def make_answer(appraisal: Appraisal, fields: Sequence[tuple[str, str]]) -> CheckAnswer:
    """Return the answer for a message that was judged; `fields` are the result fields from top to bottom."""
    finished, answer = appraisal.leading, appraisal.answer
    symbols = {symbol.name: symbol for symbol in _symbols(finished.judgement.reasons)}
    found = sum(symbol.score for symbol in symbols.values())
    score = round(_fit(found, answer), 2)
    verdict = f"MW_VERDICT_{finished.judgement.verdict.upper()}"
    rest = round(score - found, 2)
    symbols[verdict] = Symbol(verdict, rest, rest, finished.judgement.summary, finished.tags)
    told = answer in (Answer.REFUSE, Answer.LATER)
    return CheckAnswer(
        action=ACTIONS[answer],
        score=score,
        is_spam=score >= REQUIRED_SCORE,
        symbols=symbols,
        messages={"smtp_message": sentence_of(finished)} if told else {},
        message_id=finished.summary.message_id.strip("<>") or "undef",
        time_real=_seconds(finished),
        # Each is put above the one before: the last of ours goes in first.
        milter=Milter(
            add_headers={name: AddedHeader(value) for name, value in reversed(fields)},
            remove_headers=dict.fromkeys(OWN, 0),
        ),
    )


def make_later(sentence: str) -> CheckAnswer:
    """Return the answer for a message that could not be taken now: its sender comes again."""
    return CheckAnswer(action=ACTIONS[Answer.LATER], messages={"smtp_message": sentence})


def _symbols(reasons: Iterable[Reason]) -> Iterable[Symbol]:
    by_rule: dict[str, list[Reason]] = {}
    for reason in reasons:
        by_rule.setdefault(reason.rule, []).append(reason)
    for rule, spoken in by_rule.items():
        score = round(sum(reason.weight for reason in spoken) * REQUIRED_SCORE / POINTS, 2)
        places = tuple(text for text in dict.fromkeys(shown_place(each.place) for each in spoken) if text)[:MAX_OPTIONS]
        name = f"MW_{_NOT_IN_NAMES.sub('_', rule.upper())}"
        yield Symbol(name, score, score, spoken[0].summary, places)


def _fit(score: float, answer: Answer) -> float:
    """Return the score within what the action means; allow lists and block lists know no points."""
    if answer in (Answer.REFUSE, Answer.DISCARD):
        return max(score, REQUIRED_SCORE)
    if answer in (Answer.MARK, Answer.HOLD):
        return min(max(score, MARK_SCORE), REQUIRED_SCORE - STEP)
    return min(score, MARK_SCORE - STEP)


def _seconds(finished: FinishedRequest) -> float:
    return round((finished.completed - finished.created).total_seconds(), 3)
