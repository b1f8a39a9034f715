"""The HTTP client of ClickHouse: several replicas, a deadline for every call, and errors by what they mean.

Creating a client does not use the network, so a process starts while ClickHouse is down. A call goes to the replica
that answered last, and to the next one if that fails; every statement of ours may be repeated.

Security: statements have no text of messages or searches in them (binary.py); an answer is bounded in size.
"""

import asyncio
import io
import re
import ssl
import time
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Protocol

import aiohttp
from msgspec import Struct

from mailwarden.errors import StorageUnavailable
from mailwarden.telemetry.logs import get_logger

CALL_SECONDS = 10.0  # of one attempt
CONNECT_SECONDS = 2.0
MARGIN_SECONDS = 1.0  # by which an attempt may be longer than its statement
MAX_ANSWER = 256 * 1024 * 1024
MAX_ERROR = 4_096
LARGE_BODY = 1024 * 1024
MAX_STATEMENT = 4 * 1024 * 1024
RETRY_AFTER = 2
LOG_EVERY = 10.0
LOG_STALE_EVERY = 300.0
ATTEMPTS_OF_ONE = 2  # with a single address
_CODE = re.compile(rb"Code: (\d+)")
_OWN_HEADER = "x-clickhouse-"  # every version puts one into a good answer; the page of a proxy has none

# Errors about the data of a row, by the numbers of ClickHouse's ErrorCodes; all others are about the server, the tables
# or the statement.
_BAD_DATA = frozenset({6, 26, 27, 33, 38, 41, 69, 70, 72, 117, 128, 131, 321, 349, 469})
_TOO_SLOW = frozenset({158, 159, 160, 241, 307, 396})
_LACKS_TABLES = frozenset({16, 47, 60, 81, 253})
_REFUSES_SETTING = frozenset({115, 164, 452})
_REFUSES_USER = frozenset({192, 193, 194, 195, 291, 497, 516})

_log = get_logger("history.clickhouse")


class BadData(Exception):
    """ClickHouse refused the data of a row."""


class TooSlow(Exception):
    """A statement reached its limit of time or memory."""


class Kind(StrEnum):
    """The kind of a call, for the metrics."""

    READ = "read"
    WRITE = "write"
    MAINTAIN = "maintain"


class Meters(Protocol):
    """Takes the seconds of each call, and counts outages and answers that may lack the newest rows."""

    def took(self, kind: Kind, seconds: float) -> None: ...

    def failed(self) -> None: ...

    def stale_read(self) -> None: ...


class _NoMeters:
    def took(self, kind: Kind, seconds: float) -> None: ...

    def failed(self) -> None: ...

    def stale_read(self) -> None: ...


class Freshness(Protocol):
    """Knows which replicas may lack the newest rows; see replicas.py."""

    async def stale(self) -> Collection[str]:
        """Return the addresses that reads should avoid."""

    async def close(self) -> None: ...


class Reads(Struct):
    """The replica that answers the statements of one search, as long as it can: another one may lack rows of it."""

    url: str = ""
    moved: bool = False  # another replica had to answer
    stale: bool = False  # a replica answered that may lack the newest rows

    def note(self, url: str, *, stale: bool) -> None:
        self.stale = self.stale or stale
        self.moved = self.moved or (bool(self.url) and url != self.url)
        self.url = url


class Target(Struct, frozen=True):
    """Where ClickHouse is, and as whom: the addresses of the replicas of one shard."""

    urls: tuple[str, ...]
    database: str = "mailwarden"
    user: str = "mailwarden"
    password: str = ""
    replicated: bool = False
    quorum: int = 0  # replicas that must have a row before it is stored; 0: one
    connections: int = 8


