"""The private protocol between abby and guard: headers of a submission, guard's status, and progress lines."""

import base64
import zlib
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec import Raw, Struct

from mailwarden.model.evidence import Report
from mailwarden.model.tenant import AssignedBy, Assignment, Profile, RecipientGroup
from mailwarden.wire.scanning import MessageAnalysisResult

GGRID_HEADER = "Mailwarden-Ggrid"
DEADLINE_HEADER = "Mailwarden-Deadline-Ms"
REQUEST_ID_HEADER = "X-Request-Id"
GROUPS_HEADER = "Mailwarden-Groups"  # the recipients by tenant, see `write_groups`; several header lines if it is long
PROGRESS_HEADER = "Mailwarden-Progress"  # "yes": one line for each analyzer when it finishes, see `ProgressLine`
STORE_HEADER = "Mailwarden-Store"  # "no": the message is not stored in history and not counted as a hit of list entries

SUBMIT_PATH = "/v1/messageQueue/submitEmail"
GUARD_STATUS_PATH = "/v1/guard/status"
GUARD_CONFIGURATION_PATH = "/v1/guard/configuration"


MAX_GROUPS_TEXT = 524_288  # characters of all pieces: 1,000 tenants with 50 weights each need less than half
MAX_GROUPS_RAW = 8 * 1024 * 1024
PIECE = 8_000  # characters; an HTTP header has at most 8,190


class GroupRecord(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One tenant of a message; `recipients` are positions in the envelope, and empty if all belong to the tenant."""

    tenant: UUID
    by: AssignedBy
    profile: Profile
    weights: dict[str, int] = {}
    recipients: tuple[int, ...] = ()


_groups = msgspec.json.Decoder(tuple[GroupRecord, ...])


def write_groups(groups: Sequence[RecipientGroup], recipients: Sequence[str]) -> list[str]:
    """Return the values of GROUPS_HEADER: JSON, compressed, as Base64, cut into pieces."""
    places: dict[str, deque[int]] = {}
    for place, recipient in enumerate(recipients):
        places.setdefault(recipient, deque()).append(place)
    records = []
    for group in groups:
        own = () if len(groups) == 1 else tuple(places[recipient].popleft() for recipient in group.recipients)
        assigned = group.assignment
        records.append(GroupRecord(assigned.tenant, assigned.by, assigned.profile, assigned.weights, own))
    text = base64.b64encode(zlib.compress(msgspec.json.encode(records))).decode("ascii")
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def read_groups(pieces: Sequence[str]) -> tuple[GroupRecord, ...]:
    """Return the groups that `write_groups` wrote, or raise ValueError."""
    text = "".join(pieces)
    if not text or len(text) > MAX_GROUPS_TEXT:
        raise ValueError(f"{GROUPS_HEADER} is missing or too long")
    unpacking = zlib.decompressobj()
    try:
        raw = unpacking.decompress(base64.b64decode(text, validate=True), MAX_GROUPS_RAW)
    except zlib.error as error:
        raise ValueError(f"{GROUPS_HEADER}: {error}") from None
    records = _groups.decode(raw)
    if not records or not unpacking.eof:
        raise ValueError(f"{GROUPS_HEADER} has no group, or too much")
    return records


def groups_of(records: Sequence[GroupRecord], recipients: Sequence[str]) -> tuple[RecipientGroup, ...]:
    """Return the groups of an envelope, or raise ValueError unless each recipient is in exactly one group."""
    assignments = [Assignment(each.tenant, each.by, each.profile, each.weights) for each in records]
    if len({each.tenant for each in assignments}) != len(assignments):
        raise ValueError("a tenant has two groups")
    if len(records) == 1 and not records[0].recipients:
        return (RecipientGroup(assignments[0], tuple(recipients)),)
    if sorted(place for each in records for place in each.recipients) != list(range(len(recipients))):
        raise ValueError("a recipient is in no group, or in two")
    return tuple(
        RecipientGroup(assignment, tuple(recipients[place] for place in each.recipients))
        for assignment, each in zip(assignments, records, strict=True)
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
    """The analysis is finished: the public result, and the finished guard request as history stores it."""

    result: MessageAnalysisResult
    record: Raw


class AnalysisFailed(Struct, frozen=True, rename="camel", tag="error"):
    """The analysis ended with an error."""

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
    """Parse one line; a malformed one raises `msgspec.MsgspecError` or ValueError."""
    decoded: ProgressLine = _decoder.decode(line)
    return decoded
