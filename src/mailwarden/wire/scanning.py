"""The records of the Email Scanning API (specification, section 2), and the envelope that they describe."""

import ipaddress
import re
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from mailwarden.model.envelope import Envelope, is_one_address
from mailwarden.model.record import FinishedRequest
from mailwarden.wire.strict_json import convert, read_object, read_plain, violation_at

MAX_RECIPIENTS = 1_000
MAX_ENVELOPE_TEXT = 1_024
_encode = msgspec.json.Encoder().encode

# Envelope text has no control characters: in an engine's header they could start another header. The pattern ends in
# \Z: `$` would accept a line break at the end.
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_NO_CONTROL = rf"^[^{_CONTROL}]*\Z"
CONTROL = re.compile(f"[{_CONTROL}]")

# The addresses that `read_parameters` accepts, for the published schema: one mailbox, bare or in angle brackets.
_BLANK = rf"[^\S{_CONTROL}]*"
_MAILBOX = rf'(?:"(?:[^"\\{_CONTROL}]|\\[^{_CONTROL}])*"|[^\s"<>@{_CONTROL}]+)(?:@[^\s"<>@{_CONTROL}]+)?'
RECIPIENT = rf"^{_BLANK}(?:(?:[^{_CONTROL}]*<)?{_BLANK}{_MAILBOX}{_BLANK}>|{_MAILBOX}){_BLANK}$"
SENDER = rf"^{_BLANK}(?:(?:[^{_CONTROL}]*<)?{_BLANK}(?:{_MAILBOX})?{_BLANK}>|(?:{_MAILBOX})?){_BLANK}$"

_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"{_BYTE}(?:\.{_BYTE}){{3}}")  # all IPv4 addresses that `ipaddress` accepts, in a tenth of its time

EnvelopeText = Annotated[str, Meta(max_length=MAX_ENVELOPE_TEXT, pattern=_NO_CONTROL)]
EnvelopeAddress = Annotated[str, Meta(min_length=1, max_length=MAX_ENVELOPE_TEXT, pattern=_NO_CONTROL)]


class BorderMtaData(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Data retrieved at the border MTA that received the email."""

    envelope_from: Annotated[EnvelopeText, Meta(description='Envelope FROM address; "" or "<>" is the null sender.')]
    envelope_recipients: Annotated[
        tuple[EnvelopeAddress, ...],
        Meta(min_length=1, max_length=MAX_RECIPIENTS, description="Envelope TO addresses."),
    ]
    remote_address: Annotated[
        str | None, Meta(description="IPv4 or IPv6 address of the sending MTA, as seen at the border MTA.")
    ] = None
    sender_helo: Annotated[
        EnvelopeText | None,
        Meta(description="HELO or EHLO of the sending mail client, as seen at the border MTA."),
    ] = None


class MessageAnalysisRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The `parameters` part of the scan upload."""

    border_mta_data: BorderMtaData
    tenant_uid: Annotated[UUID | None, Meta(description="Tenant to which the resulting guard request is assigned.")] = (
        None
    )


class MessageAnalysisResult(Struct, frozen=True, rename="camel"):
    """The outcome of one analysis: exactly the six fields of the specification."""

    ggrid: Annotated[UUID, Meta(description="Unique ID of the message analysis.")]
    created: Annotated[datetime, Meta(tz=True, description="Time the analysis result was created.")]
    completed: Annotated[datetime, Meta(tz=True, description="Time the analysis concluded.")]
    decision: Annotated[str, Meta(description="The decision: the action for the message.")]
    verdict: Annotated[str, Meta(description="The verdict: the classification of the message.")]
    tags: Annotated[tuple[str, ...], Meta(description="All tags associated with the message, sorted.")]


class SystemStatus(Struct, frozen=True, rename="camel"):
    message_queue_status: Annotated[str, Meta(description="Status of the message queue: GREEN, YELLOW or RED.")]


class ErrorBody(Struct, frozen=True, omit_defaults=True):
    """The body of every error response."""

    error: Annotated[str, Meta(description="Machine-readable error code.")]
    message: Annotated[str, Meta(description="The error, its place, and the remedy.")] = ""
    details: Annotated[
        tuple[dict[str, object], ...], Meta(description="One object per error, if there are details.")
    ] = ()


class ScanParameters(Struct, frozen=True):
    """The parameters of an upload, checked: later code trusts every field."""

    envelope: Envelope
    tenant: UUID | None = None


def read_parameters(raw: bytes) -> ScanParameters:
    """Parse and validate the whole record."""
    plain = read_plain(raw, MessageAnalysisRequest)
    request = convert(read_object(raw), MessageAnalysisRequest) if plain is None else plain
    return ScanParameters(envelope_in(request.border_mta_data, "/borderMtaData"), request.tenant_uid)


def read_envelope(border: dict[str, object]) -> Envelope:
    """Validate the data of a border MTA."""
    return envelope_in(convert(border, BorderMtaData), "")


def envelope_in(border: BorderMtaData, place: str) -> Envelope:
    """Check the addresses of a record whose types are right; return the envelope with bare addresses."""
    recipients = tuple(map(bare_address, border.envelope_recipients))
    envelope = Envelope(
        bare_address(border.envelope_from), recipients, border.remote_address, border.sender_helo or None
    )
    if mistake := address_mistake(envelope):
        raise violation_at(f"{place}/{mistake[0]}", mistake[1])
    return envelope


def address_mistake(envelope: Envelope) -> tuple[str, str] | None:
    """Return the field that holds no address, and why, or None if every parser reads the envelope as we do."""
    address = envelope.remote_address
    if address is not None and not _IPV4.fullmatch(address):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return "remoteAddress", "Not an IPv4 or IPv6 address"
        if "%" in address:
            return "remoteAddress", "An address with a zone cannot be judged"
    for number, recipient in enumerate(envelope.recipients):
        if not is_one_address(recipient):
            return f"envelopeRecipients/{number}", "Not an address"
    if envelope.sender and not is_one_address(envelope.sender):
        return "envelopeFrom", 'Not an address, and neither "" nor "<>"'
    return None


def bare_address(address: str) -> str:
    """Return an address without the decoration of SMTP commands, logs and headers: `<...>`, a name, spaces.

    With it, `<bob@corp.example>` would have a domain that no tenant has and that no list entry matches.
    """
    address = address.strip()
    return address[:-1].rpartition("<")[2].strip() if address.endswith(">") else address


def encode_result(finished: FinishedRequest) -> bytes:
    """Return the public result of a finished request: the six fields, the ggrid first."""
    return _encode(
        MessageAnalysisResult(
            ggrid=finished.ggrid,
            created=finished.created,
            completed=finished.completed,
            decision=finished.ruling.decision,
            verdict=finished.judgement.verdict,
            tags=finished.tags,
        )
    )


def is_result_of(ggrid: UUID, body: bytes) -> bool:
    """Return whether a body looks like what `encode_result` made for this ggrid, without reading all of it."""
    return body.startswith(b'{"ggrid":"%b",' % str(ggrid).encode()) and body.endswith(b"}")
