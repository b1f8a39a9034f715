"""One message for all its recipients, for clients that carry decisions out themselves and can be told one thing only.

Each tenant's recipients have a judgement and a decision of their own. The strictest of the answers is given: a message
that waits for one part waits for all, as a client may be told to deliver what is quarantined with a mark.
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
    """What a client is told to do; the more severe is the greater."""

    PASS = 0
    MARK = 1  # delivered, and marked for its reader
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
    """The one answer, and what of its reasons recipients of every tenant may read."""

    answer: Answer
    leading: FinishedRequest


class PerTenantScan:
    def __init__(
        self, source: str, *, processing: Processing, tenants: TenantDirectory, patience: float, quarantine_as: str
    ) -> None:
        self._source = source
        self._processing = processing
        self._tenants = tenants
        self._patience = patience
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
            deadline=self._patience,
            session_open=True,
        )
        examined = settle_together(await self._processing.examine(request))
        answered = join([each.finished for each in examined], self._quarantine_as)
        for each in examined:
            # A message that comes again is remembered for what was undecided alone: nothing happens to the rest of it.
            if answered.answer is not Answer.LATER or each.finished.ruling.decision is Decision.UNDECIDED:
                self._processing.keep(each)
        return answered


def join(parts: Sequence[FinishedRequest], quarantine_as: Answer) -> ScanAnswer:
    """Return the strictest answer; what is to vanish for some of the recipients only is refused for all of them."""
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
            # A mark would deliver it, and nothing delivers malware.
            marks = quarantine_as in (Answer.MARK, Answer.HOLD)
            return Answer.REFUSE if marks and finished.judgement.verdict is Verdict.MALWARE else quarantine_as
        case Decision.DELIVER:
            return Answer.MARK if WARN_TAG in finished.tags else Answer.PASS


def sentence_of(finished: FinishedRequest) -> str:
    """Return what a sender is told, as one line of ASCII: the verdict, and the id to ask by.

    The judgement's own words may name entries of a tenant's lists and tell how to pass next time: they are not for it.
    """
    if finished.ruling.decision is Decision.UNDECIDED:
        return f"The message could not be judged; try again later ({finished.ggrid})"
    return f"Refused: {finished.judgement.verdict} ({finished.ggrid})"
