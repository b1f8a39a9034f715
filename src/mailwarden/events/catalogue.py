"""Every event type: its data and its JSON schema.

An event type is added by one class and one row of `CATALOGUE`. A published field keeps its name and its meaning; new
fields may be added, so receivers ignore unknown ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, ClassVar, cast
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from mailwarden.events.record import EventRecord
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.tenant import Profile

VERSION = 1  # of all schemas; a changed meaning of a field raises it
MAX_LISTED = 100  # recipients, tags or entries in one event; the counts are complete
MAX_TEXT = 1_000

Json = object  # a value of JSON, as msgspec decodes it

By = Annotated[str, Meta(description="The actor, with its kind: `key:soar`, `user:anna`, `digest:…`, `system`.")]
Recipients = Annotated[
    tuple[str, ...], Meta(description=f"The first {MAX_LISTED} recipients; `recipientCount` has the number of all.")
]
Subject = Annotated[str, Meta(description="The decoded Subject of the message, shortened.")]

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it is stored and delivered; every delivery has the same id."""

    id: UUID
    type: str
    time: datetime
    tenant: UUID | None  # None: an event of the deployment
    subject: str  # the ordering key: a ggrid, a list, a key, a user, an engine, a tenant
    data: Mapping[str, Json]


class EventData(Struct, frozen=True, rename="camel", omit_defaults=False):
    """The data of one event type."""

    type: ClassVar[str]


class MessageScanned(EventData, frozen=True, rename="camel"):
    """guard has decided about a message, and history has stored it. One event for each tenant of the message."""

    type = "message.scanned"

    ggrid: Annotated[UUID, Meta(description="The id of the analysis, as in the result and in history.")]
    verdict: Verdict
    decision: Decision
    tags: Annotated[tuple[str, ...], Meta(description=f"The first {MAX_LISTED} tags, sorted.")]
    sender: Annotated[str, Meta(description="The envelope sender; empty: the null sender.")]
    recipients: Recipients
    recipient_count: int
    from_address: Annotated[str, Meta(description="The address in the From header.")]
    subject: Subject
    message_id: Annotated[str, Meta(description="The Message-ID header.")]
    sha256: Annotated[str, Meta(description="SHA-256 of the message as received.")]
    size: Annotated[int, Meta(description="Bytes of the message.")]
    source: Annotated[str, Meta(description="The scan source, such as `restApi` or `smtp`.")]
    guard: Annotated[str, Meta(description="The name of the guard.")]
    remote_address: Annotated[str | None, Meta(description="The client of the border MTA.")]
    campaign: Annotated[UUID | None, Meta(description="The group of similar messages of this tenant.")]
    profile: Annotated[Profile, Meta(description="The tenant's profile; `monitor` delivers what others hold.")]
    incomplete: Annotated[bool, Meta(description="The analysis did not cover the whole message.")]
    received: Annotated[datetime, Meta(description="When guard received the message.")]
    completed: Annotated[datetime, Meta(description="When guard had decided.")]


class MessageHeld(EventData, frozen=True, rename="camel"):
    """A message is in quarantine. It may precede `message.scanned`: it is stored before the reply to the MTA."""

    type = "message.held"

    ggrid: UUID
    uid: Annotated[UUID, Meta(description="The held message, as in `/v1/quarantine`.")]
    verdict: Verdict
    sender: str
    recipients: Recipients
    recipient_count: int
    from_address: str
    subject: Subject
    size: int


class MessageReleased(EventData, frozen=True, rename="camel"):
    """The next hop has accepted a held message for these recipients."""

    type = "message.released"

    ggrid: UUID
    uid: UUID
    verdict: Verdict
    sender: str
    recipients: Recipients
    recipient_count: int
    subject: Subject
    by: By


class MessageDeleted(EventData, frozen=True, rename="camel"):
    """A held message was deleted for these recipients, by a user or by retention."""

    type = "message.deleted"

    ggrid: UUID
    uid: UUID
    verdict: Verdict
    sender: str
    recipients: Recipients
    recipient_count: int
    subject: Subject
    by: By
    reason: Annotated[str, Meta(description="`request`, or `retention` for a message that expired.")]


class MessageReported(EventData, frozen=True, rename="camel"):
    """A user or program has reported what a message is; the latest report counts."""

    type = "message.reported"

    uid: Annotated[UUID, Meta(description="The report, as in `/v1/reports`.")]
    ggrid: Annotated[UUID | None, Meta(description="The analysis; null if the message was not scanned here.")]
    kind: Annotated[str, Meta(description="`phishing`, `spam`, `good` or `released`.")]
    subject: Subject
    by: By


class ListChanged(EventData, frozen=True, rename="camel"):
    """Entries of a list were added, updated or deleted. One event for each call, import, undo or expiry run."""

    type = "list.changed"

    list: Annotated[str, Meta(description="The name of the list.")]
    action: Annotated[str, Meta(description="`add`, `import`, `edit`, `delete`, `expire` or `undo`.")]
    added: int
    updated: Annotated[int, Meta(description="Entries that existed already, changed or not.")]
    deleted: int
    entries: Annotated[
        tuple[str, ...], Meta(description=f"The first {MAX_LISTED} changed entries; the counts have the number of all.")
    ]
    by: By