class Clickhouse:
    """The connections of one process to the replicas."""

    def __init__(self, target: Target, tls: ssl.SSLContext | None = None, *, logs: bool = False) -> None:
        self.up = False  # at the last attempt
        self.meters: Meters = _NoMeters()
        self.freshness: Freshness | None = None
        self.target = target
        self._tls = tls
        self._logs = logs
        self._logged: str | None = None
        self._log_from = 0.0
        self._called_at = float("-inf")
        self._log_stale_from = 0.0
        self._preferred = 0
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    @property
    def idle_seconds(self) -> float:
        """The seconds since a call ended, infinite before the first one."""
        return time.monotonic() - self._called_at

    async def read(self, statement: str, seconds: float = CALL_SECONDS) -> bytes:
        """Return the answer of a SELECT; one that takes longer than `seconds` counts as an outage."""
        try:
            return await self.read_limited(statement, seconds)
        except TooSlow as error:
            raise StorageUnavailable("The history store does not answer in time.", retry_after=RETRY_AFTER) from error

    async def read_limited(self, statement: str, seconds: float, reads: Reads | None = None) -> bytes:
        """Return the answer of a SELECT that takes at most `seconds`; raise TooSlow if it takes longer.

        Statements with the same `reads` go to the same replica if it answers.
        """
        settings = {"max_execution_time": str(max(1, round(seconds)))}
        return await self._call(Kind.READ, statement, b"", settings, seconds + MARGIN_SECONDS, reads=reads)

    async def insert(self, statement: str, rows: bytes, *, deduplicate: bool = True) -> None:
        """Insert rows; raise BadData if one of them is refused. Replicas ignore a block that they had before."""
        settings = {"insert_quorum": str(self.target.quorum)} if self.target.quorum else {}
        if not deduplicate:
            settings["insert_deduplicate"] = "0"
        await self._call(Kind.WRITE, statement, rows, settings, CALL_SECONDS)

    async def execute(
        self, statement: str, seconds: float = CALL_SECONDS, *, optional: Mapping[str, str] | None = None
    ) -> bytes:
        """Run a statement that changes tables; on several replicas it must be safe to repeat.

        The `optional` settings are left out on a server that does not know or allow them.
        """
        if optional:
            try:
                return await self._call(Kind.MAINTAIN, statement, b"", dict(optional), seconds)
            except StorageUnavailable as error:
                if not isinstance(error.__cause__, _Refused) or error.__cause__.code not in _REFUSES_SETTING:
                    raise
        return await self._call(Kind.MAINTAIN, statement, b"", {}, seconds)

    async def execute_on(self, url: str, statement: str, *, database: str | None = None) -> bytes:
        """Run a statement on one replica, in another database if given."""
        parameters = self._parameters({}) | ({"database": database} if database is not None else {})
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._post(url, parameters, statement.encode())
        except (aiohttp.ClientError, OSError, _Refused, _NotClickhouse) as error:
            raise _unavailable(error) from error

    async def ping(self, url: str) -> None:
        """Raise StorageUnavailable if this replica does not answer a trivial query."""
        await self.execute_on(url, "SELECT 1", database="system")

    async def probe(self) -> bool:
        """Run a trivial query, and remember whether it succeeded."""
        try:
            await self.read("SELECT 1 FORMAT RowBinary", MARGIN_SECONDS)
        except StorageUnavailable:
            self.up = False
        return self.up

    async def close(self) -> None:
        self._closed = True
        if self.freshness is not None:
            await self.freshness.close()
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _call(
        self,
        kind: Kind,
        statement: str,
        rows: bytes,
        settings: dict[str, str],
        seconds: float,
        *,
        reads: Reads | None = None,
    ) -> bytes:
        if self._closed:
            raise StorageUnavailable("The connections to the history store are closed.", retry_after=1)
        parameters, body = self._parameters(settings), statement.encode()
        if rows:
            parameters, body = parameters | {"query": statement}, rows
        stale = await self.freshness.stale() if kind is Kind.READ and self.freshness is not None else ()
        places = self._places("" if reads is None else reads.url, stale)
        began, urls = time.monotonic(), self.target.urls
        attempts = max(ATTEMPTS_OF_ONE, len(urls))
        for attempt in range(attempts):
            place = places[attempt % len(places)]
            try:
                async with asyncio.timeout(seconds):
                    answer = await self._post(urls[place], parameters, body)
            except _Refused as error:
                if error.code in _BAD_DATA and kind is Kind.WRITE:
                    raise BadData(str(error)) from None
                if error.code in _TOO_SLOW and kind is Kind.READ:
                    raise TooSlow(str(error)) from None
                failure: Exception = error
            except (aiohttp.ClientError, OSError, _NotClickhouse) as error:  # a timeout is an OSError
                failure = error
            else:
                self._succeeded(place, kind, time.monotonic() - began)
                if urls[place] in stale:
                    self._read_stale(urls[place])
                if reads is not None:
                    reads.note(urls[place], stale=urls[place] in stale)
                return answer
            if len(urls) == 1 and isinstance(failure, TimeoutError):
                break  # another replica might answer, the same one would hang again
        raise self._failed(failure)

    def _places(self, kept: str, stale: Collection[str]) -> Sequence[int]:
        """Return the order of the replicas: that of the search, the one that answered last, and stale ones last."""
        urls = self.target.urls
        places = [(self._preferred + step) % len(urls) for step in range(len(urls))]
        return sorted(places, key=lambda place: (urls[place] != kept, urls[place] in stale))

    async def _post(self, url: str, parameters: dict[str, str], body: bytes) -> bytes:
        headers = {"X-ClickHouse-User": self.target.user}
        if self.target.password:
            headers["X-ClickHouse-Key"] = self.target.password
        data = io.BytesIO(body) if len(body) > LARGE_BODY else body  # a stream is sent in pieces
        async with self._opened().post(
            url, params=parameters, data=data, headers=headers, allow_redirects=False
        ) as response:
            if response.status != 200:
                raise _Refused(response.status, await response.content.read(MAX_ERROR))
            if not any(name.lower().startswith(_OWN_HEADER) for name in response.headers):
                raise _NotClickhouse(f"no {_OWN_HEADER}… header in an answer of {response.content_type}")
            answer = await _bounded(response)
        if answer and "query" in parameters:
            raise _NotClickhouse("an INSERT was answered with text")
        return answer

    def _parameters(self, settings: dict[str, str]) -> dict[str, str]:
        # With `wait_end_of_query` an error that comes late changes the status instead of cutting the answer.
        return {
            "database": self.target.database,
            "wait_end_of_query": "1",
            "max_query_size": str(MAX_STATEMENT),
            **settings,
        }

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self.target.connections, ssl=self._tls or True)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)
        return self._session

    def _succeeded(self, place: int, kind: Kind, seconds: float) -> None:
        self._preferred, self.up, self._called_at = place, True, time.monotonic()
        self.meters.took(kind, seconds)
        if self._logged is not None:
            self._logged = None
            _log.info("history_store_available")

    def _read_stale(self, url: str) -> None:
        self.meters.stale_read()
        now = time.monotonic()
        if self._logs and now >= self._log_stale_from:
            self._log_stale_from = now + LOG_STALE_EVERY
            _log.warning("history_read_stale", url=url)

    def _failed(self, error: Exception) -> StorageUnavailable:
        self.up, self._called_at = False, time.monotonic()
        self.meters.failed()
        self._preferred = (self._preferred + 1) % len(self.target.urls)
        unavailable = _unavailable(error)
        unavailable.__cause__ = error
        now = time.monotonic()
        if self._logs and self._logged != unavailable.message and now >= self._log_from:
            self._logged, self._log_from = unavailable.message, now + LOG_EVERY
            reason = f"{type(error).__name__}: {error}"[:300]
            _log.warning("history_store_unavailable", sentence=unavailable.message, reason=reason)
        return unavailable


