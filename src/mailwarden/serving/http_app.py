"""Routes the requests of both HTTP processes, sets the request id, maps errors to responses, and logs.

One wrapper instead of a chain of middlewares: a scan takes about a millisecond, and every layer adds to it.

Security: X-Forwarded-For is hostile text. Each proxy appends the address of its client, so the field is read from its
end. A value counts only if a trusted proxy wrote it; the first address that is not a trusted proxy is the client. An
unreadable value ends the search at the last known hop.
"""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_network
from itertools import chain, islice

import structlog
from aiohttp import HttpVersion, HttpVersion10, HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter
from prometheus_client import Counter, Histogram

from mailwarden.errors import BadRequest, InternalError, MailwardenError, MethodNotAllowed, NotFound, ShuttingDown
from mailwarden.serving.errors import answer_for
from mailwarden.serving.tls import ClientNames
from mailwarden.settings.shared import Address, Networks, peer_address, read_address
from mailwarden.telemetry.logs import get_logger
from mailwarden.telemetry.metrics import Metrics

FIELD = "X-Forwarded-For"
PASSED_ON = (FIELD, "Forwarded", "X-Forwarded-Host", "X-Real-IP", "Via")  # fields that proxies add
THIS_HOST = ("localhost", "127.0.0.1", "[::1]")
MAX_HOPS = 16
# Some proxies add the client's port, and then write IPv6 in brackets.
_BRACKETED = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]{1,5})?")
_WITH_PORT = re.compile(r"([0-9.]+):[0-9]{1,5}")

REQUEST_ID = "X-Request-Id"
API_VERSION = "1.1.0"
MAX_HEAD = 32_768
_USABLE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_NO_VARIABLES: Mapping[str, str] = {}
_NO_PROXIES = Networks()
_NO_HEADERS: Mapping[str, str] = {}
_VERSIONS = (HttpVersion10, HttpVersion11)

log = get_logger("http")
ErrorAnswer = Callable[[MailwardenError], web.Response]


def client_address(peer: str | None, forwarded: Sequence[str], trusted: Networks) -> str | None:
    """Return the client's address from the peer and the values of the field; None if it is unknown."""
    caller = peer_address(peer or "")
    if caller is None:
        return None
    for hop in islice(reversed(",".join(forwarded).split(",")), MAX_HOPS):
        if caller not in trusted:
            break
        before = _read_hop(hop.strip(" \t"))
        if before is None:  # also for an empty value: the proxy did not know its client
            break
        caller = before
    return str(caller)


def _read_hop(text: str) -> Address | None:
    if found := _BRACKETED.fullmatch(text):
        return read_address(found[1]) if ":" in found[1] else None
    if found := _WITH_PORT.fullmatch(text):
        return read_address(found[1])
    return read_address(text)


@dataclass(frozen=True, slots=True)
class Call:
    """One request, as a handler gets it."""

    request: web.BaseRequest
    request_id: str
    variables: Mapping[str, str]  # the values of {name} in the route's path
    proxies: Networks = _NO_PROXIES  # proxies whose X-Forwarded-For is trusted
    headers: Mapping[str, str] = field(default_factory=dict)  # for every response of this process

    @property
    def address(self) -> str | None:
        """Return the client's address, as far as trusted proxies report it."""
        return client_address(self.request.remote, self.request.headers.getall(FIELD, ()), self.proxies)

    @property
    def is_from_this_host(self) -> bool:
        """Return whether the client is on loopback, names this host, and no proxy passed the request on."""
        client, host = peer_address(self.request.remote or ""), self.request.host.lower()
        is_near = client is not None and client.is_loopback
        is_named = any(host == name or host.startswith(f"{name}:") for name in THIS_HOST)
        return is_near and is_named and not any(name in self.request.headers for name in PASSED_ON)


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the route table.

    `{name}` in the path is one segment; `{name*}` at its end is the rest of a path that no other route has.
    """

    method: str
    path: str
    handler: Handler = field(repr=False)
    quiet: bool = False  # polled every few seconds: no log line


class HeadWriter:
    """Writes the head of a reply to HEAD without its body (RFC 9110, section 9.3.2).

    aiohttp omits the body of a plain response, but not that of a stream.
    """

    def __init__(self, writer: AbstractStreamWriter) -> None:
        self._writer = writer
        self.length: int | None = None  # aiohttp sets it; it must not bound the head

    def __getattr__(self, name: str) -> object:
        return getattr(self._writer, name)

    async def write(self, _: object, **__: object) -> None:
        return

    async def write_eof(self, _: bytes = b"") -> None:
        await self._writer.write_eof(b"")


class HttpRequest(web.BaseRequest):
    """aiohttp's request; the reply never has an HTTP version that abby and guard do not support."""

    @property
    def request_version(self) -> HttpVersion:
        """Return the version in the request line."""
        return super().version

    @property
    def version(self) -> HttpVersion:
        """Return the version of the reply (RFC 9110, section 2.5: one that the server conforms to)."""
        return version if (version := super().version) in _VERSIONS else HttpVersion10