class KeyCreated(EventData, frozen=True, rename="camel"):
    """An API key was created, or replaces another one after a rotation."""

    type = "key.created"

    key_id: Annotated[str, Meta(description="The public id of the key; never its text.")]
    name: str
    scopes: tuple[str, ...]
    tenant_uids: Annotated[tuple[UUID, ...], Meta(description="Its tenants; empty: the whole deployment.")]
    expires: datetime | None
    replaces: Annotated[str | None, Meta(description="The id of the key that was rotated.")]
    by: By


class KeyRevoked(EventData, frozen=True, rename="camel"):
    """An API key was revoked."""

    type = "key.revoked"

    key_id: str
    name: str
    by: By


class UserLogin(EventData, frozen=True, rename="camel"):
    """A user has logged in to the console."""

    type = "user.login"

    user: UUID
    name: str
    method: Annotated[str, Meta(description="`password and code`, `passkey`, `recovery code` or `openid`.")]
    address: Annotated[str | None, Meta(description="The client address.")]


class UserLoginFailed(EventData, frozen=True, rename="camel"):
    """A login was rejected. The name that was typed is not stored: it may be a password."""

    type = "user.login-failed"

    step: Annotated[str, Meta(description="`password`, `code` or `passkey`.")]
    user: Annotated[UUID | None, Meta(description="The user, if one of that name exists.")]
    address: str | None


class EngineDown(EventData, frozen=True, rename="camel"):
    """An engine of a guard does not answer."""

    type = "engine.down"

    guard: str
    engine: str
    required: Annotated[bool, Meta(description="Without this engine messages are undecided.")]
    detail: str
    since: Annotated[datetime, Meta(description="When guard saw the change.")]


class EngineUp(EventData, frozen=True, rename="camel"):
    """An engine of a guard answers again, or for the first time after the start."""

    type = "engine.up"

    guard: str
    engine: str
    required: bool
    detail: str
    since: Annotated[datetime, Meta(description="When guard saw the change.")]


class TenantCreated(EventData, frozen=True, rename="camel"):
    """A tenant was created."""

    type = "tenant.created"

    name: str
    domains: Annotated[tuple[str, ...], Meta(description=f"The first {MAX_LISTED} domains.")]
    by: By


class TenantChanged(EventData, frozen=True, rename="camel"):
    """Settings of a tenant have changed."""

    type = "tenant.changed"

    name: str
    changed: Annotated[
        tuple[str, ...], Meta(description="The settings that differ: `name`, `domains`, `profile`, `weights`, …")
    ]
    by: By


class ReceiverDisabled(EventData, frozen=True, rename="camel"):
    """A receiver of the event delivery was disabled: after three days of failures, by its receiver or by a user."""

    type = "receiver.disabled"

    receiver: Annotated[str, Meta(description="The name of the receiver.")]
    receiver_uid: UUID
    reason: str


class ReceiverTest(EventData, frozen=True, rename="camel"):
    """A test of a receiver. It is sent to this receiver alone and is not stored."""

    type = "receiver.test"

    receiver: Annotated[str, Meta(description="The name of the receiver.")]


CATALOGUE: Mapping[str, type[EventData]] = {
    kind.type: kind
    for kind in (
        MessageScanned,
        MessageHeld,
        MessageReleased,
        MessageDeleted,
        MessageReported,
        ListChanged,
        KeyCreated,
        KeyRevoked,
        UserLogin,
        UserLoginFailed,
        EngineDown,
        EngineUp,
        TenantCreated,
        TenantChanged,
        ReceiverDisabled,
        ReceiverTest,
    )
}


def event_record(event: Event) -> EventRecord:
    """Return an event in its native form."""
    return EventRecord(event.id, event.type, VERSION, event.time, event.tenant, event.subject, dict(event.data))


def encode(event: Event) -> bytes:
    """Return an event in its native JSON form."""
    return _encoder.encode(event_record(event))


class StoredRecord(Struct, frozen=True, rename="camel"):
    """The fields of EventRecord, with the data as the database has it: it is encoded without being decoded before."""

    id: UUID
    type: str
    time: datetime
    tenant_uid: UUID | None
    subject: str
    data: msgspec.Raw
    version: int = VERSION

    def encode(self) -> bytes:
        """Return the event in its native JSON form."""
        return _encoder.encode(self)


def short(text: str) -> str:
    """Return a text of bounded length."""
    return text[:MAX_TEXT]


def first(values: Sequence[str]) -> tuple[str, ...]:
    """Return the first values, each of bounded length."""
    return tuple(value[:MAX_TEXT] for value in values[:MAX_LISTED])


def schemas() -> Mapping[str, dict[str, Json]]:
    """Return the JSON schema (draft 2020-12) of each whole event by its type."""
    return {name: _schema(name, kind) for name, kind in CATALOGUE.items()}


def _schema(name: str, kind: type[EventData]) -> dict[str, Json]:
    (envelope, data), parts = msgspec.json.schema_components(
        (EventRecord, kind), ref_template="#/$defs/{name}", schema_hook=_any
    )
    properties = cast("dict[str, dict[str, Json]]", parts[_last(envelope)]["properties"])
    properties = {**properties, "type": {"const": name}, "version": {"const": VERSION}, "data": data}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:mailwarden:event:{name}:{VERSION}",
        "title": name,
        "description": " ".join((kind.__doc__ or name).split()),
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "$defs": {part: value for part, value in parts.items() if part != _last(envelope)},
    }


def _any(_: type) -> dict[str, Json]:
    return {"description": "A value of JSON."}


def _last(reference: Mapping[str, Json]) -> str:
    return str(reference["$ref"]).rpartition("/")[2]
