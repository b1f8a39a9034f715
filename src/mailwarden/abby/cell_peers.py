"""The other cells, as this abby reaches them: HTTPS with a shared secret, and a limit of requests for each cell.

A cell that does not answer is ejected for some seconds: its requests fail at once, and use nothing of this abby. A
request that came from a cell is never forwarded again.

Security: the secret of two cells proves that a request was forwarded by the other. It lets that cell submit messages
and name the address of its caller, and nothing else: a forwarded call has the caller's own credential.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import aiohttp
import msgspec
from aiohttp import hdrs, web

from mailwarden.abby.config import AbbyConfig, CellsConfig
from mailwarden.abby.guard_transport import Submission
from mailwarden.crypto.mac import equal
from mailwarden.errors import (
    AnalysisTimeout,
    BadRequest,
    CellUnreachable,
    ConfigurationError,
    EngineUnavailable,
    InvalidCredentials,
    MailwardenError,
    Overloaded,
    PayloadTooLarge,
    ScanningDisabled,
    TenantInOtherCell,
)
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.serving.http_app import REQUEST_ID, Call, finish_headers
from mailwarden.serving.uploads import BodyClock, send_continue
from mailwarden.settings.shared import read_address
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics, Samples
from mailwarden.wire.guard import DEADLINE_HEADER, GGRID_HEADER
from mailwarden.wire.scanning import ErrorBody, MessageAnalysisResult

CELL_HEADER = "Mailwarden-Cell"
SECRET_HEADER = "Mailwarden-Cell-Secret"  # noqa: S105 -- the name of a header
CLIENT_HEADER = "Mailwarden-Client-Address"
SUBMIT = "/v1/messageQueue/submitEmail"
MIN_SECRET = 32
MAX_ANSWER = 1_048_576
CONNECT_SECONDS = 2.0
SILENCE_SECONDS = 90.0  # of a forwarded call; a call for events waits a minute
CALL_SECONDS = 960.0  # of a forwarded call in total; a list is streamed for 900 at most
FIRST_EJECTION, LAST_EJECTION = 1.0, 30.0
FAILURES = 3  # in a row, before a cell is ejected
DOWN_SECONDS = 60.0  # after the last of them the metric shows the cell as down, unless it has answered
_KEEP_ALIVE = 30.0
_ASK_FIRST_ABOVE = 262_144
# Headers of the caller that its cell needs, and headers of the answer that the caller needs.
_TO_CELL = (hdrs.AUTHORIZATION, hdrs.CONTENT_TYPE, hdrs.ACCEPT, "Idempotency-Key", hdrs.CONTENT_ENCODING)
_TO_CALLER = (
    hdrs.CONTENT_TYPE, hdrs.CONTENT_DISPOSITION, hdrs.CONTENT_LENGTH, hdrs.RETRY_AFTER, hdrs.WWW_AUTHENTICATE,
    hdrs.ALLOW, hdrs.CACHE_CONTROL, "RateLimit", "RateLimit-Policy", "X-Row-Limit", "X-Time-Limit", "X-Next-Cursor",
    "X-More-Events", "X-Entry-Count",
)  # fmt: skip
_ERRORS: Mapping[str, type[MailwardenError]] = {
    error.code: error for error in (AnalysisTimeout, EngineUnavailable, Overloaded, PayloadTooLarge, ScanningDisabled)
}
_decode_result = msgspec.json.Decoder(MessageAnalysisResult).decode
_decode_error = msgspec.json.Decoder(ErrorBody).decode

_log = get_logger("cells.peers")


class Peer:
    """One other cell."""

    def __init__(self, name: str, url: str, secret: str, session: aiohttp.ClientSession, max_requests: int) -> None:
        self.name = name
        self.url = url.rstrip("/")
        self.secret = secret
        self.session = session
        self.in_flight = 0
        self._max_requests = max_requests
        self._failures = 0
        self._ejection = FIRST_EJECTION
        self._ejected_until = float("-inf")
        self._failed_at = float("-inf")

    @property
    def usable(self) -> bool:
        return asyncio.get_running_loop().time() >= self._ejected_until

    @property
    def up(self) -> bool:
        """Return False from the failure that ejects the cell until it answers, also between two ejections.

        A cell that is not asked has not failed: after a minute without a failure it counts as up.
        """
        if self._failures < FAILURES:
            return True
        return asyncio.get_running_loop().time() - self._failed_at > DOWN_SECONDS

    @contextmanager
    def place(self) -> Iterator[None]:
        """Take one of the cell's places; raise if it is ejected, or if all are taken."""
        if not self.usable:
            raise self.unreachable("did not answer some seconds ago")
        if self.in_flight >= self._max_requests:
            raise self.unreachable(f"has {self._max_requests} requests in progress")
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    def answered(self) -> None:
        self._failures, self._ejection = 0, FIRST_EJECTION

    def failed(self, reason: str) -> CellUnreachable:
        """Count a failure, eject the cell after some in a row, and return the error for the caller."""
        self._failures += 1
        self._failed_at = asyncio.get_running_loop().time()
        if self._failures >= FAILURES and self.usable:
            _log.warning("cell_ejected", cell=self.name, seconds=self._ejection, reason=reason)
            self._ejected_until = asyncio.get_running_loop().time() + self._ejection
            self._ejection = min(self._ejection * 2, LAST_EJECTION)
        return self.unreachable("does not answer")

    def unreachable(self, why: str) -> CellUnreachable:
        return CellUnreachable(f"The cell `{self.name}` {why}; try again.", retry_after=2)


