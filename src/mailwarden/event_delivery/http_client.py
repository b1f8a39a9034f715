"""Posts webhooks: to checked addresses alone, over TLS, without redirects and proxies, within a deadline.

Security: the receivers are chosen by tenants; see `addresses`. Their responses are read up to a limit and discarded;
`bounded_connection` has the limit of what comes besides the body.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from mailwarden import __version__
from mailwarden.errors import ConfigurationError
from mailwarden.event_delivery.addresses import AddressRules, ForbiddenTarget, Target, read_target
from mailwarden.event_delivery.bounded_connection import BoundedConnector
from mailwarden.event_delivery.name_lookup import Lookup, LookupFailed, NameLookup

DEADLINE = 15.0  # seconds for one webhook, from the name lookup to the end of the response
CONNECT_DEADLINE = 5.0
MAX_RESPONSE = 64 * 1024  # bytes of the body; beyond it the connection is closed
MAX_EXCHANGE = 1024 * 1024  # bytes of all that a receiver sends for one webhook, also before its response
MAX_ADDRESSES = 16  # of one name
MAX_RETRY_AFTER = 3_600.0
KEEP_ALIVE = 20.0
AGENT = f"Mailwarden/{__version__}"


class DeliveryFailed(Exception):
    """A receiver did not acknowledge: `retry_after` has the seconds it asked for, `gone` that it wants no more."""

    def __init__(self, sentence: str, *, retry_after: float = 0.0, gone: bool = False) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.retry_after = retry_after
        self.gone = gone


def unreachable_name() -> DeliveryFailed:
    """Return the failure of both kinds of names: a tenant must not learn from abby which internal names exist."""
    return DeliveryFailed(
        "The receiver's name does not resolve, or resolves to an address that deliveries must not reach. Deliveries go "
        "to public addresses only; events.allowPrivateNetworks of abby.yml allows further networks to receivers of the "
        "deployment."
    )


class CheckedResolver(AbstractResolver):
    """Resolves a name for the connector; refuses the whole answer if one of its addresses is not allowed."""

    def __init__(self, rules: AddressRules, lookup: Lookup) -> None:
        self._rules = rules
        self._lookup = lookup

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._lookup(host)
        if not addresses:
            raise OSError(f"{host} has no address")
        for address in addresses:
            self._rules.require(address)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses[:MAX_ADDRESSES]
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


@dataclass(frozen=True, slots=True)
class HttpClient:
    """A session for each scheme: http reaches only the configured networks, https public addresses too."""

    sessions: Mapping[str, aiohttp.ClientSession]
    rules: Mapping[str, AddressRules]

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        """Post the body; return if the receiver acknowledged it with 2xx, or raise DeliveryFailed."""
        target = read_target(url, "https", "http")
        try:
            self._check_literal(target)
            async with asyncio.timeout(DEADLINE):
                await self._post(target, url, headers, body)
        except ForbiddenTarget as error:
            is_hidden = target.literal is None and target.scheme == "https"  # http is only for the deployment
            raise (unreachable_name() if is_hidden else DeliveryFailed(error.message)) from None
        except TimeoutError:
            raise DeliveryFailed(f"The receiver did not answer within {DEADLINE:.0f} seconds.") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise DeliveryFailed(f"The receiver's certificate is invalid: {_reason(error)}") from None
        except (aiohttp.ClientError, OSError) as error:
            if is_unresolved(error):
                raise unreachable_name() from None
            raise DeliveryFailed(f"The receiver cannot be reached: {_reason(error)}") from None

    def _check_literal(self, target: Target) -> None:
        if target.literal is not None:  # the connector would not ask the resolver
            self.rules[target.scheme].require(target.host)

    async def _post(self, target: Target, url: str, headers: Mapping[str, str], body: bytes) -> None:
        async with self.sessions[target.scheme].post(
            url,
            data=body,
            headers={"Content-Type": "application/json", "User-Agent": AGENT, **headers},
            allow_redirects=False,
        ) as response:
            if not await _drain(response):
                response.close()
            _require_acknowledged(response)


async def _drain(response: aiohttp.ClientResponse) -> bool:
    """Read the response, so that the connection can be used again; return False if it is too long."""
    left = MAX_RESPONSE
    async for chunk in response.content.iter_any():
        left -= len(chunk)
        if left < 0:
            return False
    return True


def _require_acknowledged(response: aiohttp.ClientResponse) -> None:
    status = response.status
    if 200 <= status < 300:
        return
    if status == 410:
        raise DeliveryFailed("The receiver answered 410 Gone: it wants no more events.", gone=True)
    if 300 <= status < 400:
        raise DeliveryFailed(f"The receiver answered {status}. Redirects are not followed: write the final URL.")
    wait = _retry_after(response.headers.get("Retry-After", "")) if status in (429, 503) else 0.0
    raise DeliveryFailed(f"The receiver answered {status}.", retry_after=wait)


def _retry_after(text: str) -> float:
    """Return the seconds of a Retry-After field (RFC 9110, section 10.2.3), 0 if it is invalid."""
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return min(max((moment - datetime.now(UTC)).total_seconds(), 0.0), MAX_RETRY_AFTER)


def is_unresolved(error: Exception) -> bool:
    """Return whether the resolver answered that a name has no address."""
    return isinstance(error, aiohttp.ClientConnectorDNSError) and not isinstance(error.os_error, LookupFailed)


def _reason(error: Exception) -> str:
    """Return a short reason without the address, which a tenant need not know."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{cause.verify_message}."
    if isinstance(cause, OSError) and cause.strerror:
        return f"{cause.strerror}."[:200]
    return f"{type(error).__name__}."


def client_trust(authority: Path | None) -> ssl.SSLContext:
    """Return the TLS settings for receivers: the system's CAs, and the configured one."""
    trust = ssl.create_default_context()
    trust.minimum_version = ssl.TLSVersion.TLSv1_2
    if authority is not None:
        try:
            trust.load_verify_locations(authority)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"events.ca: cannot read certificates from {authority} ({error}).") from None
    return trust


@asynccontextmanager
async def open_http_client(
    rules: AddressRules, trust: ssl.SSLContext, lookup: Lookup | None = None, max_bytes: int = MAX_EXCHANGE
) -> AsyncIterator[HttpClient]:
    """Open the sessions; `lookup` resolves names, by default with the system's resolver.

    `max_bytes` are read at most for one request, with everything that surrounds the body of the response.
    """
    by_scheme = {"https": rules, "http": replace(rules, public=False)}
    lookup = lookup or NameLookup()
    sessions = {scheme: _session(each, trust, lookup, max_bytes) for scheme, each in by_scheme.items()}
    try:
        yield HttpClient(sessions, by_scheme)
    finally:
        for session in sessions.values():
            await session.close()


def _session(rules: AddressRules, trust: ssl.SSLContext, lookup: Lookup, max_bytes: int) -> aiohttp.ClientSession:
    def checked_socket(info: tuple[int, int, int, str, tuple[object, ...]]) -> socket.socket:
        family, kind, protocol, _, address = info
        rules.require(str(address[0]))  # the last check: no socket for an address that is not allowed
        made = socket.socket(family, kind, protocol)
        made.setblocking(False)
        return made

    resolver = CheckedResolver(rules, lookup)
    connector = BoundedConnector(trust, resolver, checked_socket, keep_alive=KEEP_ALIVE, max_bytes=max_bytes)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=DEADLINE, sock_connect=CONNECT_DEADLINE),
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
    )
