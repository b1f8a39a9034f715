"""What Stalwart sends to an MTA hook, and the message in it put together again.

Stalwart hands over the header fields as pairs, each value as it stood in the message with its blank and its line end,
and the body as one string. Bytes that are no UTF-8 were replaced before they came here (U+FFFD): no reader can bring
them back, so that a message of other 8-bit text is judged as Stalwart shows it.

Security: reads hostile bytes. The header fields and the recipients are bounded before they are made into objects, and
a field that would end the header block or begin another field is refused.
"""

import re
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, field

from mailwarden.errors import InvalidJson, PayloadTooLarge, SchemaViolation
from mailwarden.guard.sources.door import make_envelope
from mailwarden.model.envelope import Envelope

T = TypeVar("T")

MAX_FIELDS = 2_097_152  # bytes of JSON
MAX_RECIPIENTS = 1_048_576  # bytes of JSON
MAX_FORGED = 200
PROTOCOL = 1
OWN_PREFIX = "x-mailwarden-"
_BROKEN_LINE = re.compile(r"\n(?![ \t]|\Z)")


class Client(Struct, frozen=True):
    ip: str = ""
    helo: str | None = None
    ehlo: str | None = None  # so Stalwart's documentation calls it


class Protocol(Struct, frozen=True):
    version: int = PROTOCOL


class Context(Struct, frozen=True):
    stage: str
    client: Client = Client()
    protocol: Protocol = Protocol()


class Address(Struct, frozen=True):
    address: str


class HookEnvelope(Struct, frozen=True):
    sender: Address = field(name="from")
    to: Raw = Raw(b"[]")


class HookMessage(Struct, frozen=True):
    headers: Raw
    contents: str
    size: int = 0


class HookRequest(Struct, frozen=True):
    """One call of a hook; fields that are not needed here are passed over."""

    context: Context
    envelope: HookEnvelope | None = None
    message: HookMessage | None = None


class Rebuilt(Struct, frozen=True):
    """The message, and the names of fields in it that only we may write."""

    content: bytes
    forged: Sequence[str]


def read_request(raw: bytes) -> HookRequest:
    request = _decode(raw, HookRequest)
    if request.context.protocol.version != PROTOCOL:
        raise SchemaViolation(f"The protocol's version must be {PROTOCOL}.")
    return request


def envelope_of(request: HookRequest) -> Envelope:
    """Return the envelope; a call about a message must have one."""
    if request.envelope is None:
        raise SchemaViolation("The envelope is missing.")
    if len(request.envelope.to) > MAX_RECIPIENTS:
        raise PayloadTooLarge(f"The recipients are larger than {MAX_RECIPIENTS} bytes.")
    recipients = [each.address for each in _decode(request.envelope.to, tuple[Address, ...])]
    client = request.context.client
    return make_envelope(request.envelope.sender.address, recipients, client.ip, client.helo or client.ehlo)


def rebuild(message: HookMessage) -> Rebuilt:
    """Return the message as it came, as far as it can be told."""
    if len(message.headers) > MAX_FIELDS:
        raise PayloadTooLarge(f"The header fields are larger than {MAX_FIELDS} bytes.")
    fields = _decode(message.headers, tuple[tuple[str, str], ...])
    lines = [_line(name, value) for name, value in fields]
    forged = [name for name, _ in fields if name.lower().startswith(OWN_PREFIX)]
    if len(forged) > MAX_FORGED:
        raise SchemaViolation(f"The message has more than {MAX_FORGED} fields that only Mailwarden may write.")
    return Rebuilt("".join((*lines, "\r\n", message.contents)).encode("utf-8"), forged)


def _line(name: str, value: str) -> str:
    """Return one field; a line that is none comes as a name with its line end, and without a value."""
    if name.endswith("\n") and not value:
        line = name
    elif value.endswith("\n"):
        line = f"{name}:{value}"
    else:
        line = f"{name}: {value}\r\n"
    if not name.strip("\r\n") or ":" in name or _BROKEN_LINE.search(line):
        raise SchemaViolation("A header field cannot be read.")
    return line


def _decode(raw: bytes | Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise SchemaViolation(f"The hook's call cannot be read: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidJson("The body is not JSON.") from None
