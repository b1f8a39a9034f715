"""The asyncio client of the List API: splits calls, retries them, and streams entries.

Any number of entries becomes calls of at most 500, within the API's size limit.

Security: the API key is sent to the given address only. The client follows no redirect and uses no proxy of the
environment.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self, TypeVar
from uuid import UUID

import aiohttp
import msgspec
from msgspec import UNSET, Struct, UnsetType

from mailwarden import __version__
from mailwarden.client.failures import ApiError, StreamCut, Unreachable, read_failure
from mailwarden.wire.lists import MAX_ENTRIES, AvailableLists, ListFileInfo, ModifiedEntries, PublicListsEntry

# The errors that the API marks as worth a retry.
RETRIED = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retries:
    """At most `attempts` tries of one call, the last begun at most `seconds` after the first.

    Every call may be repeated. Adding sets entries to a state, so a second call changes nothing and returns the same
    count. Deleting missing entries changes nothing; but if the response of a successful delete was lost, the retry
    finds nothing left and counts 0.
    """

    attempts: int = 8
    seconds: float = 180.0
    first_wait: float = 0.5
    longest_wait: float = 30.0


NO_RETRIES = Retries(attempts=1)


class RetrySchedule:
    """The tries of one call: returns after each failure the delay before the next, or None after the last."""

    def __init__(
        self,
        retries: Retries,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._retries = retries
        self._clock = clock
        self._chance = chance
        self._end = clock() + retries.seconds
        self._failures = 0

    def wait_after(self, failure: ApiError) -> float | None:
        """Return the seconds to wait before the next try, or None if there is none."""
        self._failures += 1
        if not may_retry(failure) or self._failures >= self._retries.attempts:
            return None
        longest = min(self._retries.first_wait * 2.0 ** (self._failures - 1), self._retries.longest_wait)
        # Half of the delay is random, so that callers that failed together do not retry together.
        wait = longest * (1 + self._chance()) / 2
        if failure.retry_after is not None:
            wait = max(wait, failure.retry_after)
        return wait if self._clock() + wait <= self._end else None


def may_retry(failure: ApiError) -> bool:
    return failure.status in RETRIED or (isinstance(failure, Unreachable) and failure.code != "certificate")


PREFIX = "/api/public/lists/v1"
ADD, DELETE, GET_LISTS, LIST_ENTRIES = "addEntries", "deleteEntries", "getLists", "listEntries"
# The API accepts 4 MiB. A call of 500 entries of full length with full comments could exceed it.
MAX_BODY = 4_000_000

Tenant = UUID | str | None


class NewEntry(Struct, frozen=True):
    """An entry to add or update: an omitted field keeps its value; `""` and None clear it."""

    entry: str
    comment: str | UnsetType = UNSET
    expires: datetime | UnsetType | None = UNSET


class Request(Struct, frozen=True):
    """The body of one call, and its number of entries."""

    body: bytes
    entries: int = 0


def plain_request(tenant: Tenant, list_name: str | None = None) -> Request:
    """Return the body of getLists or listEntries."""
    return Request(msgspec.json.encode(_head(tenant, list_name)))


def add_requests(list_name: str, entries: Iterable[NewEntry | str], tenant: Tenant) -> Iterator[Request]:
    """Yield the bodies of addEntries."""
    return _split(_head(tenant, list_name), (NewEntry(each) if isinstance(each, str) else each for each in entries))


def delete_requests(list_name: str, entries: Iterable[str], tenant: Tenant) -> Iterator[Request]:
    """Yield the bodies of deleteEntries."""
    return _split(_head(tenant, list_name), entries)


def _head(tenant: Tenant, list_name: str | None) -> dict[str, str]:
    """Return the fields that select the list; an empty tenant is an error, never the global scope."""
    head = {} if list_name is None else {"listName": list_name}
    if tenant is not None:
        head["tenantUid"] = str(tenant)
    return head


def _split(head: dict[str, str], entries: Iterable[NewEntry | str]) -> Iterator[Request]:
    opening = msgspec.json.encode(head)[:-1] + b',"entries":['
    room = MAX_BODY - len(opening) - 2
    items: list[bytes] = []
    size = 0
    for each in entries:
        item = msgspec.json.encode(each)
        if items and (len(items) == MAX_ENTRIES or size + len(item) + 1 > room):
            yield _request(opening, items)
            items, size = [], 0
        items.append(item)
        size += len(item) + 1
    if items:
        yield _request(opening, items)


def _request(opening: bytes, items: list[bytes]) -> Request:
    return Request(opening + b",".join(items) + b"]}", len(items))


T = TypeVar("T")
CALL_SECONDS = 60.0
CONNECT_SECONDS = 10.0
MAX_ANSWER = 8_388_608
MAX_LINE = 262_144
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_line = msgspec.json.Decoder(PublicListsEntry)


class AsyncEntryStream:
    """The entries of one list in one snapshot, in order; `count` is known before the first."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.request_id = response.headers.get("X-Request-Id", "")
        self.count = _entry_count(response.headers.get("X-Entry-Count", ""))

    async def batches(self) -> AsyncIterator[list[PublicListsEntry]]:
        """Yield the entries in batches as they arrive; raise StreamCut unless all `count` of them arrived."""
        came = 0
        rest = b""
        try:
            async for piece in self._response.content.iter_any():
                lines, newline, rest = (rest + piece).rpartition(b"\n")
                if len(rest) > MAX_LINE:
                    raise self._cut("a line has no end")
                if newline:
                    batch = _line.decode_lines(lines)
                    came += len(batch)
                    yield batch
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._cut(f"after {came:,} of {self.count:,} entries ({type(error).__name__})") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._cut(f"a line after {came:,} entries cannot be read") from error
        if rest or came != self.count:
            raise self._cut(f"{came:,} entries came, {self.count:,} were announced")

    async def __aiter__(self) -> AsyncIterator[PublicListsEntry]:
        async for batch in self.batches():
            for entry in batch:
                yield entry

    def _cut(self, reason: str) -> StreamCut:
        return StreamCut(f"The stream was cut: {reason}.", code="stream_cut", request_id=self.request_id)


