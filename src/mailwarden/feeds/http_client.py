"""Fetches documents of feeds and posts sightings, through the guarded sessions of event delivery.

Security: the addresses are checked in `event_delivery/addresses.py`; only https, no redirects, no proxies. A document
whose end cannot be recognised is refused, and a longer one than allowed is not read to its end.
"""

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import aiohttp

from mailwarden import __version__
from mailwarden.errors import ConfigurationError, FeedUnreachable, SchemaViolation
from mailwarden.event_delivery import http_client as guarded
from mailwarden.event_delivery.addresses import AddressRules, ForbiddenTarget, read_target
from mailwarden.feeds.fetching import HttpAnswer
from mailwarden.feeds.indicators import reject
from mailwarden.feeds.model import MAX_BYTES

TIMEOUT = aiohttp.ClientTimeout(total=120.0, sock_connect=10.0, sock_read=30.0)  # for one document
MAX_EXCHANGE = 2 * MAX_BYTES  # for one document, with everything that surrounds its bytes
AGENT = f"Mailwarden/{__version__}"


class FeedHttp:
    """The HTTP client of feeds."""

    def __init__(self, client: guarded.HttpClient) -> None:
        self._session = client.sessions["https"]
        self._rules = client.rules["https"]

    async def get(self, url: str, headers: Mapping[str, str], max_bytes: int) -> HttpAnswer:
        async with self._answer("GET", url, headers, b"") as response:
            if not _has_end(response):
                raise FeedUnreachable("The source sends no length, so that a cut answer could not be noticed.")
            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > max_bytes:
                    raise reject(f"the feed has more than the {max_bytes:,} bytes that are left of its limit")
            fields = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(response.status, fields, bytes(body))

    async def send(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        async with self._answer("POST", url, headers, body) as response:
            return response.status

    @asynccontextmanager
    async def _answer(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        fields = {"User-Agent": AGENT, "Accept-Encoding": "identity", **headers}
        try:
            target = read_target(url, "https")
            if target.literal is not None:  # the connector would not ask the resolver
                self._rules.require(target.host)
            async with self._session.request(
                method, url, headers=fields, data=body or None, allow_redirects=False, timeout=TIMEOUT
            ) as response:
                yield response
        except SchemaViolation as error:
            raise FeedUnreachable(f"The URL of the feed cannot be used. {error.message}") from None
        except ForbiddenTarget:
            raise _unreachable_name() from None
        except TimeoutError:
            raise FeedUnreachable("The source did not answer in time.") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise FeedUnreachable(f"The certificate of the source is invalid: {error.certificate_error}.") from None
        except (aiohttp.ClientError, OSError) as error:
            if guarded.is_unresolved(error):
                raise _unreachable_name() from None
            raise FeedUnreachable(f"The source cannot be read: {_reason(error)}.") from None


def _unreachable_name() -> FeedUnreachable:
    """Return the failure of both kinds of names: a tenant must not learn from abby which internal names exist."""
    return FeedUnreachable(
        "The name of the source does not resolve, or it has no public address, or one of events.refuseNetworks. "
        "feeds.allowedNetworks of abby.yml allows further networks."
    )


def _has_end(response: aiohttp.ClientResponse) -> bool:
    """Return whether a cut body would be noticed: it has a length, or chunks, or there is none (RFC 9112, 6.3)."""
    coding = response.headers.get("Transfer-Encoding")
    if response.status in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        return True
    return response.content_length is not None if coding is None else coding.strip().lower() == "chunked"


def _reason(error: Exception) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    return str(getattr(cause, "strerror", None) or type(cause).__name__)[:200]


def trust_of(folder: Path, authority: str) -> ssl.SSLContext:
    """Return the TLS settings: the system's CAs, and the configured one."""
    try:
        return guarded.client_trust(folder / authority if authority else None)
    except ConfigurationError:
        raise ConfigurationError(f"feeds.ca: cannot read certificates from {folder / authority}.") from None


@asynccontextmanager
async def open_http(rules: AddressRules, trust: ssl.SSLContext) -> AsyncIterator[FeedHttp]:
    """Open the client; `rules` say which private networks feeds may be fetched from, and which networks never."""
    async with guarded.open_http_client(rules, trust, max_bytes=MAX_EXCHANGE) as client:
        yield FeedHttp(client)
