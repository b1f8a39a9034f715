"""The actions of administrators on receivers: add, test, rotate the secret, enable, disable, remove."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast
from uuid import UUID

import msgspec

from mailwarden.crypto.seal import Seal
from mailwarden.errors import SchemaViolation
from mailwarden.event_delivery.addresses import read_target
from mailwarden.event_delivery.file_sender import checked_name
from mailwarden.event_delivery.model import (
    BY_USER,
    MAX_BATCH,
    MAX_BATCH_SECONDS,
    OVERLAP,
    Kind,
    NewReceiver,
    Receiver,
    Sealed,
    url_context,
)
from mailwarden.event_delivery.senders import Channels
from mailwarden.event_delivery.signatures import new_secret
from mailwarden.event_delivery.store import ReceiverStore, new_uid
from mailwarden.events.catalogue import CATALOGUE, Event, Json, ReceiverTest
from mailwarden.events.reader import EventReader
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.scope import Actor, Scope

MAX_NAME = 60
MAX_OVERLAP = timedelta(days=30)


class ReceiverService:
    def __init__(self, store: ReceiverStore, reader: EventReader, seal: Seal) -> None:
        self._store = store
        self._reader = reader
        self._seal = seal

    async def list(self, scope: Scope) -> Sequence[Receiver]:
        return await self._store.list(scope)

    async def find(self, scope: Scope, uid: UUID) -> Receiver:
        return await self._store.find(scope, uid)

    async def add(self, scope: Scope, wanted: NewReceiver, actor: Actor) -> tuple[Receiver, str]:
        """Store a receiver that receives all events from now on; return it and its secret, which is shown once."""
        _check(wanted)
        uid, secret, sealed = new_uid(), "", None
        if wanted.kind is Kind.WEBHOOK:
            secret = new_secret()
            url = self._seal.close(wanted.url.encode("ascii"), url_context(uid))
            sealed = Sealed(self._seal.close(secret.encode("ascii"), uid.bytes), url)
        cursor = await self._reader.latest()
        made = await self._store.create(scope, uid, wanted, cursor=cursor, sealed=sealed, actor=actor)
        return made, secret

    async def rotate(self, scope: Scope, uid: UUID, actor: Actor, overlap: timedelta = OVERLAP) -> tuple[Receiver, str]:
        """Make a new secret; both sign until the end of the overlap."""
        if not timedelta(0) <= overlap <= MAX_OVERLAP:
            raise SchemaViolation(f"The overlap is between 0 and {MAX_OVERLAP.days} days.")
        if (await self._store.find(scope, uid)).kind is not Kind.WEBHOOK:
            raise SchemaViolation("Only webhooks have a secret.")
        secret = new_secret()
        sealed = self._seal.close(secret.encode("ascii"), uid.bytes)
        return await self._store.rotate(scope, uid, sealed, datetime.now(UTC) + overlap, actor), secret

    async def enable(self, scope: Scope, uid: UUID, actor: Actor) -> Receiver:
        return await self._store.enable(scope, uid, actor)

    async def disable(self, scope: Scope, uid: UUID, actor: Actor) -> Receiver:
        return await self._store.disable(scope, uid, BY_USER, actor)

    async def remove(self, scope: Scope, uid: UUID, actor: Actor) -> None:
        await self._store.remove(scope, uid, actor)

    async def test(self, scope: Scope, uid: UUID, channels: Channels, actor: Actor) -> Event:
        """Send one test event to the receiver and return it, or raise DeliveryFailed; the audit log has both."""
        receiver = await self._store.begin_test(scope, uid, actor)
        tenant = next(iter(receiver.tenants)) if receiver.tenants else None
        data = cast("dict[str, Json]", msgspec.to_builtins(ReceiverTest(receiver=receiver.name)))
        event = Event(new_ggrid(), ReceiverTest.type, datetime.now(UTC), tenant, str(uid), data)
        sender = channels.sender_of(receiver)
        try:
            await sender.send([event])
        finally:
            await sender.close()
        return event


def _check(wanted: NewReceiver) -> None:
    """Raise SchemaViolation for settings that no scope may have."""
    name = wanted.name
    if not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise SchemaViolation(f"The name must have 1 to {MAX_NAME} printable characters.")
    unknown = sorted((wanted.types or frozenset()) - CATALOGUE.keys())
    if unknown:
        raise SchemaViolation(f"There is no event type `{unknown[0]}`; the types are {', '.join(sorted(CATALOGUE))}.")
    if wanted.types is not None and not wanted.types:
        raise SchemaViolation("Choose at least one event type, or all.")
    if not 1 <= wanted.batch_size <= MAX_BATCH or not 0 <= wanted.batch_seconds <= MAX_BATCH_SECONDS:
        raise SchemaViolation(f"A batch has 1 to {MAX_BATCH} events and waits 0 to {MAX_BATCH_SECONDS} seconds.")
    if wanted.batch_size > 1 and wanted.kind is not Kind.WEBHOOK:
        raise SchemaViolation("Only webhooks have batches; syslog and files send one document for each event.")
    if wanted.kind is Kind.WEBHOOK:
        target = read_target(wanted.url, "https", "http")
        if target.scheme == "http" and wanted.tenants is not None:
            raise SchemaViolation("The URL must start with https://: http is only for receivers of the deployment.")
    elif wanted.kind is Kind.SYSLOG:
        read_target(wanted.url, "tls")
    else:
        checked_name(wanted.url)
