"""One message for all its recipients, for clients that carry decisions out themselves and can be told one thing only.

The recipients of each tenant are judged apart, under an id of their own. The strictest of the answers is given: a
message that waits for one part waits for all, and one that is refused for some is refused, so that its sender hears.
"""

import time
from collections.abc import Mapping, Sequence
from enum import IntEnum

import structlog
from msgspec import Struct
from msgspec.structs import replace

from mailwarden.access.directory import TenantDirectory
from mailwarden.errors import SchemaViolation
from mailwarden.guard.processing import GuardRequest, Processing
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.model.tenant import Assignment
from mailwarden.serving.spool import Spooled

MAX_TENANTS = 20  # in one message; each is an analysis of its own
WARNED = "policy.warn"


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


class Appraisal(Struct, frozen=True):
    """The one answer, and the part of the message that it comes from."""

    answer: Answer
    leading: FinishedRequest


class Appraiser:
    def __init__(
        self, source: str, *, processing: Processing, tenants: TenantDirectory, patience: float, quarantine_as: str
    ) -> None:
        self._source = source
        self._processing = processing
        self._tenants = tenants
        self._patience = patience
        self._quarantine_as = QUARANTINE_AS[quarantine_as]

    async def appraise(self, envelope: Envelope, raw: Spooled) -> Appraisal:
        """Judge the message for one tenant after the other; the time for the analysis is theirs together."""
        groups = self._groups(envelope.recipients)
        until = time.monotonic() + self._patience
        examined = []
        for assignment, recipients in groups:
            ggrid = new_ggrid()
            structlog.contextvars.bind_contextvars(ggrid=str(ggrid))
            request = GuardRequest(
                ggrid=ggrid,
                source=self._source,
                envelope=replace(envelope, recipients=tuple(dict.fromkeys(recipients))),
                assignment=assignment,
                raw=raw,
                deadline=max(until - time.monotonic(), 0.0),
                session_open=True,
            )
            examined.append(await self._processing.examine(request))
        appraisal = join([each.finished for each in examined], self._quarantine_as)
        for each in examined:
            # A message that comes again is remembered for what was undecided alone: nothing happens to the rest of it.
            if appraisal.answer is not Answer.LATER or each.finished.ruling.decision is Decision.UNDECIDED:
                self._processing.keep(each)
        return appraisal

    def _groups(self, recipients: Sequence[str]) -> Sequence[tuple[Assignment, list[str]]]:
        """Return the recipients of each tenant; a message for nobody is the default tenant's."""
        if not recipients:
            return [(self._tenants.assign(None, ()), [])]
        tenants: dict[object, tuple[Assignment, list[str]]] = {}
        for recipient in recipients:
            assignment = self._tenants.assign(None, (recipient,))
            tenants.setdefault(assignment.tenant, (assignment, []))[1].append(recipient)
        if len(tenants) > MAX_TENANTS:
            raise SchemaViolation(f"A message may have recipients of at most {MAX_TENANTS} tenants.")
        return list(tenants.values())


def join(parts: Sequence[FinishedRequest], quarantine_as: Answer) -> Appraisal:
    """Return the strictest answer; what is to vanish for some of the recipients only is refused for all of them."""
    answers = [answer_of(part, quarantine_as) for part in parts]
    strictest = max(answers)
    leading = parts[answers.index(strictest)]
    if strictest is Answer.DISCARD and set(answers) != {Answer.DISCARD}:
        strictest = Answer.REFUSE
    return Appraisal(strictest, leading)


def answer_of(finished: FinishedRequest, quarantine_as: Answer) -> Answer:
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
            return Answer.MARK if WARNED in finished.tags else Answer.PASS


def sentence_of(finished: FinishedRequest) -> str:
    """Return what a sender is told, as one line of ASCII: the verdict, and the id to ask by.

    The judgement's own words may name entries of a tenant's lists and tell how to pass next time: they are not for it.
    """
    if finished.ruling.decision is Decision.UNDECIDED:
        return f"The message could not be judged; try again later ({finished.ggrid})"
    return f"Refused: {finished.judgement.verdict} ({finished.ggrid})"