class RelayedBody:
    """The body of a forwarded call, within the limits of every body; `error` is how the caller broke them."""

    def __init__(self, call: Call, body_timeout_ms: int) -> None:
        self.error: Exception | None = None
        self._call = call
        self._body_timeout_ms = body_timeout_ms

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            await send_continue(self._call.request)
            async with BodyClock(self._body_timeout_ms) as clock:
                while chunk := await clock.next_chunk(self._call.request):
                    yield chunk
        except (MailwardenError, ConnectionError) as error:
            self.error = error
            raise


class CellPeers:
    def __init__(
        self,
        name: str,
        peers: Mapping[str, Peer],
        metrics: Metrics,
        *,
        body_timeout_ms: int,
        long_request_timeout_ms: int,
    ) -> None:
        self._name = name
        self._peers = peers
        self._body_timeout_ms = body_timeout_ms
        self._patience = long_request_timeout_ms / 1000
        self._requests = metrics.counter("cell_requests", "Requests to other cells.", "cell", "kind", "outcome")
        metrics.read_gauge("cell_up", "1, or 0 after failures in a row of another cell.", self._samples, "cell")

    def _samples(self) -> Samples:
        return [((peer.name,), float(peer.up)) for peer in self._peers.values()]

    def url_of(self, cell: str) -> str:
        """Return the address of a cell, "" if this abby does not know it."""
        return self._peers[cell].url if cell in self._peers else ""

    def from_peer(self, call: Call) -> Call:
        """Return the call of a caller of another cell, or raise InvalidCredentials."""
        headers = call.request.headers
        names, secrets = headers.getall(CELL_HEADER, ()), headers.getall(SECRET_HEADER, ())
        peer = self._peers.get(names[0]) if len(names) == len(secrets) == 1 else None
        given = secrets[0].encode("utf-8", "surrogateescape") if secrets else b""
        if peer is None or not equal(given, peer.secret.encode()):
            raise InvalidCredentials("This is no cell of the fleet, or its secret is wrong: see cells.peers.")
        client = read_address(headers.get(CLIENT_HEADER, ""))
        return replace(call, cell=peer.name, client=None if client is None else str(client))

    async def submit(
        self, cell: str, submission: Submission, call: Call, ggrid: str, deadline: float
    ) -> MessageAnalysisResult:
        """Return the result of a message that another cell scans; raise the error of that cell."""
        peer = self._peer(cell)
        remaining = max(1, int((deadline - asyncio.get_running_loop().time()) * 1000))
        headers = {
            **self._headers(peer, call),
            hdrs.CONTENT_TYPE: submission.content_type,
            hdrs.CONTENT_LENGTH: str(submission.size),
            GGRID_HEADER: ggrid,
            DEADLINE_HEADER: str(remaining),
        }
        with self._counted(peer, "scan"), peer.place():
            try:
                async with peer.session.post(
                    peer.url + SUBMIT,
                    data=submission.body(),
                    headers=headers,
                    expect100=submission.size > _ASK_FIRST_ABOVE,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(total=remaining / 1000, connect=CONNECT_SECONDS),
                ) as response:
                    raw = await _read_answer(response)
            except (aiohttp.ClientError, OSError) as error:  # also a timeout
                raise _failure(peer, error, broken=True) from None
            peer.answered()
            return _result(peer, response, raw, ggrid)

    async def relay(self, cell: str, call: Call) -> web.StreamResponse:
        """Forward a call with its own credential, and stream the answer."""
        peer = self._peer(cell)
        request = call.request
        url = _url(peer, request.raw_path)
        headers = self._headers(peer, call)
        headers.update({name: request.headers[name] for name in _TO_CELL if name in request.headers})
        if request.content_length is not None:
            headers[hdrs.CONTENT_LENGTH] = str(request.content_length)
        scan = request.path == SUBMIT  # the answer comes when the message is scanned
        total, silence = (self._patience + SILENCE_SECONDS, None) if scan else (CALL_SECONDS, SILENCE_SECONDS)
        timeout = aiohttp.ClientTimeout(total=total, connect=CONNECT_SECONDS, sock_read=silence)
        body = RelayedBody(call, self._body_timeout_ms)
        with self._counted(peer, "call"), peer.place():
            try:
                async with peer.session.request(
                    request.method,
                    url,
                    data=body.chunks() if request.can_read_body else None,
                    headers=headers,
                    expect100=request.can_read_body,
                    allow_redirects=False,
                    timeout=timeout,
                ) as response:
                    peer.answered()
                    return await _pass_on(call, response)
            except (aiohttp.ClientError, TimeoutError) as error:
                if body.error is not None:  # the caller's fault, not the cell's
                    raise body.error from None
                raise _failure(peer, error, broken=not request.can_read_body) from None

    def _peer(self, cell: str) -> Peer:
        peer = self._peers.get(cell)
        if peer is None:
            raise CellUnreachable(f"The cell `{cell}` is not in cells.peers of this cell `{self._name}`.")
        return peer

    def _headers(self, peer: Peer, call: Call) -> dict[str, str]:
        headers = {CELL_HEADER: self._name, SECRET_HEADER: peer.secret, REQUEST_ID: call.request_id}
        return {**headers, CLIENT_HEADER: call.address} if call.address else headers

    @contextmanager
    def _counted(self, peer: Peer, kind: str) -> Iterator[None]:
        try:
            yield
        except MailwardenError as error:
            self._requests.labels(peer.name, kind, error.code).inc()
            raise
        self._requests.labels(peer.name, kind, "answered").inc()


