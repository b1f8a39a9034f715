"""The errors of a call: one class for each possible reaction of the caller, with all fields of the response.

Security: any server may answer at the address; an unreadable response becomes an error.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

MAX_SHOWN = 200


class ApiError(Exception):
    """A call failed: `code` for programs, `message` for people, `details` and `request_id` if present.

    `acknowledged` counts the entries of an `add` or `delete` in the calls that succeeded before the failed one; the
    `index` in `details` of `invalid_entry` and `entry_too_broad` starts after them.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "",
        status: int = 0,
        details: Sequence[Mapping[str, object]] = (),
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.details = tuple(details)
        self.request_id = request_id
        self.retry_after = retry_after
        self.acknowledged = 0

    def __str__(self) -> str:
        named = f"{self.code}: {self.message}" if self.code else self.message
        return f"{named} (request {self.request_id})" if self.request_id else named


class CallRefused(ApiError):
    """The call is invalid and a retry does not help: invalid or too broad entries, a wrong shape, too large."""


class KeyRefused(ApiError):
    """The key is missing, unknown, revoked or expired."""


class ScopeRefused(ApiError):
    """The key lacks the permission, or the permission for this scope."""


class NotFound(ApiError):
    """The list, the tenant, or the List API at this address does not exist."""


class ListFull(ApiError):
    """The entries would exceed the list's maxSize."""


class Unavailable(ApiError):
    """The service is unavailable; the call was retried if a retry is useful."""


class Unreachable(ApiError):
    """There was no complete response: wrong address, network failure, or invalid certificate."""


class StreamCut(ApiError):
    """A stream of entries ended early; the entries that were read are not the whole list."""


class _Body(Struct, frozen=True):
    """An error in the format of the API; another server may send anything."""

    error: str = ""
    message: str = ""
    details: tuple[dict[str, object], ...] = ()


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: KeyRefused,
    403: ScopeRefused,
    404: NotFound,
    409: ListFull,
    429: Unavailable,
}


def read_failure(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error of a response other than 200."""
    try:
        told = msgspec.json.decode(body, type=_Body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        told = _Body()
    kind = _BY_STATUS.get(status, Unavailable if status >= 500 else CallRefused)
    return kind(
        told.message or f"The answer was {status}: {body[:MAX_SHOWN].decode('utf-8', 'replace').strip() or 'nothing'}",
        code=told.error or f"http_{status}",
        status=status,
        details=told.details,
        request_id=headers.get("X-Request-Id", ""),
        retry_after=_seconds(headers.get("Retry-After", "")),
    )


def _seconds(text: str) -> float | None:
    """Return the seconds of Retry-After; a date is ignored, because the service never sends one."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
