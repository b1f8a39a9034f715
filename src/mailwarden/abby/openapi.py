"""The OpenAPI description of the HTTP APIs, built from the routes, the wire records and the table of operations."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from msgspec import Struct

from mailwarden import errors
from mailwarden.abby.openapi_schemas import REFERENCE, Schema, reference, schemas_of
from mailwarden.access.permissions import ApiPermission
from mailwarden.errors import MailwardenError
from mailwarden.event_delivery.requests import EventPage, EventsQuery
from mailwarden.history.requests import (
    CountQuery,
    FoundMessage,
    FoundMessages,
    MessageCount,
    MessagesQuery,
    SearchOrder,
    StatisticsQuery,
    StreamEnd,
    TenantStatistics,
)
from mailwarden.lists.requests import (
    AddEntries,
    AvailableLists,
    DeleteEntries,
    GetLists,
    ListEntries,
    ModifiedEntries,
    PublicListsEntry,
)
from mailwarden.policy.catalogue import Catalogue
from mailwarden.policy.explanation import ExplanationQuery, MessageExplanation
from mailwarden.quarantine.requests import (
    DeleteQuery,
    Held,
    HeldMessages,
    HeldState,
    Listed,
    QuarantineQuery,
    ReleaseOrder,
)
from mailwarden.serving.errors import STATUS_OF
from mailwarden.serving.http_app import API_VERSION, Route
from mailwarden.serving.ndjson import NDJSON
from mailwarden.serving.uploads import MAX_BODY
from mailwarden.user_reports.requests import (
    Forgotten,
    Learning,
    MessageReportQuery,
    Report,
    ReportKind,
    ReportQuery,
    Reports,
    ReportsQuery,
    TenantQuery,
)
from mailwarden.wire.scanning import (
    ErrorBody,
    MessageAnalysisRequest,
    MessageAnalysisResult,
    SystemStatus,
)

Errors = tuple[type[MailwardenError], ...]

ANYWHERE: Errors = (
    errors.BadRequest,
    errors.MethodNotAllowed,
    errors.RequestTimeout,
    errors.InternalError,
    errors.Overloaded,
    errors.ShuttingDown,
)
WITH_CREDENTIAL: Errors = (
    errors.Unauthenticated,
    errors.InvalidCredentials,
    errors.Forbidden,
    errors.StorageUnavailable,  # API keys are in the database
)
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
SEARCH: Errors = (*OF_TENANT, errors.SearchTooBroad, errors.RateLimited)
HELD: Errors = (errors.MessageNotFound, errors.StorageUnavailable)
NAMED_LIST: Errors = (*LISTS, errors.ListNotFound)


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the description; `record` is None if the response is not a JSON record.

    `body` is the JSON record of the request, `query` the record of its query, and `takes_message` states whether a
    raw message is required, optional or not expected.
    """

    name: str
    summary: str
    record: type[Struct] | None = None
    errors: Errors = ()
    takes_upload: bool = False
    media_type: str = "application/json"
    streams: str = ""  # the lines of a response to callers that accept NDJSON
    body: type[Struct] | None = None
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
    ("GET", "/v1/messages"): Operation(
        "searchMessages",
        "Search messages; one page, or all messages as a stream with `Accept: application/x-ndjson`.",
        FoundMessages,
        (*SEARCH, errors.InvalidQuery),
        query=MessagesQuery,
        streams="One FoundMessage a line, and one StreamEnd last; a stream without it was cut.",
    ),
    ("GET", "/v1/messages/count"): Operation(
        "countMessages",
        "Count the messages of a search.",
        MessageCount,
        (*SEARCH, errors.InvalidQuery),
        query=CountQuery,
    ),
    ("GET", "/v1/statistics"): Operation(
        "getStatistics",
        "Count messages by day, verdict and decision, and name who was attacked most.",
        TenantStatistics,
        SEARCH,
        query=StatisticsQuery,
    ),
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
            errors.MessageMismatch,
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
        (errors.ReportNotFound, errors.StorageUnavailable),
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
    ("GET", "/v1/events"): Operation(
        "listEvents",
        "Show the events after a cursor in their order; `wait` waits for the next one.",
        EventPage,
        (
            errors.SchemaViolation,
            errors.InvalidTenantUid,
            errors.TenantForbidden,
            errors.TenantNotFound,
            errors.CursorExpired,
            errors.RateLimited,
            errors.StorageUnavailable,
        ),
        query=EventsQuery,
    ),
    ("GET", "/v1/events/schemas"): Operation("getEventSchemas", "Show the JSON schema of every event type."),
    ("POST", "/api/public/lists/v1/addEntries"): Operation(
        "addEntries",
        "Add or update entries of one list, all or none.",
        ModifiedEntries,
        (*NAMED_LIST, errors.TooManyEntries, errors.InvalidEntry, errors.EntryTooBroad, errors.ListFull),
        body=AddEntries,
    ),
    ("POST", "/api/public/lists/v1/deleteEntries"): Operation(
        "deleteEntries",
        "Delete entries of one list; missing entries are ignored.",
        ModifiedEntries,
        (*NAMED_LIST, errors.TooManyEntries),
        body=DeleteEntries,
    ),
    ("POST", "/api/public/lists/v1/getLists"): Operation(
        "getLists", "Show all lists of one scope.", AvailableLists, LISTS, body=GetLists
    ),
    ("POST", "/api/public/lists/v1/listEntries"): Operation(
        "listEntries",
        "Stream all entries of one list, one record a line, from one snapshot.",
        None,
        NAMED_LIST,
        media_type=NDJSON,
        body=ListEntries,
    ),
    ("GET", "/metrics"): Operation("getMetrics", "Show the figures of this process.", media_type="text/plain"),
    ("GET", "/healthz"): Operation("getHealth", "Return whether the process is alive.", media_type="text/plain"),
    ("GET", "/readyz"): Operation("getReadiness", "Return whether the process is ready.", media_type="text/plain"),
    ("GET", "/openapi.json"): Operation("getDescription", "Show this description."),
    ("GET", "/v1/catalogue"): Operation("getCatalogue", "Show every verdict, tag and rule.", Catalogue),
}