class HttpApp:
    """Handles every request of one process; counts open requests, and rejects new ones while it is stopping."""

    def __init__(
        self,
        routes: Sequence[Route],
        metrics: Metrics,
        *,
        meters: str = "http",
        max_head: int = MAX_HEAD,
        answer_for: ErrorAnswer = answer_for,
        proxies: Networks = _NO_PROXIES,
        clients: ClientNames | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        ends_with_caller: bool = False,
    ) -> None:
        """Take the routes; a second listener of a process has its own meters, and may have another error format.

        With `ends_with_caller` a request is cancelled when its connection closes: no other process can use the answer.
        """
        self.routes = tuple(routes)
        self.ends_with_caller = ends_with_caller
        self.max_head = max_head
        self.answer_for = answer_for
        self._proxies = proxies
        self.headers = headers
        self._clients = clients  # None: every client may call; routes require credentials
        self.in_hand = 0
        self.stopping = False
        self._closed_at = 0.0
        self._idle = asyncio.Event()
        self._fixed: dict[str, dict[str, Route]] = {}
        self._patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []
        self._rest_patterns: list[tuple[re.Pattern[str], dict[str, Route]]] = []  # tried last
        self._counted = metrics.counter(f"{meters}_requests", "Requests by route and status.", "route", "status")
        self._seconds = metrics.histogram(f"{meters}_request_seconds", "Seconds a request took.", "route")
        self.refused_connections = metrics.counter(
            f"{meters}_connections_refused", "Connections beyond a limit: of all callers, or of one address.", "kind"
        )
        self._meters: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        for route in self.routes:
            self._add(route)

    def use(
        self,
        *,
        clients: ClientNames | None = None,
        proxies: Networks | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Use these settings for the requests from now on; None leaves a setting as it is."""
        self._clients = self._clients if clients is None else clients
        self._proxies = self._proxies if proxies is None else proxies
        self.headers = self.headers if headers is None else headers

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handle one request and return a response in every case."""
        began = time.perf_counter()
        request_id = request_id_of(request)
        structlog.contextvars.bind_contextvars(request_id=request_id)
        self.in_hand += 1
        route: Route | None = None
        try:
            if self._clients is not None:
                self._clients.require(request.get_extra_info("peercert"), request.remote)
            route, variables = self._find(request)
            if self.stopping:
                raise ShuttingDown("This process is stopping; try again.")  # noqa: TRY301
            response = await route.handler(Call(request, request_id, variables, self._proxies, self.headers))
        except MailwardenError as error:
            response = self.answer_for(error)
        except ConnectionError:
            log.info("caller_disconnected", route=route.path if route else None)
            raise
        except Exception:
            log.exception("request_failed")
            sentence = "Something went wrong on our side; the log has it by this request id."
            response = self.answer_for(InternalError(sentence))
        finally:
            self.in_hand -= 1
            if self.stopping and not self.in_hand:
                self._idle.set()
        if not response.prepared:
            finish_headers(response, request_id, request.path, self.headers)
            if self.stopping or not request.content.is_eof():  # do not wait for the rest of a body
                response.force_close()
        self._record(request, route, response.status, time.perf_counter() - began)
        return response

    def counted_address(self, transport: asyncio.BaseTransport) -> str | None:
        """Return the address to count a connection by: an IPv4 address, or the /64 of an IPv6 address.

        One host may have a whole /64. None for a trusted proxy, which has many clients, and for a connection without an
        address.
        """
        peer = transport.get_extra_info("peername")
        address = peer_address(str(peer[0])) if isinstance(peer, tuple) and peer else None
        if address is None or address in self._proxies:
            return None
        return str(address) if address.version == 4 else str(ip_network((address, 64), strict=False))

    def close(self) -> None:
        """Reject new requests from now on."""
        if not self.stopping:
            self.stopping = True
            self._closed_at = time.monotonic()

    async def stop(self, seconds: float) -> None:
        """Reject new requests, and wait for open ones, at most `seconds` after `close`."""
        self.close()
        if self.in_hand:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._closed_at + seconds - time.monotonic(), 0.0)):
                    await self._idle.wait()

    def _find(self, request: web.BaseRequest) -> tuple[Route, Mapping[str, str]]:
        _check_head(request, self.max_head)
        path, variables = request.path, _NO_VARIABLES
        methods = self._fixed.get(path)
        if methods is None:
            for pattern, candidates in chain(self._patterns, self._rest_patterns):
                if match := pattern.fullmatch(path):
                    methods, variables = candidates, match.groupdict()
                    break
            else:
                raise NotFound("There is nothing at this path.")
        route = methods.get(request.method)
        if route is None and request.method == "HEAD":
            route = methods.get("GET")
        if route is None:
            allowed = {*methods, "HEAD"} if "GET" in methods else methods
            raise MethodNotAllowed("This path does not take this method.", allowed=sorted(allowed))
        return route, variables

    def _add(self, route: Route) -> None:
        if "{" not in route.path:
            self._fixed.setdefault(route.path, {})[route.method] = route
            return
        segments = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", route.path)
        pattern = re.compile(re.sub(r"\{(\w+)\*\}", r"(?P<\1>.*)", segments))  # the rest of a path, with its slashes
        patterns = self._rest_patterns if "*}" in route.path else self._patterns
        for known, methods in patterns:
            if known == pattern:
                methods[route.method] = route
                return
        patterns.append((pattern, {route.method: route}))

    def _record(self, request: web.BaseRequest, route: Route | None, status: int, seconds: float) -> None:
        name = route.path if route else "none"
        self.count(name, status, seconds)
        if route is None or not route.quiet:
            log.info("request", method=request.method, route=name, status=status, ms=round(seconds * 1000, 2))

    def count(self, name: str, status: int, seconds: float) -> None:
        """Count a request of a route, also one that arrived without HTTP."""
        counted, timed = self._meters.get((name, status)) or self._add_meters(name, status)
        counted.inc()
        timed.observe(seconds)

    def _add_meters(self, name: str, status: int) -> tuple[Counter, Histogram]:
        """Look the labels up once: a lookup costs more than counting."""
        meters = self._meters[name, status] = (self._counted.labels(name, status), self._seconds.labels(name))
        return meters


