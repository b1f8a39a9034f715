"""The scan source `rspamdApi`: answers `/checkv2` as Rspamd does, so that its clients can ask here without a change.

Security: whoever reaches the port is believed about the envelope; it is loopback or private, or has a password. A
message is taken from the body alone: the headers by which Rspamd is pointed at files and shared memory are refused.
On Overloaded, EngineUnavailable, ShuttingDown and whatever else may pass the client is told `soft reject`, with status
200: some clients look at nothing but the answer's fields, and take one without an action for a good message.
"""

import re
from collections.abc import Iterator
from http import HTTPStatus

import msgspec
from aiohttp import web

from mailwarden.errors import BadRequest, MailwardenError
from mailwarden.guard.doors_config import RspamdApi as Settings
from mailwarden.guard.sources.door import Interior, check_body_head, check_secret, make_envelope, receive_body
from mailwarden.guard.sources.milter_folds import mend_folds
from mailwarden.guard.sources.result_fields import result_fields
from mailwarden.guard.sources.rspamd_answer import CheckAnswer, make_answer, make_later
from mailwarden.model.envelope import Envelope
from mailwarden.serving.errors import answer_for
from mailwarden.serving.front_door import Call, Route
from mailwarden.serving.uploads import MAX_BODY

ELSEWHERE = ("File", "Path", "Shm", "Key")
_WITH_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}))(?::[0-9]{1,5})?")
LATER = "The message could not be looked at now; try again later"


class RspamdApi:
    name = "rspamdApi"

    def __init__(self, settings: Settings, inside: Interior) -> None:
        self._settings = settings
        self._inside = inside

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/checkv2", self.check, quiet=True),
            # A proxy that points at shared memory asks so; it is told why it gets no answer.
            Route("GET", "/checkv2", self.check, quiet=True),
            Route("GET", "/ping", answer_ping, quiet=True),
        ]

    async def check(self, call: Call) -> web.StreamResponse:
        """Answer one message: admitted or refused before its body is read."""
        request = call.request
        check_secret(self._settings.password, request.headers.get("Password"), "Password")
        check_body_head(request)
        envelope = read_envelope(request)
        async with self._inside.admission.admitted(request.content_length or MAX_BODY):
            raw = await receive_body(request, self._inside.spool, self._settings.body_timeout)
            if "milter" in request.headers.get("Flags", "").split(","):
                raw = await mend_folds(raw, self._inside.spool)
            try:
                appraisal = await self._inside.appraiser.appraise(envelope, raw)
                fields = await result_fields(self._inside.seal, appraisal.leading, raw)
            finally:
                raw.close()
        return _respond(make_answer(appraisal, fields))


async def answer_ping(_: Call) -> web.StreamResponse:
    return web.Response(text="pong\r\n")


def answer_error(error: MailwardenError) -> web.Response:
    """Answer in Rspamd's words; what the caller did wrong keeps its status, and never reads as a good message."""
    plain = answer_for(error)
    if plain.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _respond(make_later(LATER))
    body = {"error": error.message, "action": "soft reject"}
    headers = {name: plain.headers[name] for name in ("Allow", "WWW-Authenticate") if name in plain.headers}
    return web.Response(
        status=plain.status, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )


def read_envelope(request: web.BaseRequest) -> Envelope:
    """Return the envelope that the headers tell of."""
    headers = request.headers
    if pointing := [name for name in ELSEWHERE if name in headers]:
        raise BadRequest(f"The message must be in the body, in the open: {pointing[0]} is not read here.")
    for name in ("From", "IP", "Helo"):
        if len(headers.getall(name, ())) > 1:
            raise BadRequest(f"The header {name} stands there twice.")
    recipients = [address for value in headers.getall("Rcpt", ()) for address in _addresses(value)]
    sender = next(_addresses(headers.get("From", "")), "")
    return make_envelope(sender, recipients, _without_port(headers.get("IP", "").strip()), headers.get("Helo"))


def _without_port(address: str) -> str:
    """Return an address alone: Rspamd's milter writes 192.0.2.1:25 and [2001:db8::1]:25, others no port."""
    if found := _WITH_PORT.fullmatch(address):
        return found[1] or found[2]
    return address


def _addresses(text: str) -> Iterator[str]:
    """Yield the addresses of a header: one or several with commas between them, each in angle brackets or not."""
    word, quoted, escaped = "", False, False
    for character in f"{text},":
        if character == "," and not quoted:
            if address := word.strip().removeprefix("<").removesuffix(">"):
                yield address
            word = ""
            continue
        if character == '"' and not escaped:
            quoted = not quoted
        escaped = character == "\\" and not escaped
        word += character
    if word:
        raise BadRequest("An address has a quote that does not end.")


def _respond(answer: CheckAnswer) -> web.Response:
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
