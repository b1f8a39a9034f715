"""An event as it leaves: the envelope of every type."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct


class EventRecord(Struct, frozen=True, rename="camel"):
    """One event; `data` depends on the type, see `/v1/events/schemas`."""

    id: Annotated[
        UUID, Meta(description="UUID version 7, the same in every delivery: receivers drop duplicates by it.")
    ]
    type: Annotated[str, Meta(description="The event type, such as `message.scanned`.")]
    version: Annotated[int, Meta(description="The version of the type's schema.")]
    time: Annotated[datetime, Meta(description="When the event was recorded, by the clock of the database.")]
    tenant_uid: Annotated[UUID | None, Meta(description="The tenant; null for events of the deployment.")]
    subject: Annotated[str, Meta(description="The ordering key: events of one subject come in order.")]
    data: Annotated[dict[str, object], Meta(description="The fields of this type.")]