_SCANNING = (MessageAnalysisRequest, MessageAnalysisResult, SystemStatus, ErrorBody, MessageExplanation, Catalogue)
_LISTS = (AddEntries, DeleteEntries, GetLists, ListEntries, ModifiedEntries, AvailableLists, PublicListsEntry)
_REPORTS = (Report, ReportKind, Reports, Learning, Forgotten)
_QUARANTINE = (Held, HeldMessages, HeldState, Listed, ReleaseOrder)
_MESSAGES = (FoundMessage, FoundMessages, StreamEnd, MessageCount, TenantStatistics, SearchOrder)
_RECORDS = (*_SCANNING, *_MESSAGES, *_LISTS, *_REPORTS, *_QUARANTINE, EventPage)
_KEY: Schema = {
    "type": "apiKey",
    "in": "header",
    "name": "Authorization",
    "description": "`apikey` and the API key, with a space between them.",
}


def describe(routes: Sequence[Route]) -> bytes:
    """Return the description of these routes as JSON."""
    paths: dict[str, dict[str, Schema]] = {}
    for route in routes:
        operation = OPERATIONS[route.method, route.path]
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, operation)
    document = {
        "openapi": "3.1.0",
        "info": {
            "title": "Mailwarden Email Scanning API and List API",
            "version": API_VERSION,
            "description": "A raw message goes in; a decision, a verdict and tags come out. Lists act on it.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas_of(_RECORDS),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}, "key": _KEY},
            "headers": {"X-Request-Id": {"description": "Names this call in the logs.", "schema": {"type": "string"}}},
        },
    }
    return msgspec.json.encode(document, order="deterministic")


def _operation(route: Route, operation: Operation) -> Schema:
    found: Schema = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": {str(operation.status): _success(operation), **_failures(route, operation)},
    }
    parameters = _parameters(route, operation)
    if parameters:
        found["parameters"] = parameters
    if route.permission is not None:
        found["security"], found["description"] = _credentials(ApiPermission[route.permission])
    if operation.takes_upload:
        found["requestBody"] = _upload()
    if operation.takes_message != "never":
        found["requestBody"] = _message(operation)
    if operation.body is not None:
        body = reference(operation.body.__name__)
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return found