def _url(peer: Peer, path: str) -> str:
    """Return the address of a call in another cell: the caller chooses the path alone, and never the host."""
    if not path.startswith("/") or not path.isascii():
        raise BadRequest("The request line must have a path in ASCII that begins with `/`, and no host.")
    return peer.url + path


def _failure(peer: Peer, error: Exception, *, broken: bool) -> CellUnreachable:
    """Return the error for the caller. Only a cell that accepts or keeps no connection has failed.

    A slow answer may be the fault of one message. So may a broken connection be of a caller's body: then not `broken`.
    """
    name = type(error).__name__
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return peer.failed(name)
    lost = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
    return peer.failed(name) if lost and broken else peer.unreachable(f"gave no answer ({name})")


def open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Return a socket that notices within seconds that the other host is gone, however long an answer takes."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _result(peer: Peer, response: aiohttp.ClientResponse, raw: bytes, ggrid: str) -> MessageAnalysisResult:
    """Return the result in the answer of a cell, or raise its error; any other answer is no result."""
    try:
        if response.status == HTTPStatus.OK:
            result = _decode_result(raw)
            known = result.decision in frozenset(Decision) and result.verdict in frozenset(Verdict)
            if known and str(result.ggrid) == ggrid:
                return result
            raise peer.unreachable("answered something else than a result")
        error = _decode_error(raw)
    except (msgspec.MsgspecError, ValueError):
        raise peer.unreachable(f"answered {response.status} without a result") from None
    if error.error == TenantInOtherCell.code:
        raise TenantInOtherCell(error.message)
    if error.error in _ERRORS:
        raise _ERRORS[error.error](f"The cell `{peer.name}`: {error.message}", retry_after=_seconds(response))
    if response.status == HTTPStatus.UNAUTHORIZED:
        _log.error("cell_secret_rejected", cell=peer.name)
        raise peer.unreachable("rejects the secret of this cell")
    raise peer.unreachable(f"answered {response.status} {error.error[:40]}")


