"""What the API description says of each operation: its words, its record, and the errors it can answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from mailwarden import errors
from mailwarden.errors import MailwardenError
from mailwarden.policy.catalogue import Catalogue
from mailwarden.wire.explanation import ExplanationQuery, MessageExplanation
from mailwarden.wire.lists import AddEntries, AvailableLists, DeleteEntries, GetLists, ListEntries, ModifiedEntries
from mailwarden.wire.quarantine import DeleteQuery, Held, HeldMessages, QuarantineQuery, ReleaseOrder
from mailwarden.wire.reports import (
    Forgotten,
    Learning,
    MessageReportQuery,
    Report,
    ReportQuery,
    Reports,
    ReportsQuery,
    TenantQuery,
)
from mailwarden.wire.scanning import MessageAnalysisResult, SystemStatus

Errors = tuple[type[MailwardenError], ...]

ANYWHERE: Errors = (
    errors.BadRequest,
    errors.MethodNotAllowed,
    errors.RequestTimeout,
    errors.InternalError,
    errors.Overloaded,
    errors.ShuttingDown,
)
WITH_CREDENTIAL: Errors = (errors.Unauthenticated, errors.InvalidCredentials, errors.Forbidden)
SUBMISSION: Errors = (
    errors.PayloadTooLarge,
    errors.UnsupportedMediaType,
    errors.ParametersContentTypeRequired,
    errors.MalformedMultipart,
    errors.MissingPart,
    errors.DuplicatePart,
    errors.UnexpectedPart,
    errors.EmptyEmail,
    errors.InvalidJson,
    errors.SchemaViolation,
    errors.InvalidTenantUid,
    errors.TenantForbidden,
    errors.TenantNotFound,
    errors.IdempotencyConflict,
    errors.CoreUnreachable,
    errors.CoreError,
    errors.ScanningDisabled,
    errors.StorageUnavailable,
    errors.EngineUnavailable,
    errors.AnalysisTimeout,
)
LISTS: Errors = (
    errors.PayloadTooLarge,
    errors.UnsupportedMediaType,
    errors.InvalidJson,
    errors.SchemaViolation,
    errors.InvalidTenantUid,
    errors.TenantForbidden,
    errors.GlobalScopeForbidden,
    errors.TenantNotFound,
    errors.RateLimited,
    errors.StorageUnavailable,
)
OF_TENANT: Errors = (
    errors.SchemaViolation,
    errors.InvalidTenantUid,
    errors.TenantForbidden,
    errors.TenantNotFound,
    errors.StorageUnavailable,
)
MESSAGE_BODY: Errors = (errors.PayloadTooLarge, errors.UnsupportedMediaType, errors.EmptyEmail, errors.LearningFull)
LISTED: Errors = (errors.GlobalScopeForbidden, errors.ListFull)
HELD: Errors = (errors.MessageNotFound, errors.StorageUnavailable)
NAMED_LIST: Errors = (*LISTS, errors.ListNotFound)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as the description shows it; `record` None means an answer that is not a JSON record.

    `body` is the JSON record it takes, `query` the record that its query is read as, and `takes_message` tells
    whether a raw message must come, may come or is not expected. Those of the List API take an API key instead of a
    token.
    """

    name: str
    summary: str
    record: type[Struct] | None = None
    errors: Errors = ()
    takes_upload: bool = False
    media_type: str = "application/json"
    body: type[Struct] | None = None
    takes_key: bool = False
    query: type[Struct] | None = None
    takes_message: Literal["must", "may", "never"] = "never"
    status: int = 200


OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/messageQueue/submitEmail"): Operation(
        "submitEmail",
        "Submit a message and wait for its analysis.",
        MessageAnalysisResult,
        SUBMISSION,
        takes_upload=True,
    ),
    ("POST", "/v1/admin/status"): Operation("getStatus", "Request the system status.", SystemStatus),
    ("GET", "/v1/messages/{ggrid}"): Operation(
        "explainMessage",
        "Show why a message was judged as it was.",
        MessageExplanation,
        (errors.SchemaViolation, errors.InvalidTenantUid, errors.MessageNotFound, errors.StorageUnavailable),
        query=ExplanationQuery,
    ),
    ("POST", "/v1/messages/{ggrid}/report"): Operation(
        "reportMessage",
        "Say what a message is that was scanned; it is learned from if it comes as well, exactly as it was scanned.",
        Report,
        (
            errors.SchemaViolation,
            errors.InvalidTenantUid,
            *MESSAGE_BODY,
            errors.MessageNotFound,
            errors.OtherMessage,
            errors.StorageUnavailable,
        ),
        query=MessageReportQuery,
        takes_message="may",
        status=202,
    ),
    ("POST", "/v1/reports"): Operation(
        "reportContents",
        "Say what a message is, and have it learned from.",
        Report,
        (*OF_TENANT, *MESSAGE_BODY),
        query=ReportQuery,
        takes_message="must",
        status=202,
    ),
    ("GET", "/v1/reports"): Operation(
        "listReports", "Show a tenant's reports, the newest first.", Reports, OF_TENANT, query=ReportsQuery
    ),
    ("DELETE", "/v1/reports/{uid}"): Operation(
        "takeReportBack",
        "Undo a report and train again without it.",
        None,
        (errors.LessonNotFound, errors.StorageUnavailable),
        status=204,
    ),
    ("GET", "/v1/learning"): Operation(
        "getLearning", "Show how much a tenant has learned from reports.", Learning, OF_TENANT, query=TenantQuery
    ),
    ("DELETE", "/v1/learning"): Operation(
        "resetLearning",
        "Forget all reports of a tenant and what was learned from them.",
        Forgotten,
        OF_TENANT,
        query=TenantQuery,
    ),
    ("GET", "/v1/quarantine"): Operation(
        "listHeldMessages",
        "Show held messages, the newest first.",
        HeldMessages,
        (errors.SchemaViolation, errors.InvalidTenantUid, *HELD),
        query=QuarantineQuery,
    ),
    ("GET", "/v1/quarantine/{uid}"): Operation(
        "showHeldMessage", "Show a held message with its state for each recipient.", Held, HELD
    ),
    ("GET", "/v1/quarantine/{uid}/message"): Operation(
        "downloadHeldMessage",
        "Take the message itself out, as harmful as it came.",
        None,
        (*HELD, errors.NotReleasable),
        media_type="message/rfc822",
    ),
    ("POST", "/v1/quarantine/{uid}/release"): Operation(
        "releaseHeldMessage",
        "Have a held message delivered to all who wait for it, or to some; a guard does it within seconds.",
        Held,
        (
            errors.PayloadTooLarge,
            errors.UnsupportedMediaType,
            errors.InvalidJson,
            errors.SchemaViolation,
            errors.NotReleasable,
            *HELD,
            *LISTED,
        ),
        body=ReleaseOrder,
        status=202,
    ),
    ("DELETE", "/v1/quarantine/{uid}"): Operation(
        "deleteHeldMessage",
        "Delete a held message for all who wait for it, or for one.",
        Held,
        (errors.SchemaViolation, errors.NotReleasable, *HELD, *LISTED),
        query=DeleteQuery,
    ),
    ("POST", "/api/public/lists/v1/addEntries"): Operation(
        "addEntries",
        "Add or update entries of one list, all or none.",
        ModifiedEntries,
        (*NAMED_LIST, errors.TooManyEntries, errors.InvalidEntry, errors.EntryTooBroad, errors.ListFull),
        body=AddEntries,
        takes_key=True,
    ),
    ("POST", "/api/public/lists/v1/deleteEntries"): Operation(
        "deleteEntries",
        "Delete entries of one list; missing entries are ignored.",
        ModifiedEntries,
        (*NAMED_LIST, errors.TooManyEntries),
        body=DeleteEntries,
        takes_key=True,
    ),
    ("POST", "/api/public/lists/v1/getLists"): Operation(
        "getLists", "Show all lists of one scope.", AvailableLists, LISTS, body=GetLists, takes_key=True
    ),
    ("POST", "/api/public/lists/v1/listEntries"): Operation(
        "listEntries",
        "Stream all entries of one list, one record a line, from one snapshot.",
        None,
        NAMED_LIST,
        media_type="application/x-ndjson",
        body=ListEntries,
        takes_key=True,
    ),
    ("GET", "/metrics"): Operation("getMetrics", "Show the figures of this process.", media_type="text/plain"),
    ("GET", "/healthz"): Operation("getHealth", "Return whether the process is alive.", media_type="text/plain"),
    ("GET", "/readyz"): Operation("getReadiness", "Return whether the process is ready.", media_type="text/plain"),
    ("GET", "/openapi.json"): Operation("getDescription", "Show this description."),
    ("GET", "/v1/catalogue"): Operation("getCatalogue", "Show every verdict, tag and rule.", Catalogue),
}
