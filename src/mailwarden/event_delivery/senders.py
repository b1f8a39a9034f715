"""Turns events into the documents of a receiver's format, and sends them by its kind."""

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from mailwarden.crypto.keyring import BrokenSeal
from mailwarden.crypto.seal import Seal
from mailwarden.event_delivery.addresses import AddressRules
from mailwarden.event_delivery.file_sender import FileSender
from mailwarden.event_delivery.formats import document_of, severity_of
from mailwarden.event_delivery.http_client import DeliveryFailed, HttpClient
from mailwarden.event_delivery.model import Kind, Receiver, url_context
from mailwarden.event_delivery.name_lookup import Lookup
from mailwarden.event_delivery.signatures import signed_headers
from mailwarden.event_delivery.syslog import SyslogMessage, SyslogSender
from mailwarden.events.catalogue import Event

LANES = 8  # webhooks of one receiver in flight
BATCH = "events.batch"


class Sender(Protocol):
    """Sends events to one receiver: up to `chunk` events by one call, up to `lanes` calls at once."""

    lanes: int
    chunk: int

    async def send(self, events: Sequence[Event]) -> None:
        """Return when the receiver has acknowledged all events, or raise DeliveryFailed."""

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Channels:
    """The shared parts of the senders: HTTP clients, TLS settings, allowed networks, folder and secrets.

    Receivers with tenants have a separate client: its connections are never those to a private network.
    """

    http: HttpClient
    tenant_http: HttpClient
    trust: ssl.SSLContext
    rules: AddressRules
    folder: Path
    seal: Seal
    lookup: Lookup

    def sender_of(self, receiver: Receiver) -> Sender:
        if receiver.kind is Kind.WEBHOOK:
            return WebhookSender(receiver, self.http if receiver.is_deployment else self.tenant_http, self.seal)
        if receiver.kind is Kind.SYSLOG:
            return SyslogEvents(receiver, SyslogSender(receiver.url, self.rules, self.trust, self.lookup))
        return FileEvents(receiver, FileSender(self.folder, receiver.url))


class UnusableSender:
    """Stands for a sender that cannot be made from the stored receiver: every attempt fails with the reason."""

    lanes = 1
    chunk = 1

    def __init__(self, reason: str) -> None:
        self._reason = reason

    async def send(self, events: Sequence[Event]) -> None:
        raise DeliveryFailed(self._reason)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class WebhookSender:
    """Posts each event, or a batch of them; a batch keeps the order of all events, single ones that of a subject."""

    def __init__(self, receiver: Receiver, http: HttpClient, seal: Seal) -> None:
        self._receiver = receiver
        self._http = http
        self._seal = seal
        self.lanes = 1 if receiver.batch_size > 1 else LANES
        self.chunk = receiver.batch_size

    async def send(self, events: Sequence[Event]) -> None:
        if self._receiver.batch_size > 1:
            webhook_id, body = f"{events[0].id}_{events[-1].id}", self._batch(events)
        else:
            webhook_id, body = str(events[0].id), msgspec.json.encode(document_of(self._receiver.format, events[0]))
        headers = signed_headers(self._secrets(), webhook_id, int(time.time()), body)
        await self._http.post(self._url(), headers, body)

    async def close(self) -> None:
        """Do nothing: the client is shared."""

    def _batch(self, events: Sequence[Event]) -> bytes:
        documents = [document_of(self._receiver.format, event) for event in events]
        return msgspec.json.encode({"type": BATCH, "time": datetime.now(UTC), "data": {"events": documents}})

    def _url(self) -> str:
        receiver = self._receiver
        assert receiver.sealed_url is not None
        try:
            return self._seal.open(receiver.sealed_url, url_context(receiver.uid)).decode("ascii")
        except BrokenSeal as error:
            raise DeliveryFailed(f"The URL cannot be decrypted. {error}") from None

    def _secrets(self) -> Sequence[str]:
        receiver = self._receiver
        sealed = [receiver.secret]
        if receiver.previous_until is not None and datetime.now(UTC) < receiver.previous_until:
            sealed.append(receiver.previous_secret)
        try:
            return [self._seal.open(each, receiver.uid.bytes).decode("ascii") for each in sealed if each is not None]
        except BrokenSeal as error:
            raise DeliveryFailed(f"The secret cannot be decrypted. {error}") from None


class SyslogEvents:
    def __init__(self, receiver: Receiver, sender: SyslogSender) -> None:
        self._format = receiver.format
        self._sender = sender
        self.lanes = 1
        self.chunk = 100

    async def send(self, events: Sequence[Event]) -> None:
        await self._sender.send([self._message(event) for event in events])

    async def close(self) -> None:
        await self._sender.close()

    def _message(self, event: Event) -> SyslogMessage:
        document = document_of(self._format, event)
        brief = {"id": str(event.id), "type": event.type, "subject": event.subject, "truncated": True}
        return SyslogMessage(event.time, event.type, severity_of(event), document, brief)


class FileEvents:
    def __init__(self, receiver: Receiver, sender: FileSender) -> None:
        self._format = receiver.format
        self._sender = sender
        self.lanes = 1
        self.chunk = 500

    async def send(self, events: Sequence[Event]) -> None:
        await self._sender.send([msgspec.json.encode(document_of(self._format, event)) for event in events])

    async def close(self) -> None:
        await self._sender.close()
