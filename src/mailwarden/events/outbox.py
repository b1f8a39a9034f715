"""Writes events inside the transaction of the change.

The order of events is the order of their numbers. Call `record` after the change, while the transaction holds the lock
of the changed row: so the numbers of one subject follow its changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import msgspec

from mailwarden.database.pool import Connection
from mailwarden.events.catalogue import EventData
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.storable import storable

_INSERT = """
INSERT INTO events (id, type, tenant, subject, data)
SELECT id, type, tenant, subject, data
FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::text[]) AS given (id, type, tenant, subject, data)
"""
_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event that is about to be recorded; its time is the database's."""

    id: UUID
    data: EventData
    tenant: UUID | None
    subject: str


def new_event(data: EventData, tenant: UUID | None, subject: str | UUID) -> NewEvent:
    """Return an event with a new id, a UUID version 7."""
    return NewEvent(new_ggrid(), data, tenant, str(subject))


async def record(connection: Connection, events: Sequence[NewEvent]) -> None:
    """Write the events in the caller's transaction, after the change that they describe."""
    if not events:
        return
    await connection.execute(
        _INSERT,
        [event.id for event in events],
        [event.data.type for event in events],
        [event.tenant for event in events],
        [event.subject for event in events],
        [encode_data(event.data) for event in events],
    )


def encode_data(data: EventData) -> str:
    """Return the data as JSON text without lone surrogates, which UTF-8 cannot hold."""
    try:
        return _encoder.encode(data).decode()
    except UnicodeEncodeError:
        return _encoder.encode(storable(msgspec.to_builtins(data))).decode()