def _credentials(permission: ApiPermission) -> tuple[list[Schema], str]:
    """Return the credentials that an operation takes, and the sentence about them."""
    if permission.token is None:
        return [{"key": []}], f"Needs the scope `{permission.scope}`."
    if permission.scope is None:
        return [{"token": []}], f"Needs the permission `{permission.token}`."
    sentence = f"Needs a token with the permission `{permission.token}`, or an API key with the scope "
    return [{"token": []}, {"key": []}], f"{sentence}`{permission.scope}`."


def _parameters(route: Route, operation: Operation) -> list[Schema]:
    uuid = {"type": "string", "format": "uuid"}
    parameters: list[Schema] = [
        {"name": name, "in": "path", "required": True, "schema": uuid} for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    if operation.query is not None:
        parameters.extend(_query(operation.query))
    if operation.takes_upload:
        schema = {"type": "string", "pattern": r"^[\x21-\x7e]{1,255}$"}
        text = "The same key with the same body within 24 hours answers the first result again."
        parameters.append({"name": "Idempotency-Key", "in": "header", "description": text, "schema": schema})
    return parameters


def _query(record: type[Struct]) -> Iterator[Schema]:
    """Yield the query parameters of a record."""
    _, components = msgspec.json.schema_components([record], ref_template=REFERENCE)
    required = components[record.__name__]["required"]
    for name, schema in components[record.__name__]["properties"].items():
        yield {"name": name, "in": "query", "required": name in required, "schema": schema}


def _message(operation: Operation) -> Schema:
    schema = {"type": "string", "format": "binary", "minLength": 1}
    return {
        "required": operation.takes_message == "must",
        "description": f"The raw message, at most {MAX_BODY} bytes.",
        "content": {"message/rfc822": {"schema": schema}},
    }


def _upload() -> Schema:
    schema = {
        "type": "object",
        "required": ["parameters", "email"],
        "additionalProperties": False,
        "properties": {
            "parameters": reference("MessageAnalysisRequest"),
            "email": {"type": "string", "format": "binary", "minLength": 1, "description": "The raw message."},
        },
    }
    encoding = {"parameters": {"contentType": "application/json"}, "email": {"contentType": "message/rfc822"}}
    content = {"multipart/form-data": {"schema": schema, "encoding": encoding}}
    return {"required": True, "description": f"At most {MAX_BODY} bytes.", "content": content}


def _success(operation: Operation) -> Schema:
    schema: Schema = {"type": "string"}
    if operation.media_type == "application/json":
        schema = {"type": "object"}
    elif operation.media_type in (NDJSON, "message/rfc822"):
        schema = {"type": "string", "format": "binary"}
    if operation.record is not None:
        schema = reference(operation.record.__name__)
    found: Schema = {"description": "Success.", "headers": _headers()}
    if operation.status == 204:
        return found
    if operation.media_type == NDJSON:
        found["description"] = "One PublicListsEntry a line, ordered by entry; X-Entry-Count says how many."
        found["headers"] = {**_headers(), "X-Entry-Count": {"schema": {"type": "string", "pattern": "^[0-9]+$"}}}
    found["content"] = {operation.media_type: {"schema": schema}}
    if operation.streams:
        found["description"] = f"Success. As {NDJSON}: {operation.streams}"
        found["content"] = {
            "application/json": {"schema": schema},
            NDJSON: {"schema": {"type": "string", "format": "binary"}},
        }
    if operation.takes_upload:
        explanation = {"operationId": "explainMessage", "parameters": {"ggrid": "$response.body#/ggrid"}}
        found["links"] = {"explanation": explanation}
    return found


def _failures(route: Route, operation: Operation) -> dict[str, Schema]:
    """Return one response per status with its possible error codes."""
    kinds: Errors = (*ANYWHERE, *(WITH_CREDENTIAL if route.permission else ()), *operation.errors)
    codes: dict[int, set[str]] = {}
    for kind in kinds:
        codes.setdefault(STATUS_OF[kind], set()).add(kind.code)
    found: dict[str, Schema] = {}
    for status, names in sorted(codes.items()):
        content: Schema = {"application/json": {"schema": reference("Error")}}
        if route.path == "/readyz" and status == 503:
            content["text/plain"] = {"schema": {"type": "string"}}
        # One model for all errors; the possible codes are an extension beside it.
        found[str(int(status))] = {
            "description": ", ".join(sorted(names)),
            "headers": _headers(),
            "content": content,
            "x-error-codes": sorted(names),
        }
    return found


def _headers() -> Schema:
    return {"X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"}}
