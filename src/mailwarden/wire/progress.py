"""What guard tells abby of an analysis while it goes on: one JSON record a line, the last one settles it."""

import msgspec
from msgspec import Raw, Struct

from mailwarden.model.evidence import Report
from mailwarden.wire.scanning import MessageAnalysisResult

MEDIA_TYPE = "application/x-ndjson"
MAX_LINE = 4 * 1024 * 1024


class AnalyzerDone(Struct, frozen=True, rename="camel", tag="analyzer"):
    """One analyzer has finished, failed or was skipped."""

    analyzer: str
    status: str
    milliseconds: float
    findings: int
    required: bool
    engine: str = ""
    failure: str = ""


class AnalysisDone(Struct, frozen=True, rename="camel", tag="result"):
    """The analysis is finished: the public result, and the finished guard request as history would keep it."""

    result: MessageAnalysisResult
    record: Raw


class AnalysisFailed(Struct, frozen=True, rename="camel", tag="error"):
    """The analysis ended without a result, by one of our errors."""

    error: str
    message: str
    retry_after: int | None = None


ProgressLine = AnalyzerDone | AnalysisDone | AnalysisFailed

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(ProgressLine)


def done_by(report: Report) -> AnalyzerDone:
    return AnalyzerDone(
        analyzer=report.analyzer,
        status=report.status,
        milliseconds=report.milliseconds,
        findings=len(report.findings),
        required=report.required,
        engine=report.engine,
        failure=report.failure.sentence if report.failure else "",
    )


def write_line(line: ProgressLine) -> bytes:
    return _encoder.encode(line) + b"\n"


def read_line(line: bytes) -> ProgressLine:
    """Read one line; what is none raises `msgspec.MsgspecError` or ValueError."""
    decoded: ProgressLine = _decoder.decode(line)
    return decoded
