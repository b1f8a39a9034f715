"""The scan source `stalwartHook`: answers Stalwart's MTA hooks at the stage `data`, and accepts every other stage.

Stalwart sends the header fields as pairs, each value as it stood in the message with its leading space and its line
end, and the body as one string. It has already replaced bytes that are not UTF-8 (U+FFFD), so guard judges a message in
another 8-bit charset as Stalwart shows it.

Security: reads hostile bytes. Header fields and recipients are bounded before they become objects; a field that would
end the header block or begin another field is rejected. guard trusts the envelope that Stalwart sends. The listener is
on a loopback or private address, or Stalwart needs the token. Overloaded, EngineUnavailable, ShuttingDown and any other
temporary error become the reply 451 with HTTP status 200: a hook that fails lets mail through if `tempFailOnError` is
off.
"""

import re
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import TypeVar

import msgspec
from aiohttp import web
from msgspec import Raw, Struct, field

from mailwarden.errors import InvalidJson, MailwardenError, PayloadTooLarge, SchemaViolation, plain_problem
from mailwarden.guard.config import StalwartHook as Settings
from mailwarden.guard.result_headers import result_fields
from mailwarden.guard.sources.http_source import (
    Answer,
    HttpSourceContext,
    ScanAnswer,
    check_body_head,
    check_secret,
    make_envelope,
    receive_body,
    sentence_of,
)
from mailwarden.model.envelope import Envelope
from mailwarden.serving.errors import answer_for
from mailwarden.serving.http_app import Call, Route
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.uploads import MAX_BODY

T = TypeVar("T")

MAX_FIELDS = 2_097_152  # bytes of JSON
MAX_RECIPIENTS = 1_048_576  # bytes of JSON
MAX_FORGED = 200
PROTOCOL = 1
OWN_PREFIX = "x-mailwarden-"
_BROKEN_LINE = re.compile(r"\n(?![ \t]|\Z)")


STAGES = ("connect", "ehlo", "auth", "mail", "rcpt", "data")
COPIES = 3  # the JSON, its strings and the message built from them are in memory together
LATER = "The message could not be scanned now; try again later"
ACTIONS = {
    Answer.PASS: "accept",
    Answer.MARK: "accept",
    Answer.HOLD: "quarantine",
    Answer.DISCARD: "discard",
    Answer.REJECT: "reject",
    Answer.RETRY: "reject",
}


class Client(Struct, frozen=True):
    ip: str = ""
    helo: str | None = None
    ehlo: str | None = None  # the name in Stalwart's documentation


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
    """One call of a hook; other fields are ignored."""

    context: Context
    envelope: HookEnvelope | None = None
    message: HookMessage | None = None


class Rebuilt(Struct, frozen=True):
    """The message, and the names of the forged Mailwarden fields in it."""

    content: bytes
    forged: Sequence[str]


def read_request(raw: bytes) -> HookRequest:
    request = _decode(raw, HookRequest)
    if request.context.protocol.version != PROTOCOL:
        raise SchemaViolation(f"The protocol's version must be {PROTOCOL}.")
    return request


def envelope_of(request: HookRequest) -> Envelope:
    """Return the envelope; a call with a message must have one."""
    if request.envelope is None:
        raise SchemaViolation("The envelope is missing.")
    if len(request.envelope.to) > MAX_RECIPIENTS:
        raise PayloadTooLarge(f"The recipients are larger than {MAX_RECIPIENTS} bytes.")
    recipients = [each.address for each in _decode(request.envelope.to, tuple[Address, ...])]
    client = request.context.client
    return make_envelope(request.envelope.sender.address, recipients, client.ip, client.helo or client.ehlo)


def rebuild(message: HookMessage) -> Rebuilt:
    """Return the message as received, as far as it can be restored."""
    if len(message.headers) > MAX_FIELDS:
        raise PayloadTooLarge(f"The header fields are larger than {MAX_FIELDS} bytes.")
    fields = _decode(message.headers, tuple[tuple[str, str], ...])
    lines = [_line(name, value) for name, value in fields]
    forged = [name for name, _ in fields if name.lower().startswith(OWN_PREFIX)]
    if len(forged) > MAX_FORGED:
        raise SchemaViolation(f"The message has more than {MAX_FORGED} fields that only Mailwarden may write.")
    return Rebuilt("".join((*lines, "\r\n", message.contents)).encode("utf-8"), forged)


