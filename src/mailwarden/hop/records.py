"""The private protocol between abby and guard: the head of a scan request, guard's status, and progress lines.

The body of a scan request is the length of the head (4 bytes, big-endian), the head as JSON, and the message.
"""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct

from mailwarden.errors import UnsupportedMediaType
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Report
from mailwarden.model.scan import RawMessage, Scan
from mailwarden.model.tenant import RecipientGroup
from mailwarden.wire.scanning import CONTROL, MAX_ENVELOPE_TEXT, MAX_RECIPIENTS, address_mistake

REQUEST_ID_HEADER = "X-Request-Id"

REST_API = "restApi"  # the scan source of abby's messages
SUBMIT_PATH = "/v1/messageQueue/submitEmail"
GUARD_STATUS_PATH = "/v1/guard/status"
GUARD_CONFIGURATION_PATH = "/v1/guard/configuration"

SCAN_MEDIA_TYPE = "application/vnd.mailwarden.scan"
VERSION = 1  # of the head; one that the version before cannot read right needs two steps
LENGTH_BYTES = 4  # of the head's length
MAX_SCAN_HEAD = 8 * 1024 * 1024  # 1,000 tenants with 50 weights each and 1,000 recipients need less than half
MAX_MILLISECONDS = 2**31 - 1

MEDIA_TYPE = "application/x-ndjson"
MAX_LINE = 4 * 1024 * 1024

_encoder = msgspec.json.Encoder()


class ScanHead(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A scan without its message. Unknown fields are ignored: the following version may have added them."""

    version: int
    ggrid: UUID
    milliseconds: Annotated[int, Meta(ge=0, le=MAX_MILLISECONDS)]  # left for the analysis
    envelope: Envelope
    groups: Annotated[tuple[RecipientGroup, ...], Meta(min_length=1, max_length=MAX_RECIPIENTS)]
    stored: bool = True
    watched: bool = False


class _Version(Struct, frozen=True):
    version: int


_decode_head = msgspec.json.Decoder(ScanHead).decode
_decode_version = msgspec.json.Decoder(_Version).decode


def write_head(scan: Scan) -> bytes:
    """Return the bytes that precede the message of a scan."""
    left = (scan.deadline - time.monotonic()) * 1000
    head = ScanHead(
        version=VERSION,
        ggrid=scan.ggrid,
        milliseconds=int(min(max(left, 1), MAX_MILLISECONDS)),
        envelope=scan.envelope,
        groups=scan.groups,
        stored=scan.stored,
        watched=scan.watched,
    )
    text = _encoder.encode(head)
    return len(text).to_bytes(LENGTH_BYTES, "big") + text


def read_head(text: bytes) -> ScanHead:
    """Return the head; raise UnsupportedMediaType, or for a malformed one `msgspec.MsgspecError` or ValueError."""
    version = _decode_version(text).version
    if abs(version - VERSION) > 1:
        raise UnsupportedMediaType(
            f"The scan request has version {version}, this guard reads {VERSION - 1} to {VERSION + 1}: run versions of "
            "abby and guard that follow each other."
        )
    head = _decode_head(text)
    check_envelope(head.envelope)
    check_groups(head.groups, head.envelope.recipients)
    return head


def scan_of(head: ScanHead, message: RawMessage, source: str, request_id: str) -> Scan:
    """Return the scan that a head and its message are."""
    return Scan(
        source,
        head.envelope,
        head.groups,
        message,
        head.ggrid,
        time.monotonic() + head.milliseconds / 1000,
        request_id,
        head.stored,
        head.watched,
    )


def check_envelope(envelope: Envelope) -> None:
    """Raise ValueError for an envelope that the scanning API does not accept."""
    texts = (envelope.sender, *envelope.recipients, envelope.helo or "")
    if not 1 <= len(envelope.recipients) <= MAX_RECIPIENTS or max(map(len, texts)) > MAX_ENVELOPE_TEXT:
        raise ValueError("the envelope is larger than the scanning API accepts, or has no recipient")
    if any(map(CONTROL.search, texts)):
        raise ValueError("the envelope has control characters")
    if mistake := address_mistake(envelope):
        raise ValueError(": ".join(mistake))


def check_groups(groups: Sequence[RecipientGroup], recipients: Sequence[str]) -> None:
    """Raise ValueError unless each recipient is in exactly one group."""
    if len({group.tenant for group in groups}) != len(groups):
        raise ValueError("a tenant has two groups")
    if sorted(recipient for group in groups for recipient in group.recipients) != sorted(recipients):
        raise ValueError("a recipient is in no group, or in two")


class EngineState(Struct, frozen=True, rename="camel"):
    name: str
    up: bool
    required: bool
    detail: str = ""
    version: str = ""
    signatures: str = ""  # the version of the signatures in use, if the engine has signatures
    signatures_made: datetime | None = None


class GuardStatus(Struct, frozen=True, rename="camel"):
    """The state of one guard; abby computes the status colour from it."""

    name: str
    version: str
    in_processing: int
    max_in_processing: int
    engines: tuple[EngineState, ...]
    database_up: bool
    scanning_enabled: bool
    stopping: bool = False
    lists_loaded: bool = True  # whether guard has lists to scan with, of any age
    lists_lag_seconds: float | None = None  # their maximum age
    max_waiting: int = 0  # guard requests that may wait for admission in addition to those in processing
    worker_sandbox: tuple[str, ...] = ()  # the active layers of the worker sandbox; empty: it is disabled


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
    """The analysis is finished: the finished guard request as history stores it."""

    record: Raw


class AnalysisFailed(Struct, frozen=True, rename="camel", tag="error"):
    """The analysis ended with an error."""

    error: str
    message: str
    retry_after: int | None = None


ProgressLine = AnalyzerDone | AnalysisDone | AnalysisFailed

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
    """Parse one line; a malformed one raises `msgspec.MsgspecError` or ValueError."""
    decoded: ProgressLine = _decoder.decode(line)
    return decoded
