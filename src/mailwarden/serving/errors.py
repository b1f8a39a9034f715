"""The table from error to HTTP status, and the function that turns an error into a response."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from aiohttp import web

from mailwarden import errors
from mailwarden.errors import MailwardenError, MethodNotAllowed, Unauthenticated
from mailwarden.wire.scanning import ErrorBody

STATUS_OF: Mapping[type[MailwardenError], HTTPStatus] = {
    errors.BadRequest: HTTPStatus.BAD_REQUEST,
    errors.MalformedMultipart: HTTPStatus.BAD_REQUEST,
    errors.MissingPart: HTTPStatus.BAD_REQUEST,
    errors.DuplicatePart: HTTPStatus.BAD_REQUEST,
    errors.UnexpectedPart: HTTPStatus.BAD_REQUEST,
    errors.EmptyEmail: HTTPStatus.BAD_REQUEST,
    errors.InvalidJson: HTTPStatus.BAD_REQUEST,
    errors.SchemaViolation: HTTPStatus.BAD_REQUEST,
    errors.InvalidTenantUid: HTTPStatus.BAD_REQUEST,
    errors.TooManyEntries: HTTPStatus.BAD_REQUEST,
    errors.InvalidQuery: HTTPStatus.BAD_REQUEST,
    errors.Unauthenticated: HTTPStatus.UNAUTHORIZED,
    errors.InvalidCredentials: HTTPStatus.UNAUTHORIZED,
    errors.LoginFailed: HTTPStatus.UNAUTHORIZED,
    errors.Forbidden: HTTPStatus.FORBIDDEN,
    errors.TenantForbidden: HTTPStatus.FORBIDDEN,
    errors.GlobalScopeForbidden: HTTPStatus.FORBIDDEN,
    errors.NotFound: HTTPStatus.NOT_FOUND,
    errors.TenantNotFound: HTTPStatus.NOT_FOUND,
    errors.MessageNotFound: HTTPStatus.NOT_FOUND,
    errors.ListNotFound: HTTPStatus.NOT_FOUND,
    errors.UserNotFound: HTTPStatus.NOT_FOUND,
    errors.KeyNotFound: HTTPStatus.NOT_FOUND,
    errors.ReceiverNotFound: HTTPStatus.NOT_FOUND,
    errors.ReportNotFound: HTTPStatus.NOT_FOUND,
    errors.CaseNotFound: HTTPStatus.NOT_FOUND,
    errors.MethodNotAllowed: HTTPStatus.METHOD_NOT_ALLOWED,
    errors.RequestTimeout: HTTPStatus.REQUEST_TIMEOUT,
    errors.IdempotencyConflict: HTTPStatus.CONFLICT,
    errors.ListFull: HTTPStatus.CONFLICT,
    errors.TrainingFull: HTTPStatus.CONFLICT,
    errors.CaseClosed: HTTPStatus.CONFLICT,
    errors.MessageMismatch: HTTPStatus.CONFLICT,
    errors.NotReleasable: HTTPStatus.CONFLICT,
    errors.NameTaken: HTTPStatus.CONFLICT,
    errors.DomainTaken: HTTPStatus.CONFLICT,
    errors.LastAdministrator: HTTPStatus.CONFLICT,
    errors.UpdateNotWaiting: HTTPStatus.CONFLICT,
    errors.LinkInvalid: HTTPStatus.GONE,
    errors.CursorExpired: HTTPStatus.GONE,
    errors.PayloadTooLarge: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    errors.UnsupportedMediaType: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.ParametersContentTypeRequired: HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    errors.InvalidEntry: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.UnsuitablePassword: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.EntryTooBroad: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.SearchTooBroad: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.FeedRejected: HTTPStatus.UNPROCESSABLE_ENTITY,
    errors.RateLimited: HTTPStatus.TOO_MANY_REQUESTS,
    errors.InternalError: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.UnknownRecordVersion: HTTPStatus.INTERNAL_SERVER_ERROR,
    errors.CoreUnreachable: HTTPStatus.BAD_GATEWAY,
    errors.CoreError: HTTPStatus.BAD_GATEWAY,
    errors.ProviderUnreachable: HTTPStatus.BAD_GATEWAY,
    errors.FeedUnreachable: HTTPStatus.BAD_GATEWAY,
    errors.Overloaded: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ScanningDisabled: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.StorageUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.ShuttingDown: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.EngineUnavailable: HTTPStatus.SERVICE_UNAVAILABLE,
    errors.AnalysisTimeout: HTTPStatus.GATEWAY_TIMEOUT,
}

DEFAULT_RETRY_AFTER = 2


def status_of(error: MailwardenError) -> HTTPStatus:
    return STATUS_OF.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)


def retry_after_of(error: MailwardenError) -> int | None:
    """Return the seconds of `Retry-After`; None for an error without this header."""
    retried = status_of(error) in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
    return (error.retry_after or DEFAULT_RETRY_AFTER) if retried else None


def answer_for(error: MailwardenError) -> web.Response:
    """Return the HTTP response for an error: status, body and headers."""
    status, retry_after = status_of(error), retry_after_of(error)
    headers = {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = f'{error.scheme} realm="mailwarden"'
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allowed)
    body = ErrorBody(error=error.code, message=error.message, details=tuple(map(dict, error.details)))
    return web.Response(status=status, body=msgspec.json.encode(body), content_type="application/json", headers=headers)
