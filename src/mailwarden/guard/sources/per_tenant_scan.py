"""Scans one message for each tenant, and returns one answer, for clients that carry out decisions themselves.

Each tenant's recipients have their own judgement and decision. The answer is the strictest of them. If one part must be
retried, all are: the other parts would otherwise be delivered.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum

import structlog
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.access.tenants import TenantDirectory
from mailwarden.guard.processing import GuardRequest, Processing, settle_together
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.decide import WARN_TAG
from mailwarden.policy.shared_answer import public_answer_of
from mailwarden.serving.spool import Spooled


class Answer(IntEnum):
    """The action for the client; a larger value is stricter."""

    PASS = 0
    MARK = 1  # deliver with a mark
    HOLD = 2  # the client's own quarantine
    DISCARD = 3
    REFUSE = 4
    LATER = 5


QUARANTINE_AS: Mapping[str, Answer] = {
    "add header": Answer.MARK,
    "quarantine": Answer.HOLD,
    "discard": Answer.DISCARD,
    "reject": Answer.REFUSE,
}


class ScanAnswer(Struct, frozen=True):
    """The one answer, and the result that recipients of every tenant may read."""

    answer: Answer
    leading: FinishedRequest


class PerTenantScan:
    def __init__(
        self, source: str, *, processing: Processing, tenants: TenantDirectory, timeout: float, quarantine_as: str
    ) -> None:
        self._source = source
        self._processing = processing
        self._tenants = tenants
        self._timeout = timeout
        self._quarantine_as = QUARANTINE_AS[quarantine_as]

    async def scan(self, envelope: Envelope, raw: Spooled) -> ScanAnswer:
        """Judge the message for each tenant, and return the one answer."""
        ggrid = new_ggrid()
        structlog.contextvars.bind_contextvars(ggrid=str(ggrid))
        envelope = replace(envelope, recipients=tuple(dict.fromkeys(envelope.recipients)))
        request = GuardRequest(
            ggrid=ggrid,
            source=self._source,
            envelope=envelope,
            groups=self._tenants.group(None, envelope.recipients),
            raw=raw,
            deadline=self._timeout,
            session_open=True,
        )
        examined = settle_together(await self._processing.examine(request))
        answered = join([each.finished for each in examined], self._quarantine_as)
        for each in examined:
            # Of a message that is retried, history stores only the undecided parts: the others are not carried out.
            if answered.answer is not Answer.LATER or each.finished.ruling.decision is Decision.UNDECIDED:
                self._processing.keep(each)
        return answered


def join(parts: Sequence[FinishedRequest], quarantine_as: Answer) -> ScanAnswer:
    """Return the strictest answer; a discard for only some recipients becomes a rejection for all."""
    answers = [answer_to(part, quarantine_as) for part in parts]
    strictest = max(answers)
    leading = answers.index(strictest)
    if strictest is Answer.DISCARD and set(answers) != {Answer.DISCARD}:
        strictest = Answer.REFUSE
    ordered = [parts[leading], *parts[:leading], *parts[leading + 1 :]]
    return ScanAnswer(strictest, public_answer_of(ordered))


def answer_to(finished: FinishedRequest, quarantine_as: Answer) -> Answer:
    match finished.ruling.decision:
        case Decision.UNDECIDED:
            return Answer.LATER
        case Decision.BOUNCE:
            return Answer.REFUSE
        case Decision.DROP:
            return Answer.DISCARD
        case Decision.QUARANTINE:
            # A mark would deliver the message, and malware is never delivered.
            marks = quarantine_as in (Answer.MARK, Answer.HOLD)
            return Answer.REFUSE if marks and finished.judgement.verdict is Verdict.MALWARE else quarantine_as
        case Decision.DELIVER:
            return Answer.MARK if WARN_TAG in finished.tags else Answer.PASS


def sentence_of(finished: FinishedRequest) -> str:
    """Return the text for the sender as one line of ASCII: the verdict and the ggrid.

    The summary of the judgement may name a tenant's list entries, so it is left out.
    """
    if finished.ruling.decision is Decision.UNDECIDED:
        return f"The message could not be judged; try again later ({finished.ggrid})"
    return f"Refused: {finished.judgement.verdict} ({finished.ggrid})"
