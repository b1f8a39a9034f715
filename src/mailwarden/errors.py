"""Every error of the product, with the code that callers see, and validation errors in plain words."""

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

_TIME = "a time such as 2026-12-31T23:59:59Z"
JSON_TYPES: Mapping[str, str] = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "an object",
    "null": "null",
    "uuid": "a UUID",
    "datetime": _TIME,
}
YAML_TYPES: Mapping[str, str] = {
    **JSON_TYPES,
    "str": "text",
    "int": "a whole number",
    "float": "a decimal number",
    "array": "a list",
    "object": "a mapping",
    "null": "empty",
}
_WRONG_TYPE = re.compile(r"Expected `(.+)`, got `(.+)`")
_WRONG_LENGTH = re.compile(r"Expected `(str|array)` of length ([<>])= ([0-9]+)")
_OUT_OF_RANGE = re.compile(r"Expected `(?:int|float)` ([<>])= (\S+)")
_WRONG_PATTERN = re.compile(r"Expected `str` matching regex '(.+)'")
_LIMITS = {"<": "at most", ">": "at least"}
_SENTENCES = (
    ("Invalid UUID", "must be a UUID"),
    ("Invalid RFC3339 encoded datetime", f"must be {_TIME}"),
    ("Expected `datetime` with a timezone component", f"must have a time zone: {_TIME}"),
    ("Object contains unknown field", "has the unknown field"),
    ("Object missing required field", "lacks the required field"),
    ("Invalid enum value", "has the unknown value"),
)


class MailwardenError(Exception):
    """An error for callers: a code for programs, a sentence for people, and details."""

    code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        details: Sequence[Mapping[str, object]] = (),
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = tuple(details)
        self.retry_after = retry_after


class InternalError(MailwardenError):
    code = "internal_error"


# The request and its route


class NotFound(MailwardenError):
    code = "not_found"


class MethodNotAllowed(MailwardenError):
    code = "method_not_allowed"

    def __init__(self, message: str, *, allowed: Sequence[str]) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class BadRequest(MailwardenError):
    """The bytes are not a valid HTTP request."""

    code = "bad_request"


class RequestTimeout(MailwardenError):
    """The client sent its request too slowly."""

    code = "request_timeout"


# Authentication and permissions


class Unauthenticated(MailwardenError):
    code = "unauthenticated"

    def __init__(self, message: str, *, scheme: str = "Bearer") -> None:
        super().__init__(message)
        self.scheme = scheme


class InvalidCredentials(Unauthenticated):
    code = "invalid_credentials"


class Forbidden(MailwardenError):
    code = "forbidden"


class TenantForbidden(MailwardenError):
    code = "tenant_forbidden"


class GlobalScopeForbidden(MailwardenError):
    code = "global_scope_forbidden"


class LoginFailed(MailwardenError):
    """The login failed; the sentence never shows which part was wrong."""

    code = "login_failed"


class LinkInvalid(MailwardenError):
    """A setup link is unknown, used or expired."""

    code = "invalid_link"


class CursorExpired(MailwardenError):
    """Events after a cursor are no longer stored."""

    code = "cursor_expired"


class UnsuitablePassword(MailwardenError):
    code = "unsuitable_password"


# Syntax and shape of the input


class UnsupportedMediaType(MailwardenError):
    code = "unsupported_media_type"


class ParametersContentTypeRequired(MailwardenError):
    code = "parameters_content_type_required"


class MalformedMultipart(MailwardenError):
    code = "malformed_multipart"


class MissingPart(MailwardenError):
    code = "missing_part"


class DuplicatePart(MailwardenError):
    code = "duplicate_part"


class UnexpectedPart(MailwardenError):
    code = "unexpected_part"


class EmptyEmail(MailwardenError):
    code = "empty_email"


class InvalidJson(MailwardenError):
    code = "invalid_json"


class SchemaViolation(MailwardenError):
    code = "schema_violation"


class InvalidTenantUid(MailwardenError):
    code = "invalid_tenant_uid"


class PayloadTooLarge(MailwardenError):
    code = "payload_too_large"


class InvalidQuery(MailwardenError):
    """A search of history is invalid; the sentence has the reason and the position."""

    code = "invalid_query"


class SearchTooBroad(MailwardenError):
    """A search of history would take too long over its time range."""

    code = "search_too_broad"


# Objects that the request names


class TenantNotFound(MailwardenError):
    code = "tenant_not_found"


