"""The records of the quarantine: held messages, their recipients, and their state."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from mailwarden.model.outcome import Verdict
from mailwarden.wire.scanning import EnvelopeAddress

MAX_HELD = 500
_STATES = ["held", "releasing", "released", "deleted"]
Words = Annotated[str, Meta(min_length=1, max_length=1_000)]


class SenderPart(StrEnum):
    """The part of a sender that a release adds to a list."""

    ADDRESS = "address"
    DOMAIN = "domain"


class HeldState(StrEnum):
    """The state of a held message for one recipient."""

    HELD = "held"
    RELEASING = "releasing"
    RELEASED = "released"
    DELETED = "deleted"


class QuarantineQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a page of held messages."""

    tenant_uid: Annotated[UUID | UnsetType, Meta(description="Only this tenant's messages.")] = UNSET
    verdict: Annotated[Verdict | UnsetType, Meta(description="Only messages of this verdict.")] = UNSET
    recipient: Annotated[
        Words | UnsetType, Meta(description="Only messages to this address, or `@domain` with its subdomains.")
    ] = UNSET
    sender: Annotated[
        Words | UnsetType, Meta(description="Only messages from this address, or `@domain` with its subdomains.")
    ] = UNSET
    text: Annotated[Words | UnsetType, Meta(description="Only messages with this text in the subject.")] = UNSET
    state: Annotated[HeldState | UnsetType, Meta(description="Only messages with a recipient in this state.")] = UNSET
    since: Annotated[
        Annotated[datetime, Meta(tz=True)] | UnsetType, Meta(description="Only messages received since then.")
    ] = UNSET
    after: Annotated[
        UUID | UnsetType, Meta(description="The `uid` of the last message of a page gives the next page.")
    ] = UNSET
    limit: Annotated[int, Meta(ge=1, le=MAX_HELD, description="Maximum number of messages on one page.")] = 100


class ReleaseOrder(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of a release."""

    recipients: Annotated[
        Annotated[tuple[EnvelopeAddress, ...], Meta(min_length=1, max_length=1_000)] | UnsetType,
        Meta(description="Recipients of the release; absent means all held recipients."),
    ] = UNSET
    allow: Annotated[
        SenderPart | UnsetType,
        Meta(description="Adds the sender's address, or domain with subdomains, to `sender-allow` before the release."),
    ] = UNSET
    global_list: Annotated[
        bool, Meta(description="Adds it to the global list instead of the tenant's, if the token has that permission.")
    ] = False
    train: Annotated[
        bool, Meta(description="Trains the tenant's statistics that such messages are good; absent means no training.")
    ] = False


class DeleteQuery(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The query of a deletion."""

    recipient: Annotated[
        Words | UnsetType, Meta(description="Recipients of the deletion; absent means all held recipients.")
    ] = UNSET
    block: Annotated[
        SenderPart | UnsetType,
        Meta(
            description="Adds the sender's address, or domain with subdomains, to `sender-block` before the deletion."
        ),
    ] = UNSET


class HeldRecipient(Struct, frozen=True, rename="camel"):
    """The state of a held message for one recipient."""

    address: Annotated[str, Meta(description="The recipient.")]
    state: Annotated[
        str,
        Meta(
            description="`releasing` waits for a guard; `released` was accepted by the next hop.",
            extra_json_schema={"enum": _STATES},
        ),
    ]
    failure: Annotated[str, Meta(description="Why the last release failed; empty if none failed.")]
    changed_by: Annotated[str, Meta(description="User who released or deleted it; empty if none.")]
    changed_at: Annotated[
        Annotated[datetime, Meta(tz=True)] | None, Meta(description="Time of the last change of the state.")
    ]


class HeldMessage(Struct, frozen=True, rename="camel"):
    """One held message."""

    uid: Annotated[UUID, Meta(description="Id of the held message.")]
    tenant_uid: Annotated[UUID, Meta(description="The tenant of the recipients.")]
    ggrid: Annotated[UUID, Meta(description="The analysis of the message.")]
    verdict: Annotated[Verdict, Meta(description="The verdict: the classification of the message.")]
    reason: Annotated[str, Meta(description="The strongest reason for the verdict.")]
    sender: Annotated[str, Meta(description="The envelope's sender.")]
    from_address: Annotated[str, Meta(description="The address in From.")]
    from_name: Annotated[str, Meta(description="The name in From.")]
    subject: Annotated[str, Meta(description="Subject of the message.")]
    size: Annotated[int, Meta(description="Bytes of the message.")]
    received_at: Annotated[datetime, Meta(tz=True, description="Time of receipt.")]
    expires_at: Annotated[datetime, Meta(tz=True, description="Time of its deletion.")]
    stored: Annotated[bool, Meta(description="Whether the message is stored and can be released.")]
    recipients: Annotated[tuple[HeldRecipient, ...], Meta(description="Recipients with their states.")]


class HeldMessages(Struct, frozen=True, rename="camel"):
    """A page of held messages, the newest first."""

    messages: tuple[HeldMessage, ...]
