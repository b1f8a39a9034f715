"""From a finished guard request to the public result: the six fields of the specification."""

from mailwarden.model.record import FinishedRequest
from mailwarden.wire.scanning import MessageAnalysisResult


def result_of(finished: FinishedRequest) -> MessageAnalysisResult:
    return MessageAnalysisResult(
        ggrid=finished.ggrid,
        created=finished.created,
        completed=finished.completed,
        decision=finished.ruling.decision,
        verdict=finished.judgement.verdict,
        tags=finished.tags,
    )
