"""Every error of the product, with the code that callers see."""

from collections.abc import Mapping, Sequence
from typing import ClassVar


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


class LinkSpent(MailwardenError):
    """A setup link is unknown, used or expired."""

    code = "link_spent"


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


class LessonNotFound(MailwardenError):
    code = "report_not_found"


class LearningFull(MailwardenError):
    code = "learning_full"


class OtherMessage(MailwardenError):
    """The uploaded bytes are not those of the named message."""

    code = "other_message"


class NotReleasable(MailwardenError):
    code = "not_releasable"


class IdempotencyConflict(MailwardenError):
    code = "idempotency_conflict"


class PersonNotFound(MailwardenError):
    code = "person_not_found"


class KeyNotFound(MailwardenError):
    code = "key_not_found"


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