def _line(name: str, value: str) -> str:
    """Return one field; a line without a colon arrives as a name with its line end and no value."""
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
        place = str(error).partition(" - at ")[2] or "`$`"
        raise SchemaViolation(f"The hook's call is invalid: {place} {plain_problem(str(error))}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidJson("The body is not JSON.") from None


class SmtpReply(Struct, frozen=True, omit_defaults=True):
    """Stalwart's documentation has `enhancedStatus`, its code reads `enhanced_status`: guard sends both."""

    status: int
    enhanced: str = field(name="enhanced_status")
    documented: str = field(name="enhancedStatus")
    message: str


class Modification(Struct, frozen=True, omit_defaults=True):
    type: str
    name: str
    value: str | None = None
    index: int | None = None


class HookAnswer(Struct, frozen=True, omit_defaults=True):
    action: str
    response: SmtpReply | None = None
    modifications: tuple[Modification, ...] = ()


PASSED = HookAnswer("accept")


class StalwartHook:
    name = "stalwartHook"

    def __init__(self, settings: Settings, context: HttpSourceContext) -> None:
        self._settings = settings
        self._context = context

    def routes(self) -> list[Route]:
        return [Route("POST", path, self.answer, quiet=True) for path in ("/", "/mta-hook")]

    async def answer(self, call: Call) -> web.StreamResponse:
        """Answer one call; admission happens before the body is read."""
        request = call.request
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        check_secret(self._settings.token, token.strip() if scheme.lower() == "bearer" else None, "Bearer")
        check_body_head(request)
        size = request.content_length or MAX_BODY
        async with self._context.admission.admitted(size * COPIES):
            body = await receive_body(request, self._context.spool, self._settings.body_timeout)
            try:
                hooked = read_request(body.data())
            finally:
                body.close()
            stage = hooked.context.stage.lower()
            if stage not in STAGES:
                raise SchemaViolation("The stage is not known.")
            return _respond(await self._scan(hooked) if stage == "data" else PASSED)

    async def _scan(self, hooked: HookRequest) -> HookAnswer:
        envelope = envelope_of(hooked)
        if hooked.message is None:
            raise SchemaViolation("The message is missing.")
        rebuilt = rebuild(hooked.message)
        raw = await self._spooled(rebuilt.content)
        try:
            answered = await self._context.scanner.scan(envelope, raw)
            fields = await result_fields(self._context.seal, answered.leading, raw)
        finally:
            raw.close()
        return make_answer(answered, fields, rebuilt.forged)

    async def _spooled(self, content: bytes) -> Spooled:
        writer = SpoolWriter(self._context.spool)
        try:
            await writer.write(content)
            return await writer.finish()
        finally:
            writer.discard()


def make_answer(answered: ScanAnswer, fields: Sequence[tuple[str, str]], forged: Sequence[str]) -> HookAnswer:
    """Return the answer for a judged message; `fields` are the result fields from top to bottom."""
    match answered.answer:
        case Answer.REJECT:
            return _refuse(550, "5.7.1", sentence_of(answered.leading))
        case Answer.RETRY:
            return _refuse(451, "4.7.1", sentence_of(answered.leading))
        case Answer.DISCARD:
            return HookAnswer(ACTIONS[answered.answer])
        case answer:
            return HookAnswer(ACTIONS[answer], modifications=tuple(_modifications(fields, forged)))


def answer_error(error: MailwardenError) -> web.Response:
    """Answer a temporary error with the reply 451; client errors keep their status."""
    plain = answer_for(error)
    if plain.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return plain
    return _respond(_refuse(451, "4.3.2", LATER))


def _modifications(fields: Sequence[tuple[str, str]], forged: Sequence[str]) -> Iterator[Modification]:
    """Yield the modifications: Stalwart adds fields in order, but on top of each other if it also deletes some."""
    for name in forged:
        yield Modification("deleteHeader", name, index=1)
    for name, value in reversed(fields) if forged else fields:
        yield Modification("addHeader", name, value)


def _refuse(status: int, enhanced: str, message: str) -> HookAnswer:
    return HookAnswer("reject", SmtpReply(status, enhanced, enhanced, message))


def _respond(answer: HookAnswer) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
