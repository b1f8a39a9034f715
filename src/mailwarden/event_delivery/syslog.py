"""Sends events as syslog messages (RFC 5424) over TLS with octet counting (RFC 5425).

Syslog has no acknowledgement: an event counts as delivered when the connection accepted its bytes and the receiver
had not closed it. The text of a message is JSON in ASCII, so that no receiver can misread its encoding.

Security: the receiver's certificate is checked against its name, and its address as for webhooks.
"""

import asyncio
import json
import socket
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct

from mailwarden.event_delivery.addresses import AddressRules, ForbiddenTarget, read_target
from mailwarden.event_delivery.http_client import MAX_ADDRESSES, DeliveryFailed, unreachable_name
from mailwarden.event_delivery.name_lookup import Lookup

DEADLINE = 15.0  # seconds for the connection, and for the bytes of one batch
MAX_MESSAGE = 64 * 1024  # bytes; receivers should accept 8192 (RFC 5425, section 4.3.1), common ones take 64 KiB
APPLICATION = "mailwarden"
FACILITY = 13  # log audit
NOTICE, WARNING, INFORMATIONAL = 5, 4, 6
_IDLE = 0.05  # seconds in which a receiver that closed the connection is noticed


class SyslogMessage(Struct, frozen=True):
    """One event as syslog sees it; `brief` replaces a document that is too long."""

    moment: datetime
    event_type: str
    severity: int
    document: Mapping[str, object]
    brief: Mapping[str, object]


def frame(message: SyslogMessage, host: str) -> bytes:
    """Return the message with its length before it."""
    encoded = _encoded(message, host, message.document)
    if len(encoded) > MAX_MESSAGE:
        encoded = _encoded(message, host, message.brief)
    return str(len(encoded)).encode("ascii") + b" " + encoded


def _encoded(message: SyslogMessage, host: str, document: Mapping[str, object]) -> bytes:
    moment = message.moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    priority = FACILITY * 8 + message.severity
    text = json.dumps(document, separators=(",", ":"))
    head = f"<{priority}>1 {moment} {host} {APPLICATION} - {message.event_type[:32]} - "
    return (head + text).encode("ascii")


def host_name() -> str:
    """Return this host's name as a syslog HOSTNAME: printable ASCII, at most 255 characters."""
    name = "".join(each for each in socket.gethostname() if "!" <= each <= "~")[:255]
    return name or "-"


class SyslogSender:
    """One connection to a receiver, `tls://host:6514`, opened when it is needed."""

    def __init__(self, url: str, rules: AddressRules, trust: ssl.SSLContext, lookup: Lookup) -> None:
        self._target = read_target(url, "tls")
        self._rules = rules
        self._trust = trust
        self._lookup = lookup
        self._host = host_name()
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def send(self, messages: Sequence[SyslogMessage]) -> None:
        """Send the messages in their order, or raise DeliveryFailed."""
        try:
            async with asyncio.timeout(DEADLINE):
                await self._send(messages)
        except ForbiddenTarget as error:
            raise (unreachable_name() if self._target.literal is None else DeliveryFailed(error.message)) from None
        except TimeoutError:
            await self.close()
            raise DeliveryFailed(f"The syslog receiver did not accept the events within {DEADLINE:.0f} s.") from None
        except ssl.SSLCertVerificationError as error:
            raise DeliveryFailed(f"The syslog receiver's certificate is invalid: {error.verify_message}.") from None
        except socket.gaierror:
            raise unreachable_name() from None
        except OSError as error:
            await self.close()
            reason = error.strerror or type(error).__name__
            raise DeliveryFailed(f"The syslog receiver cannot be reached: {reason}.") from None

    async def close(self) -> None:
        """Close the connection; the next batch opens another."""
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].transport.abort()

    async def _send(self, messages: Sequence[SyslogMessage]) -> None:
        if self._streams is not None and self._streams[0].at_eof():
            await self.close()
        if self._streams is None:
            self._streams = await self._connect()
        reader, writer = self._streams
        for message in messages:
            writer.write(frame(message, self._host))
            await writer.drain()
        # A receiver that went away accepts bytes into its system's buffer and answers with a reset.
        with suppress(TimeoutError):
            async with asyncio.timeout(_IDLE):
                if not await reader.read(1024):
                    raise ConnectionResetError("the receiver closed the connection")
        if writer.is_closing():
            raise ConnectionResetError("the connection is closed")

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        target = self._target
        literal = target.literal
        addresses = [target.host] if literal is not None else await self._lookup(target.host)
        for address in addresses:
            self._rules.require(address)
        failure: OSError = socket.gaierror(socket.EAI_NONAME, "the name has no address")
        for address in addresses[:MAX_ADDRESSES]:
            try:
                return await asyncio.open_connection(
                    address, target.port, ssl=self._trust, server_hostname=target.host, limit=1024
                )
            except ssl.SSLCertVerificationError:
                raise
            except OSError as error:
                failure = error
        raise failure
