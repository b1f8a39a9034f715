"""The errors of a call: one class for each possible reaction of the caller, with all fields of the response.

Security: any server may answer at the address; an unreadable response becomes an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

MAX_SHOWN = 200


class ApiError(Exception):
    """A call failed: `code` for programs, `message` for people, `details` and `request_id` if present.

    `acknowledged` counts the entries of `add_entries` or `delete_entries` in the calls that succeeded before the failed
    one; the `index` in `details` of `invalid_entry` and `entry_too_broad` starts after them.
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
    """The call is invalid and a retry does not help: a wrong shape, invalid entries, an invalid search, too large."""


class KeyRefused(ApiError):
    """The credential is missing, unknown, revoked or expired."""


class ScopeRefused(ApiError):
    """The credential lacks the permission, or may not use this tenant."""


class NotFound(ApiError):
    """The message, list, report, tenant or API at this address does not exist."""


class Conflict(ApiError):
    """The call does not fit the present state, for example a message that is not held any more."""


class ListFull(Conflict):
    """The entries would exceed the list's maxSize."""


class CursorExpired(ApiError):
    """The events after this cursor were deleted; start again without a cursor, or with the oldest one."""


class Unavailable(ApiError):
    """The service is unavailable; the call was retried if a retry is useful."""


class Unreachable(ApiError):
    """There was no complete response: wrong address, network failure, or invalid certificate.

    `sent` is False if the connection failed before the request was sent: then the service did nothing.
    """

    sent = True


class StreamCut(ApiError):
    """A stream ended early; the records that arrived are not all."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: KeyRefused,
    403: ScopeRefused,
    404: NotFound,
    409: Conflict,
    410: CursorExpired,
    429: Unavailable,
}
_BY_CODE: Mapping[str, type[ApiError]] = {"list_full": ListFull}


def read_failure(status: int, headers: Mapping[str, str], body: bytes) -> ApiError:
    """Return the error of a response other than 2xx."""
    code, message, details = _read_body(body)
    kind = _BY_CODE.get(code) or _BY_STATUS.get(status, Unavailable if status >= 500 else CallRefused)
    return kind(
        message or f"The answer was {status}: {body[:MAX_SHOWN].decode('utf-8', 'replace').strip() or 'nothing'}",
        code=code or f"http_{status}",
        status=status,
        details=details,
        request_id=headers.get("X-Request-Id", ""),
        retry_after=_seconds(headers.get("Retry-After", "")),
    )


def unreadable(reason: str) -> ApiError:
    """Return the error of a response that is not one of this API."""
    return ApiError(f"The answer cannot be read: {reason}.", code="unreadable_answer")


def _read_body(body: bytes) -> tuple[str, str, list[Mapping[str, object]]]:
    """Return code, message and details; empty if another server answered."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return "", "", []
    if not isinstance(found, dict):
        return "", "", []
    code, message, details = found.get("error"), found.get("message"), found.get("details")
    if not isinstance(code, str):
        return "", "", []
    rows: list[Mapping[str, object]] = (
        [each for each in details if isinstance(each, dict)] if isinstance(details, list) else []
    )
    return code, message if isinstance(message, str) else "", rows


def _seconds(text: str) -> float | None:
    """Return the seconds of Retry-After; a date is ignored, because the service never sends one."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