class MessageNotFound(MailwardenError):
    code = "message_not_found"


class ListNotFound(MailwardenError):
    code = "list_not_found"


class ReportNotFound(MailwardenError):
    code = "report_not_found"


class CaseNotFound(MailwardenError):
    code = "case_not_found"


class CaseClosed(MailwardenError):
    code = "case_closed"


class TrainingFull(MailwardenError):
    code = "training_full"


class MessageMismatch(MailwardenError):
    """The uploaded bytes are not those of the named message."""

    code = "message_mismatch"


class NotReleasable(MailwardenError):
    code = "not_releasable"


class IdempotencyConflict(MailwardenError):
    code = "idempotency_conflict"


class UserNotFound(MailwardenError):
    code = "user_not_found"


class KeyNotFound(MailwardenError):
    code = "key_not_found"


class ReceiverNotFound(MailwardenError):
    code = "receiver_not_found"


class NameTaken(MailwardenError):
    code = "name_taken"


class DomainTaken(MailwardenError):
    code = "domain_taken"


class LastAdministrator(MailwardenError):
    """The change would leave the deployment without an administrator."""

    code = "last_administrator"


# List entries


class TooManyEntries(MailwardenError):
    code = "too_many_entries"


class InvalidEntry(MailwardenError):
    code = "invalid_entry"


class EntryTooBroad(MailwardenError):
    """The entry is valid and would match the values of many owners."""

    code = "entry_too_broad"


class ListFull(MailwardenError):
    code = "list_full"


# Feeds into lists


class FeedRejected(MailwardenError):
    """A feed cannot be read to its end; nothing of the update is used."""

    code = "feed_rejected"


class FeedUnreachable(MailwardenError):
    """The source of a feed does not answer, or not with the feed."""

    code = "feed_unreachable"


class UpdateNotWaiting(MailwardenError):
    """The update was decided already, or the feed changed since."""

    code = "update_not_waiting"


# Temporary failures of the service


class RateLimited(MailwardenError):
    code = "rate_limited"


class CoreUnreachable(MailwardenError):
    """No guard could be reached."""

    code = "core_unreachable"


class CoreError(MailwardenError):
    """A guard sent an invalid response."""

    code = "core_error"


class ProviderUnreachable(MailwardenError):
    """The OpenID provider does not answer."""

    code = "provider_unreachable"


class Overloaded(MailwardenError):
    code = "overloaded"


class ScanningDisabled(MailwardenError):
    code = "scanning_disabled"


class StorageUnavailable(MailwardenError):
    code = "storage_unavailable"
    in_doubt = False  # the database did not answer a commit: the change may be stored or not


class UnknownRecordVersion(MailwardenError):
    """A stored record was written by another version of Mailwarden."""

    code = "unknown_record_version"


class ShuttingDown(MailwardenError):
    code = "shutting_down"


class EngineUnavailable(MailwardenError):
    code = "engine_unavailable"


class AnalysisTimeout(MailwardenError):
    code = "analysis_timeout"


# Errors that stop a process or a command


class ConfigurationError(MailwardenError):
    """The configuration has mistakes; the message lists each with its place."""

    code = "configuration_error"


class CommandError(MailwardenError):
    """A command cannot continue; the message has the reason and the remedy."""

    code = "command_error"


# Validation errors in plain words: the words of JSON for API callers, those of YAML for configuration files


def plain_problem(text: str, types: Mapping[str, str] = JSON_TYPES) -> str:
    """Return a validation error of msgspec as a predicate without Python types, such as `must be a UUID or null`."""
    text = text.partition(" - at ")[0]
    if found := _WRONG_TYPE.fullmatch(text):
        expected = " or ".join(types.get(each, each) for each in found[1].split(" | "))
        return f"must be {expected}, not {types.get(found[2], found[2])}"
    if found := _WRONG_LENGTH.fullmatch(text):
        number, unit = int(found[3]), "character" if found[1] == "str" else "item"
        return f"must have {_LIMITS[found[2]]} {number:,} {unit}{'' if number == 1 else 's'}"
    if found := _OUT_OF_RANGE.fullmatch(text):
        return f"must be {_LIMITS[found[1]]} {found[2]}"
    if found := _WRONG_PATTERN.fullmatch(text):
        return f"must match the pattern {found[1]}"
    for start, words in _SENTENCES:
        if text.startswith(start):
            return words + text.removeprefix(start)
    return f"{text[:1].lower()}{text[1:]}" if text[1:2].islower() else text
