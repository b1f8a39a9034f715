"""Turns the `parameters` part of an upload into the envelope, or raises an error with the invalid field."""

import ipaddress

from msgspec.structs import replace

from mailwarden.model.envelope import Envelope, is_one_address
from mailwarden.wire.scanning import MessageAnalysisRequest
from mailwarden.wire.strict_json import convert, read_object, violation_at


def read_parameters(raw: bytes) -> MessageAnalysisRequest:
    """Parse and validate the whole record."""
    return read_record(read_object(raw))


def read_record(value: dict[str, object]) -> MessageAnalysisRequest:
    """Validate the whole record; later code trusts every field."""
    request = convert(value, MessageAnalysisRequest)
    border = request.border_mta_data
    if border.remote_address is not None:
        try:
            ipaddress.ip_address(border.remote_address)
        except ValueError:
            raise violation_at("/borderMtaData/remoteAddress", "Not an IPv4 or IPv6 address") from None
        if "%" in border.remote_address:
            raise violation_at("/borderMtaData/remoteAddress", "An address with a zone cannot be judged")
    recipients = tuple(map(bare_address, border.envelope_recipients))
    for number, recipient in enumerate(recipients):
        if not is_one_address(recipient):
            raise violation_at(f"/borderMtaData/envelopeRecipients/{number}", "Not an address")
    sender = bare_address(border.envelope_from)
    if sender and not is_one_address(sender):
        raise violation_at("/borderMtaData/envelopeFrom", 'Not an address, and neither "" nor "<>"')
    told = replace(border, envelope_from=sender, envelope_recipients=recipients)
    return request if told == border else replace(request, border_mta_data=told)


def bare_address(address: str) -> str:
    """Return an address without the decoration of SMTP commands, logs and headers: `<...>`, a name, spaces.

    With it, `<bob@corp.example>` would have a domain that no tenant has and that no list entry matches.
    """
    address = address.strip()
    return address[:-1].rpartition("<")[2].strip() if address.endswith(">") else address


def envelope_of(request: MessageAnalysisRequest) -> Envelope:
    border = request.border_mta_data
    return Envelope(
        sender=border.envelope_from,
        recipients=border.envelope_recipients,
        remote_address=border.remote_address,
        helo=border.sender_helo or None,
    )
