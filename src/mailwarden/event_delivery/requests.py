"""The records of the events API."""

from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from mailwarden.events.record import EventRecord

MAX_EVENTS = 1_000
MAX_WAIT = 60
LATEST = "latest"


class EventsQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a page of events."""

    after: Annotated[
        Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType,
        Meta(description="`next` of the page before, or `latest`; unset: from the oldest event that is kept."),
    ] = UNSET
    types: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1_000)] | UnsetType,
        Meta(description="Only these types, separated by commas: `message.held,message.released`."),
    ] = UNSET
    tenant_uid: Annotated[UUID | UnsetType, Meta(description="Only this tenant's events.")] = UNSET
    wait: Annotated[
        int, Meta(ge=0, le=MAX_WAIT, description="Seconds to wait for an event if there is none after the cursor.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_EVENTS, description="Maximum number of events on one page.")] = 100


class EventPage(Struct, frozen=True, rename="camel"):
    events: Annotated[tuple[EventRecord, ...], Meta(description="In their order.")]
    next: Annotated[str, Meta(description="The cursor behind this page; also set if the page is empty.")]
    more: Annotated[
        bool,
        Meta(description="Whether there may be further events now, also after an empty page: continue with `next`."),
    ]