class _Refused(Exception):
    """ClickHouse answered with an error."""

    def __init__(self, status: int, body: bytes) -> None:
        found = _CODE.search(body)
        self.code = int(found[1]) if found else 0
        text = body.decode("utf-8", "replace").strip()
        super().__init__(f"HTTP {status}: {text[:300]}")


class _NotClickhouse(Exception):
    """The answer comes from something else, such as the maintenance page of a proxy."""


def _unavailable(error: Exception) -> StorageUnavailable:
    """Return the error for callers; the reason is its cause, for the log and the commands."""
    code = error.code if isinstance(error, _Refused) else 0
    if code in _LACKS_TABLES:
        sentence = "The history store lacks a table of this version: run `mailwarden history prepare`."
    elif code in _REFUSES_USER:
        sentence = "The history store refuses this user or lacks a permission."
    elif isinstance(error, _Refused):
        sentence = "The history store does not accept the statement."
    elif isinstance(error, _NotClickhouse):
        sentence = "An address of the history store is not answered by ClickHouse: check history.clickhouse.urls."
    elif isinstance(error, TimeoutError):
        sentence = "The history store does not answer in time."
    else:
        sentence = "The history store is down."
    return StorageUnavailable(sentence, retry_after=RETRY_AFTER)


async def _bounded(response: aiohttp.ClientResponse) -> bytes:
    """Return the body; raise if it is larger than any answer of ours."""
    pieces: list[bytes] = []
    size = 0
    async for piece in response.content.iter_any():
        size += len(piece)
        if size > MAX_ANSWER:
            raise aiohttp.ClientPayloadError("the answer is too large")
        pieces.append(piece)
    return b"".join(pieces)