def request_id_of(request: web.BaseRequest) -> str:
    """Return the caller's request id if it is valid, else a new one."""
    given = request.headers.get(REQUEST_ID, "")
    return given if _USABLE_ID.fullmatch(given) else secrets.token_hex(8)


def finish_headers(
    response: web.StreamResponse, request_id: str, path: str, own: Mapping[str, str] = _NO_HEADERS
) -> None:
    """Set the headers of every response, and those of this process."""
    headers = response.headers
    headers.update(own)
    headers[REQUEST_ID] = request_id
    headers["Server"] = "mailwarden"
    headers.setdefault("Cache-Control", "no-store")
    headers["X-Content-Type-Options"] = "nosniff"
    if path.startswith("/v1/"):
        headers["X-API-Version"] = API_VERSION


def _check_head(request: web.BaseRequest, max_head: int) -> None:
    """Reject heads that two parsers could read differently."""
    version = request.request_version if isinstance(request, HttpRequest) else request.version
    if version not in _VERSIONS:
        raise BadRequest("This server speaks HTTP/1.1.")
    hosts = request.headers.getall("Host", ())
    if len(hosts) > 1 or (not hosts and request.version == HttpVersion11):
        raise BadRequest("The request needs exactly one Host header.")
    if sum(len(name) + len(value) + 4 for name, value in request.raw_headers) > max_head:
        raise BadRequest("The request's head is too large.")
    if request.headers.get("Expect", "100-continue").lower() != "100-continue":
        raise BadRequest("The only supported expectation is 100-continue.")
