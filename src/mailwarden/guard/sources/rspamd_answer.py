"""The answer of the scan source `rspamdApi`: one for all tenants, in the format of Rspamd.

These clients carry out decisions themselves. Each tenant's recipients have their own judgement and decision; the answer
is the strictest of them. If one part must be retried, all are: the other parts would otherwise be delivered.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from msgspec import Struct, field
from msgspec.structs import replace

from mailwarden.access.tenants import TenantDirectory
from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Decision, Reason, Verdict
from mailwarden.model.place import shown_place
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scan import Scan
from mailwarden.policy.decide import WARN_TAG
from mailwarden.quarantine.result_headers import OWN
from mailwarden.scan.scan import Processing
from mailwarden.scan.shared_answer import Part, public_answer_of, settle
from mailwarden.serving.spool import Spooled

REQUIRED_SCORE = 15.0  # Rspamd's default score for reject: 100 points, which convict
MARK_SCORE = 7.5  # 50 points, which make a message suspicious
STEP = 0.01
MAX_OPTIONS = 5
POINTS = 100
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9]+")


class Answer(IntEnum):
    """The action for the client; a larger value is stricter."""

    PASS = 0
    MARK = 1  # deliver with a mark
    DISCARD = 2
    REJECT = 3
    RETRY = 4


QUARANTINE_AS: Mapping[str, Answer] = {
    "add header": Answer.MARK,
    "discard": Answer.DISCARD,
    "reject": Answer.REJECT,
}


class ScanAnswer(Struct, frozen=True):
    """The one answer, and the result that recipients of every tenant may read."""

    answer: Answer
    leading: FinishedRequest


class PerTenantScan:
    def __init__(self, source: str, *, processing: Processing, tenants: TenantDirectory, quarantine_as: str) -> None:
        self._source = source
        self._processing = processing
        self._tenants = tenants
        self._quarantine_as = QUARANTINE_AS[quarantine_as]

    async def scan(self, envelope: Envelope, raw: Spooled) -> ScanAnswer:
        """Judge the message for each tenant, and return the one answer."""
        envelope = replace(envelope, recipients=tuple(dict.fromkeys(envelope.recipients)))
        groups = self._tenants.group(None, envelope.recipients)
        parts = settle(await self._processing.judge(Scan(self._source, envelope, groups, raw, session_open=True)))
        answered = join(parts, self._quarantine_as)
        if answered.answer is Answer.RETRY:
            # Of a message that is retried, history stores only the undecided parts: the others are not carried out.
            parts = [part for part in parts if part.decision is Decision.UNDECIDED]
        await self._processing.keep(parts)
        return answered


def join(parts: Sequence[Part], quarantine_as: Answer) -> ScanAnswer:
    """Return the strictest answer; a discard for only some recipients becomes a rejection for all."""
    answers = [answer_to(part.finished, quarantine_as) for part in parts]
    strictest = max(answers)
    leading = answers.index(strictest)
    if strictest is Answer.DISCARD and set(answers) != {Answer.DISCARD}:
        strictest = Answer.REJECT
    ordered = [parts[leading], *parts[:leading], *parts[leading + 1 :]]
    return ScanAnswer(strictest, public_answer_of(ordered))


def answer_to(finished: FinishedRequest, quarantine_as: Answer) -> Answer:
    match finished.ruling.decision:
        case Decision.UNDECIDED:
            return Answer.RETRY
        case Decision.BOUNCE:
            return Answer.REJECT
        case Decision.DROP:
            return Answer.DISCARD
        case Decision.QUARANTINE:
            # A mark would deliver the message, and malware is never delivered.
            malware = finished.judgement.verdict is Verdict.MALWARE
            return Answer.REJECT if malware and quarantine_as is Answer.MARK else quarantine_as
        case Decision.DELIVER:
            return Answer.MARK if WARN_TAG in finished.tags else Answer.PASS


def sentence_of(finished: FinishedRequest) -> str:
    """Return the text for the sender as one line of ASCII: the verdict and the ggrid.

    The summary of the judgement may name a tenant's list entries, so it is left out.
    """
    if finished.ruling.decision is Decision.UNDECIDED:
        return f"The message could not be judged; try again later ({finished.ggrid})"
    return f"Refused: {finished.judgement.verdict} ({finished.ggrid})"


ACTIONS: Mapping[Answer, str] = {
    Answer.PASS: "no action",
    Answer.MARK: "add header",
    Answer.DISCARD: "discard",
    Answer.REJECT: "reject",
    Answer.RETRY: "soft reject",
}


class Symbol(Struct, frozen=True):
    name: str
    score: float
    metric_score: float
    description: str
    options: tuple[str, ...] = ()


class AddedHeader(Struct, frozen=True):
    value: str
    order: int = 1  # below the Received field that Postfix writes, above all received fields


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


def make_answer(answered: ScanAnswer, fields: Sequence[tuple[str, str]]) -> CheckAnswer:
    """Return the answer for a judged message; `fields` are the result fields from top to bottom.

    Each symbol is a matched rule of Mailwarden. Rspamd's own symbols are evidence and are not repeated. One more symbol
    makes the sum agree with the action, for clients that read only the score.
    """
    finished, answer = answered.leading, answered.answer
    symbols = {symbol.name: symbol for symbol in _symbols(finished.judgement.reasons)}
    rule_score = sum(symbol.score for symbol in symbols.values())
    score = round(_fit(rule_score, answer), 2)
    verdict = f"MW_VERDICT_{finished.judgement.verdict.upper()}"
    verdict_score = round(score - rule_score, 2)
    symbols[verdict] = Symbol(verdict, verdict_score, verdict_score, finished.judgement.summary, finished.tags)
    has_text = answer in (Answer.REJECT, Answer.RETRY)
    return CheckAnswer(
        action=ACTIONS[answer],
        score=score,
        is_spam=score >= REQUIRED_SCORE,
        symbols=symbols,
        messages={"smtp_message": sentence_of(finished)} if has_text else {},
        message_id=finished.summary.message_id.strip("<>") or "undef",
        time_real=_seconds(finished),
        # A client inserts each field above the previous one: the last field comes first.
        milter=Milter(
            add_headers={name: AddedHeader(value) for name, value in reversed(fields)},
            remove_headers=dict.fromkeys(OWN, 0),
        ),
    )


def make_later(sentence: str) -> CheckAnswer:
    """Return the answer for a message that cannot be accepted now: its sender retries."""
    return CheckAnswer(action=ACTIONS[Answer.RETRY], messages={"smtp_message": sentence})


def _symbols(reasons: Iterable[Reason]) -> Iterable[Symbol]:
    by_rule: dict[str, list[Reason]] = {}
    for reason in reasons:
        by_rule.setdefault(reason.rule, []).append(reason)
    for rule, same_rule in by_rule.items():
        score = round(sum(reason.weight for reason in same_rule) * REQUIRED_SCORE / POINTS, 2)
        places = dict.fromkeys(shown_place(reason.place) for reason in same_rule)
        shown = tuple(text for text in places if text)[:MAX_OPTIONS]
        name = f"MW_{_NOT_IN_NAMES.sub('_', rule.upper())}"
        yield Symbol(name, score, score, same_rule[0].summary, shown)


def _fit(score: float, answer: Answer) -> float:
    """Return the score within the range of the action; lists change the action and have no points."""
    if answer in (Answer.REJECT, Answer.DISCARD):
        return max(score, REQUIRED_SCORE)
    if answer is Answer.MARK:
        return min(max(score, MARK_SCORE), REQUIRED_SCORE - STEP)
    return min(score, MARK_SCORE - STEP)


def _seconds(finished: FinishedRequest) -> float:
    return round((finished.completed - finished.created).total_seconds(), 3)
