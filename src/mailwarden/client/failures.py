"""What a call can fail with: one class for each thing a caller can do about it, with all that the answer told.

Security: answers may come from anything that stands at the address; what cannot be read becomes a failure.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

MAX_SHOWN = 200


class ApiError(Exception):
    """A call failed: `code` for machines, `message` for people, `details` and `request_id` where there are any.

    `acknowledged` counts the entries of an `add` or `delete` that went through before the call that failed; in
    `details` of `invalid_entry` and `entry_too_broad` the `index` counts from there.
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
    """The call is wrong and stays wrong: invalid or too broad entries, a bad shape, too large."""


class KeyRefused(ApiError):
    """The key is missing, unknown, revoked or expired."""


class ScopeRefused(ApiError):
    """The key may not do this, or not in this scope."""


class NotFound(ApiError):
    """There is no such list, no such tenant, or no List API at this address."""


class ListFull(ApiError):
    """The entries would exceed the list's maxSize."""


class Unavailable(ApiError):
    """The service could not do it now; it was tried again as often as allowed where that makes sense."""


class Unreachable(ApiError):
    """There was no whole answer: the address, the network, or the certificate."""


class StreamCut(ApiError):
    """A stream of entries ended before its end; what was read of it is not the whole list."""


class _Body(Struct, frozen=True):
    """An error as the API writes it; what else stands at the address may write anything."""

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
    """Return what an answer other than 200 means."""
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
    """Return the seconds of Retry-After; the service never sends a date, and another's date is left aside."""
    return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None
