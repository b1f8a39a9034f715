"""The private protocol between abby and guard: the head of a scan request, guard's status, and progress lines.

The body of a scan request is the length of the head (4 bytes, big-endian), the head as JSON, and the message.
"""

from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta, Raw, Struct

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Report
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup
from mailwarden.wire.scanning import (
    MAX_RECIPIENTS,
    BorderMtaData,
    MessageAnalysisRequest,
    MessageAnalysisResult,
    checked,
    envelope_of,
)

REQUEST_ID_HEADER = "X-Request-Id"

SUBMIT_PATH = "/v1/messageQueue/submitEmail"
GUARD_STATUS_PATH = "/v1/guard/status"
GUARD_CONFIGURATION_PATH = "/v1/guard/configuration"

SCAN_MEDIA_TYPE = "application/vnd.mailwarden.scan"
LENGTH_BYTES = 4  # of the head's length
MAX_SCAN_HEAD = 8 * 1024 * 1024  # 1,000 tenants with 50 weights each and 1,000 recipients need less than half
MAX_DEADLINE_MS = 2**31 - 1

MEDIA_TYPE = "application/x-ndjson"
MAX_LINE = 4 * 1024 * 1024

_encoder = msgspec.json.Encoder()


class GroupRecord(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """One tenant of a message; `recipients` are positions in the envelope, and empty if all belong to the tenant."""

    tenant: UUID
    by: AssignedBy
    profile: Profile
    weights: dict[str, int] = {}
    recipients: Annotated[tuple[int, ...], Meta(max_length=MAX_RECIPIENTS)] = ()


class ScanHead(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """The parameters of one scan."""

    ggrid: UUID
    deadline_ms: Annotated[int, Meta(ge=0, le=MAX_DEADLINE_MS)]  # left for the analysis
    border_mta_data: BorderMtaData
    groups: Annotated[tuple[GroupRecord, ...], Meta(min_length=1, max_length=MAX_RECIPIENTS)]
    stored: bool = True  # whether history stores the message, and list entries count it as a hit
    watched: bool = False  # whether guard answers with a line for each analyzer that finishes, see `ProgressLine`


_decode_head = msgspec.json.Decoder(ScanHead).decode


def write_scan_head(head: ScanHead) -> bytes:
    """Return the bytes that precede the message."""
    text = _encoder.encode(head)
    return len(text).to_bytes(LENGTH_BYTES, "big") + text


def read_scan_head(text: bytes) -> tuple[ScanHead, Envelope, tuple[RecipientGroup, ...]]:
    """Return the head with its envelope and recipients by tenant.

    A malformed head raises `msgspec.MsgspecError`, ValueError or SchemaViolation.
    """
    head = _decode_head(text)
    envelope = envelope_of(checked(MessageAnalysisRequest(head.border_mta_data)))
    return head, envelope, groups_of(head.groups, envelope.recipients)


def border_of(envelope: Envelope) -> BorderMtaData:
    """Return the record of an envelope, from which `envelope_of` makes the same envelope."""
    return BorderMtaData(envelope.sender, envelope.recipients, envelope.remote_address, envelope.helo)


def records_of(groups: Sequence[RecipientGroup], recipients: Sequence[str]) -> tuple[GroupRecord, ...]:
    """Return the groups of an envelope as records."""
    if len(groups) == 1:
        return (_record_of(groups[0].assignment, ()),)
    places: dict[str, deque[int]] = {}
    for place, recipient in enumerate(recipients):
        places.setdefault(recipient, deque()).append(place)
    return tuple(
        _record_of(group.assignment, tuple(places[recipient].popleft() for recipient in group.recipients))
        for group in groups
    )


def _record_of(assigned: Assignment, places: tuple[int, ...]) -> GroupRecord:
    return GroupRecord(assigned.tenant, assigned.by, assigned.profile, assigned.weights, places)


def groups_of(records: Sequence[GroupRecord], recipients: Sequence[str]) -> tuple[RecipientGroup, ...]:
    """Return the groups of an envelope, or raise ValueError unless each recipient is in exactly one group."""
    assignments = [Assignment(group.tenant, group.by, group.profile, group.weights) for group in records]
    if len(records) == 1 and not records[0].recipients:
        return (RecipientGroup(assignments[0], tuple(recipients)),)
    if len({assignment.tenant for assignment in assignments}) != len(assignments):
        raise ValueError("a tenant has two groups")
    if sorted(place for group in records for place in group.recipients) != list(range(len(recipients))):
        raise ValueError("a recipient is in no group, or in two")
    return tuple(
        RecipientGroup(assignment, tuple(recipients[place] for place in group.recipients))
        for assignment, group in zip(assignments, records, strict=True)
    )


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
    """The analysis is finished: the public result, and the finished guard request as history stores it."""

    result: MessageAnalysisResult
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