async def _read_answer(response: aiohttp.ClientResponse) -> bytes:
    """Return the body; of one that is too long only the beginning, which is no answer."""
    raw = b""
    async for chunk in response.content.iter_any():
        raw += chunk
        if len(raw) > MAX_ANSWER:
            break
    return raw


def _seconds(response: aiohttp.ClientResponse) -> int | None:
    text = response.headers.get(hdrs.RETRY_AFTER, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else None


async def _pass_on(call: Call, response: aiohttp.ClientResponse) -> web.StreamResponse:
    """Stream the answer of a cell to the caller; an error after the first byte breaks the connection."""
    headers = {name: response.headers[name] for name in _TO_CALLER if name in response.headers}
    answer = web.StreamResponse(status=response.status, headers=headers)
    finish_headers(answer, call.request_id, call.request.path, call.headers)
    await answer.prepare(call.request)
    try:
        async for chunk in response.content.iter_any():
            await answer.write(chunk)
        await answer.write_eof()
    except Exception as error:
        if call.request.transport is not None:
            call.request.transport.abort()
        raise ConnectionAbortedError("The answer of the other cell was broken off.") from error
    return answer


@asynccontextmanager
async def open_peers(config: CellsConfig, folder: Path, metrics: Metrics, abby: AbbyConfig) -> AsyncIterator[CellPeers]:
    """Return the peers with their connections; each cell has its own, so that none waits for another."""
    async with AsyncExitStack() as stack:
        peers = {}
        for name, peer in config.peers.items():
            trust = ssl.create_default_context(cafile=str(folder / peer.ca) if peer.ca else None)
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=trust,
                    limit=config.max_requests,
                    keepalive_timeout=_KEEP_ALIVE,
                    socket_factory=open_socket,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.USER_AGENT),
            )
            await stack.enter_async_context(session)
            secret = read_secret(folder / peer.secret, f"cells.peers.{name}.secret")
            peers[name] = Peer(name, peer.url, secret, session, config.max_requests)
        yield CellPeers(
            config.name,
            peers,
            metrics,
            body_timeout_ms=abby.body_timeout,
            long_request_timeout_ms=abby.service_providers.core.long_request_timeout,
        )


def read_secret(path: Path, setting: str) -> str:
    """Return the secret in a file, or raise ConfigurationError."""
    try:
        secret = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not ASCII"
        raise ConfigurationError(f"{setting}: cannot read {path} ({reason}).") from None
    if len(secret) < MIN_SECRET or not secret.isprintable() or " " in secret:
        raise ConfigurationError(f"{setting}: {path} must have {MIN_SECRET} printable characters or more.")
    return secret
