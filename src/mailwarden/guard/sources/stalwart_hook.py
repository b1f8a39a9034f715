"""The scan source `stalwartHook`: answers Stalwart's MTA hooks at the stage `data`, and lets every other stage pass.

Security: whoever reaches the port is believed about the envelope; it is loopback or private, or has a token. On
Overloaded, EngineUnavailable, ShuttingDown and whatever else may pass Stalwart is told to answer 451, in an answer
with status 200: a hook that only fails lets mail through where `tempFailOnError` is off.
"""

from collections.abc import Iterator, Sequence
from http import HTTPStatus

import msgspec
from aiohttp import web
from msgspec import Struct, field

from mailwarden.errors import MailwardenError, SchemaViolation
from mailwarden.guard.doors_config import StalwartHook as Settings
from mailwarden.guard.sources.appraisal import Answer, Appraisal, sentence_of
from mailwarden.guard.sources.door import Interior, check_body_head, check_secret, receive_body
from mailwarden.guard.sources.result_fields import result_fields
from mailwarden.guard.sources.stalwart_message import HookRequest, envelope_of, read_request, rebuild
from mailwarden.serving.errors import answer_for
from mailwarden.serving.front_door import Call, Route
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.uploads import MAX_BODY

STAGES = ("connect", "ehlo", "auth", "mail", "rcpt", "data")
COPIES = 3  # the JSON, its strings, and the message made of them are in memory together
LATER = "The message could not be looked at now; try again later"


class SmtpReply(Struct, frozen=True, omit_defaults=True):
    """Stalwart's documentation writes `enhancedStatus`, its code reads `enhanced_status`: both are said."""

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
ACTIONS = {
    Answer.PASS: "accept",
    Answer.MARK: "accept",
    Answer.HOLD: "quarantine",
    Answer.DISCARD: "discard",
    Answer.REFUSE: "reject",
    Answer.LATER: "reject",
}


class StalwartHook:
    name = "stalwartHook"

    def __init__(self, settings: Settings, inside: Interior) -> None:
        self._settings = settings
        self._inside = inside

    def routes(self) -> list[Route]:
        return [Route("POST", path, self.answer, quiet=True) for path in ("/", "/mta-hook")]

    async def answer(self, call: Call) -> web.StreamResponse:
        """Answer one call: admitted or refused before its body is read."""
        request = call.request
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        check_secret(self._settings.token, token.strip() if scheme.lower() == "bearer" else None, "Bearer")
        check_body_head(request)
        size = request.content_length or MAX_BODY
        async with self._inside.admission.admitted(size * COPIES):
            body = await receive_body(request, self._inside.spool, self._settings.body_timeout)
            try:
                hooked = read_request(body.data())
            finally:
                body.close()
            stage = hooked.context.stage.lower()
            if stage not in STAGES:
                raise SchemaViolation("The stage is not known.")
            return _respond(await self._look(hooked) if stage == "data" else PASSED)

    async def _look(self, hooked: HookRequest) -> HookAnswer:
        envelope = envelope_of(hooked)
        if hooked.message is None:
            raise SchemaViolation("The message is missing.")
        rebuilt = rebuild(hooked.message)
        raw = await self._spooled(rebuilt.content)
        try:
            appraisal = await self._inside.appraiser.appraise(envelope, raw)
            fields = await result_fields(self._inside.seal, appraisal.leading, raw)
        finally:
            raw.close()
        return make_answer(appraisal, fields, rebuilt.forged)

    async def _spooled(self, content: bytes) -> Spooled:
        writer = SpoolWriter(self._inside.spool)
        try:
            await writer.write(content)
            return await writer.finish()
        finally:
            writer.discard()


def make_answer(appraisal: Appraisal, fields: Sequence[tuple[str, str]], forged: Sequence[str]) -> HookAnswer:
    """Return the answer for a message that was judged; `fields` are the result fields from top to bottom."""
    match appraisal.answer:
        case Answer.REFUSE:
            return _refuse(550, "5.7.1", sentence_of(appraisal.leading))
        case Answer.LATER:
            return _refuse(451, "4.7.1", sentence_of(appraisal.leading))
        case Answer.DISCARD:
            return HookAnswer(ACTIONS[appraisal.answer])
        case answer:
            return HookAnswer(ACTIONS[answer], modifications=tuple(_modifications(fields, forged)))


def answer_error(error: MailwardenError) -> web.Response:
    """Answer what may pass with a reply that says so; what the caller did wrong keeps its status."""
    plain = answer_for(error)
    if plain.status < HTTPStatus.INTERNAL_SERVER_ERROR:
        return plain
    return _respond(_refuse(451, "4.3.2", LATER))


def _modifications(fields: Sequence[tuple[str, str]], forged: Sequence[str]) -> Iterator[Modification]:
    """Yield what Stalwart is to change: it adds in the order given, but each on top of the other once it takes out."""
    for name in forged:
        yield Modification("deleteHeader", name, index=1)
    for name, value in reversed(fields) if forged else fields:
        yield Modification("addHeader", name, value)


def _refuse(status: int, enhanced: str, message: str) -> HookAnswer:
    return HookAnswer("reject", SmtpReply(status, enhanced, enhanced, message))


def _respond(answer: HookAnswer) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