class AsyncListsClient:
    """Reads and changes lists with an API key; close it, or use `async with`."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        ca: Path | str | None = None,
        retries: Retries = Retries(),  # noqa: B008 -- frozen
        timeout: float = CALL_SECONDS,
    ) -> None:
        _check_address(base_url)
        _check_key(api_key)
        self._base_url = base_url.rstrip("/")
        self._headers = {"Authorization": f"apikey {api_key}", "User-Agent": f"mailwarden/{__version__}"}
        # A missing file is an error here, not at the first call.
        self._tls = ssl.create_default_context(cafile=ca)
        self._retries = retries
        self._call_time = aiohttp.ClientTimeout(total=timeout, sock_connect=CONNECT_SECONDS)
        # The service limits the total time of a stream; the client limits the wait for the next bytes.
        self._stream_time = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=timeout)
        self._session: aiohttp.ClientSession | None = None

    async def lists(self, tenant: Tenant = None) -> tuple[ListFileInfo, ...]:
        """Return all lists of a tenant, or of the global scope, with their metadata."""
        raw = await self._ask(GET_LISTS, plain_request(tenant), self._call_time, _read_body)
        return _decode(raw, AvailableLists).list_file_infos

    async def add(self, list_name: str, entries: Iterable[NewEntry | str], tenant: Tenant = None) -> int:
        """Add or update any number of entries, 500 per call; return the number that was added or updated.

        Each call is atomic, but all calls together are not: if one fails, the error's `acknowledged` has the number of
        entries before it. An entry in two calls counts twice.
        """
        return await self._change(ADD, add_requests(list_name, entries, tenant))

    async def delete(self, list_name: str, entries: Iterable[str], tenant: Tenant = None) -> int:
        """Delete any number of entries, 500 per call; return how many existed. See `add` and `Retries`."""
        return await self._change(DELETE, delete_requests(list_name, entries, tenant))

    @asynccontextmanager
    async def stream(self, list_name: str, tenant: Tenant = None) -> AsyncIterator[AsyncEntryStream]:
        """Open the stream of a list's entries; leaving the context closes it at any point."""
        response = await self._ask(LIST_ENTRIES, plain_request(tenant, list_name), self._stream_time, _keep_open)
        try:
            yield AsyncEntryStream(response)
        finally:
            response.close()

    async def entries(self, list_name: str, tenant: Tenant = None) -> AsyncIterator[PublicListsEntry]:
        """Yield every entry of a list; an incomplete stream raises StreamCut."""
        async with self.stream(list_name, tenant) as stream:
            async for entry in stream:
                yield entry

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def change(self, operation: str, request: Request) -> int:
        """Send one call of addEntries or deleteEntries, for callers that split the entries themselves."""
        raw = await self._ask(operation, request, self._call_time, _read_body)
        return _decode(raw, ModifiedEntries).modified_entries

    async def _change(self, operation: str, requests: Iterable[Request]) -> int:
        modified = acknowledged = 0
        for request in requests:
            try:
                modified += await self.change(operation, request)
            except ApiError as error:
                error.acknowledged = acknowledged
                raise
            acknowledged += request.entries
        return modified

    async def _ask(
        self,
        operation: str,
        request: Request,
        limits: aiohttp.ClientTimeout,
        take: Callable[[aiohttp.ClientResponse], Awaitable[T]],
    ) -> T:
        """Send one call, with retries, and return the result of `take` for the response."""
        schedule = RetrySchedule(self._retries)
        while True:
            try:
                return await self._try(operation, request, limits, take)
            except ApiError as failure:
                wait = schedule.wait_after(failure)
                if wait is None:
                    raise
            await asyncio.sleep(wait)

    async def _try(
        self,
        operation: str,
        request: Request,
        limits: aiohttp.ClientTimeout,
        take: Callable[[aiohttp.ClientResponse], Awaitable[T]],
    ) -> T:
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._tls)
            self._session = aiohttp.ClientSession(headers=self._headers, connector=connector)
        url = f"{self._base_url}{PREFIX}/{operation}"
        response: aiohttp.ClientResponse | None = None
        try:
            response = await self._session.post(
                url, data=request.body, headers=_JSON, timeout=limits, allow_redirects=False
            )
            if response.status == 200:
                return await take(response)
            raise read_failure(response.status, response.headers, await _read_body(response))
        except aiohttp.ClientConnectorCertificateError as error:
            reason = f"The certificate of {self._base_url} cannot be verified: {error.certificate_error}"
            raise Unreachable(reason, code="certificate") from error
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise Unreachable(f"No answer from {self._base_url}: {reason}", code="unreachable") from error
        finally:
            # The reader of an open stream closes it.
            if response is not None and (response.status != 200 or take is not _keep_open):
                response.release()


_JSON = {"Content-Type": "application/json"}


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > MAX_ANSWER:
            raise _invalid_response("it is far too long")
        pieces.append(piece)
    return b"".join(pieces)


async def _keep_open(response: aiohttp.ClientResponse) -> aiohttp.ClientResponse:
    return response


def _decode(raw: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _invalid_response("it is not what the List API answers") from None


def _entry_count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise _invalid_response("it has no X-Entry-Count, which is needed to detect a truncated stream")
    return int(text)


def _invalid_response(reason: str) -> ApiError:
    return ApiError(f"The answer cannot be read: {reason}.", code="unreadable_answer")


def _check_address(base_url: str) -> None:
    scheme, _, rest = base_url.partition("://")
    host = rest.partition("/")[0].rpartition("@")[2]
    host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if scheme not in {"https", "http"} or not host:
        raise ValueError("The address begins with https:// and a host.")
    if scheme == "http" and host not in _LOOPBACK:
        raise ValueError("An API key is sent over https only, or over http to this machine itself.")


def _check_key(api_key: str) -> None:
    if not api_key or not api_key.isascii() or not api_key.isprintable() or " " in api_key:
        raise ValueError("An API key is one word of visible ASCII characters.")
