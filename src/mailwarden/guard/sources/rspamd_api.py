"""The scan source `rspamdApi`: answers the clients of Rspamd at `/checkv2`.

Security: guard trusts the envelope that a client sends. The listener is on a loopback or private address, or the client
needs the password. Overloaded, EngineUnavailable, ShuttingDown and any other temporary error become `soft reject` with
status 200: clients that see another status deliver the message.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import msgspec
from aiohttp import web
from msgspec import Struct, field

from mailwarden.errors import BadRequest, MailwardenError
from mailwarden.guard.config import RspamdApi as Settings
from mailwarden.guard.sources.http_source import (
    Answer,
    HttpSourceContext,
    ScanAnswer,
    ZstdBody,
    check_body_head,
    check_secret,
    make_envelope,
    receive_body,
    sentence_of,
)
from mailwarden.model.envelope import Envelope
from mailwarden.model.outcome import Reason
from mailwarden.model.place import shown_place
from mailwarden.model.record import FinishedRequest
from mailwarden.quarantine.result_headers import OWN, result_fields
from mailwarden.serving.errors import answer_for
from mailwarden.serving.http_app import Call, Route
from mailwarden.serving.spool import CHUNK, Spooled, SpoolWriter
from mailwarden.serving.uploads import MAX_BODY

_BARE_FOLD = re.compile(rb"(?<!\r)\n(?=[ \t])")


REQUIRED_SCORE = 15.0  # Rspamd's default score for reject: 100 points, which convict
MARK_SCORE = 7.5  # 50 points, which make a message suspicious
STEP = 0.01
MAX_OPTIONS = 5
POINTS = 100
_NOT_IN_NAMES = re.compile(r"[^A-Z0-9]+")
ACTIONS: Mapping[Answer, str] = {
    Answer.PASS: "no action",
    Answer.MARK: "add header",
    Answer.DISCARD: "discard",
    Answer.REJECT: "reject",
    Answer.RETRY: "soft reject",
}
COMPRESSIONS = frozenset({"zstd"})  # rspamc 4 compresses every message
ELSEWHERE = ("File", "Path", "Shm", "Key")
_WITH_PORT = re.compile(r"(?:\[([0-9A-Fa-f:.]{2,45})\]|([0-9.]{7,15}))(?::[0-9]{1,5})?")
LATER = "The message could not be scanned now; try again later"


async def repair_folds(raw: Spooled, spool: Path) -> Spooled:
    """Return the message with CR LF restored in folded header fields; it replaces the given one.

    The milter protocol passes folded fields with bare line feeds, and Rspamd's proxy forwards them so. The MTA has
    CR LF, and guard judges and signs the message that the MTA has. Only a line feed before a space or tab is changed.
    """
    head = next(raw.chunks(CHUNK), b"")
    end = head.find(b"\r\n\r\n")
    block = head[: max(end, 0)]
    repaired = _BARE_FOLD.sub(b"\r\n", block)
    if repaired == block:
        return raw
    writer = SpoolWriter(spool)
    try:
        await writer.write(repaired)
        async for chunk in raw.window(end, raw.size - end).stream():
            await writer.write(chunk)
        return await writer.finish()
    finally:
        writer.discard()
        raw.close()


class Symbol(Struct, frozen=True):
    name: str
    score: float
    metric_score: float
    description: str
    options: tuple[str, ...] = ()


class AddedHeader(Struct, frozen=True):
    value: str
    order: int = 1  # below the Received field that Postfix writes, above all received fields


class Milter(Struct, frozen=True):
    add_headers: dict[str, AddedHeader] = {}
    remove_headers: dict[str, int] = {}


class CheckAnswer(Struct, frozen=True):
    action: str
    score: float = 0.0
    required_score: float = REQUIRED_SCORE
    is_skipped: bool = False
    is_spam: bool = False  # Rspamd's proxy reads it when it translates for clients of the older protocol
    thresholds: dict[str, float] = field(default_factory=lambda: {"reject": REQUIRED_SCORE, "add header": MARK_SCORE})
    symbols: dict[str, Symbol] = {}
    messages: dict[str, str] = {}
    urls: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    message_id: str = field(default="undef", name="message-id")
    time_real: float = 0.0
    milter: Milter = Milter()


def make_answer(answered: ScanAnswer, fields: Sequence[tuple[str, str]]) -> CheckAnswer:
    """Return the answer for a judged message; `fields` are the result fields from top to bottom.

    Each symbol is a matched rule of Mailwarden. Rspamd's own symbols are evidence and are not repeated. One more symbol
    makes the sum agree with the action, for clients that read only the score.
    """
    finished, answer = answered.leading, answered.answer
    symbols = {symbol.name: symbol for symbol in _symbols(finished.judgement.reasons)}
    found = sum(symbol.score for symbol in symbols.values())
    score = round(_fit(found, answer), 2)
    verdict = f"MW_VERDICT_{finished.judgement.verdict.upper()}"
    rest = round(score - found, 2)
    symbols[verdict] = Symbol(verdict, rest, rest, finished.judgement.summary, finished.tags)
    has_text = answer in (Answer.REJECT, Answer.RETRY)
    return CheckAnswer(
        action=ACTIONS[answer],
        score=score,
        is_spam=score >= REQUIRED_SCORE,
        symbols=symbols,
        messages={"smtp_message": sentence_of(finished)} if has_text else {},
        message_id=finished.summary.message_id.strip("<>") or "undef",
        time_real=_seconds(finished),
        # A client inserts each field above the previous one: the last field comes first.
        milter=Milter(
            add_headers={name: AddedHeader(value) for name, value in reversed(fields)},
            remove_headers=dict.fromkeys(OWN, 0),
        ),
    )


def make_later(sentence: str) -> CheckAnswer:
    """Return the answer for a message that cannot be accepted now: its sender retries."""
    return CheckAnswer(action=ACTIONS[Answer.RETRY], messages={"smtp_message": sentence})


def _symbols(reasons: Iterable[Reason]) -> Iterable[Symbol]:
    by_rule: dict[str, list[Reason]] = {}
    for reason in reasons:
        by_rule.setdefault(reason.rule, []).append(reason)
    for rule, spoken in by_rule.items():
        score = round(sum(reason.weight for reason in spoken) * REQUIRED_SCORE / POINTS, 2)
        places = tuple(text for text in dict.fromkeys(shown_place(each.place) for each in spoken) if text)[:MAX_OPTIONS]
        name = f"MW_{_NOT_IN_NAMES.sub('_', rule.upper())}"
        yield Symbol(name, score, score, spoken[0].summary, places)


def _fit(score: float, answer: Answer) -> float:
    """Return the score within the range of the action; lists change the action and have no points."""
    if answer in (Answer.REJECT, Answer.DISCARD):
        return max(score, REQUIRED_SCORE)
    if answer is Answer.MARK:
        return min(max(score, MARK_SCORE), REQUIRED_SCORE - STEP)
    return min(score, MARK_SCORE - STEP)


def _seconds(finished: FinishedRequest) -> float:
    return round((finished.completed - finished.created).total_seconds(), 3)


class RspamdApi:
    name = "rspamdApi"

    def __init__(self, settings: Settings, context: HttpSourceContext) -> None:
        self._settings = settings
        self._context = context

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/checkv2", self.check, quiet=True),
            # A proxy that refers to shared memory uses GET; the error explains why that is not supported.
            Route("GET", "/checkv2", self.check, quiet=True),
            Route("GET", "/ping", answer_ping, quiet=True),
        ]

    async def check(self, call: Call) -> web.StreamResponse:
        """Answer one message; admission happens before the body is read."""
        request = call.request
        check_secret(self._settings.password, request.headers.get("Password"), "Password")
        compressed = check_body_head(request, COMPRESSIONS)
        envelope = read_envelope(request)
        async with self._context.admission.admitted(request.content_length or MAX_BODY) as reservation:
            zstd = ZstdBody(reservation) if compressed else None
            raw = await receive_body(request, self._context.spool, self._settings.body_timeout, zstd)
            if "milter" in request.headers.get("Flags", "").split(","):
                raw = await repair_folds(raw, self._context.spool)
            try:
                answered = await self._context.scanner.scan(envelope, raw)
                fields = await result_fields(self._context.seal, answered.leading, raw)
            finally:
                raw.close()
        return _respond(make_answer(answered, fields))


async def answer_ping(_: Call) -> web.StreamResponse:
    return web.Response(text="pong\r\n")


def answer_error(error: MailwardenError) -> web.Response:
    """Answer in Rspamd's format; client errors keep their status, and no error reads as a clean message."""
    plain = answer_for(error)
    if plain.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _respond(make_later(LATER))
    body = {"error": error.message, "action": "soft reject"}
    headers = {name: plain.headers[name] for name in ("Allow", "WWW-Authenticate") if name in plain.headers}
    return web.Response(
        status=plain.status, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )


def read_envelope(request: web.BaseRequest) -> Envelope:
    """Return the envelope from the headers."""
    headers = request.headers
    if pointing := [name for name in ELSEWHERE if name in headers]:
        raise BadRequest(f"The message must be in the body, unencrypted: {pointing[0]} is not supported.")
    for name in ("From", "IP", "Helo"):
        if len(headers.getall(name, ())) > 1:
            raise BadRequest(f"The header {name} occurs twice.")
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
