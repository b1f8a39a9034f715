"""What the API description says of each operation: its words, its record, and the errors it can answer."""

from collections.abc import Mapping
from dataclasses import dataclass

from msgspec import Struct

from mailwarden import errors
from mailwarden.errors import MailwardenError
from mailwarden.policy.catalogue import Catalogue
from mailwarden.wire.explanation import MessageExplanation
from mailwarden.wire.lists import AddEntries, AvailableLists, DeleteEntries, GetLists, ListEntries, ModifiedEntries
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
NAMED_LIST: Errors = (*LISTS, errors.ListNotFound)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as the description shows it; `record` None means an answer that is not a JSON record.

    `body` is the JSON record it takes. Those of the List API take an API key instead of a token.
    """

    name: str
    summary: str
    record: type[Struct] | None = None
    errors: Errors = ()
    takes_upload: bool = False
    media_type: str = "application/json"
    body: type[Struct] | None = None
    takes_key: bool = False


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
        (errors.MessageNotFound, errors.StorageUnavailable),
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
        "Delete entries of one list; what does not exist is ignored.",
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
    ("GET", "/healthz"): Operation("getHealth", "Tell whether the process is alive.", media_type="text/plain"),
    ("GET", "/readyz"): Operation("getReadiness", "Tell whether it is ready for work.", media_type="text/plain"),
    ("GET", "/openapi.json"): Operation("getDescription", "Show this description."),
    ("GET", "/v1/catalogue"): Operation("getCatalogue", "Show every verdict, tag and rule.", Catalogue),
}
