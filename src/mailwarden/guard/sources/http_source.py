"""The part of the scan source `rspamdApi` that its protocol does not shape: secret, body, envelope, and one answer.

These clients carry out decisions themselves. Each tenant's recipients have their own judgement and decision; the answer
is the strictest of them. If one part must be retried, all are: the other parts would otherwise be delivered.

Security: reads hostile bytes. Size and duration of a body are limited, and envelopes pass the checks of the scanning
API.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import structlog
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

from mailwarden.access.tenants import TenantDirectory
from mailwarden.crypto.mac import equal
from mailwarden.errors import BadRequest, EmptyEmail, InvalidCredentials, Unauthenticated, UnsupportedMediaType
from mailwarden.model.envelope import Envelope
from mailwarden.model.ggrid import new_ggrid
from mailwarden.model.outcome import Decision, Verdict
from mailwarden.model.record import FinishedRequest
from mailwarden.policy.decide import WARN_TAG
from mailwarden.quarantine.result_headers import ResultSeal
from mailwarden.scan.admission import Admission, Reservation
from mailwarden.scan.scan import GuardRequest, Processing, settle_together
from mailwarden.scan.shared_answer import public_answer_of
from mailwarden.serving.spool import Spooled, SpoolWriter
from mailwarden.serving.uploads import MAX_BODY, BodyClock, send_continue, too_large
from mailwarden.wire.scanning import envelope_of, read_record

MAX_HEAD = 262_144  # 1,000 recipients have a header each
MAX_HEADERS = 1_100
WINDOW_LOG_MAX = 23  # 8 MiB, which every decoder supports (RFC 8878); a larger window is memory for an attacker
PIECE = 262_144
NO_RECIPIENT = "nobody"  # satisfies the checks, and is removed again


class Answer(IntEnum):
    """The action for the client; a larger value is stricter."""

    PASS = 0
    MARK = 1  # deliver with a mark
    DISCARD = 2
    REJECT = 3
    RETRY = 4


QUARANTINE_AS: Mapping[str, Answer] = {
    "add header": Answer.MARK,
    "discard": Answer.DISCARD,
    "reject": Answer.REJECT,
}


class ScanAnswer(Struct, frozen=True):
    """The one answer, and the result that recipients of every tenant may read."""

    answer: Answer
    leading: FinishedRequest


class PerTenantScan:
    def __init__(
        self, source: str, *, processing: Processing, tenants: TenantDirectory, timeout: float, quarantine_as: str
    ) -> None:
        self._source = source
        self._processing = processing
        self._tenants = tenants
        self._timeout = timeout
        self._quarantine_as = QUARANTINE_AS[quarantine_as]

    async def scan(self, envelope: Envelope, raw: Spooled) -> ScanAnswer:
        """Judge the message for each tenant, and return the one answer."""
        ggrid = new_ggrid()
        structlog.contextvars.bind_contextvars(ggrid=str(ggrid))
        envelope = replace(envelope, recipients=tuple(dict.fromkeys(envelope.recipients)))
        request = GuardRequest(
            ggrid=ggrid,
            source=self._source,
            envelope=envelope,
            groups=self._tenants.group(None, envelope.recipients),
            raw=raw,
            deadline=self._timeout,
            session_open=True,
        )
        examined = settle_together(await self._processing.examine(request))
        answered = join([each.finished for each in examined], self._quarantine_as)
        if answered.answer is Answer.RETRY:
            # Of a message that is retried, history stores only the undecided parts: the others are not carried out.
            examined = [each for each in examined if each.finished.ruling.decision is Decision.UNDECIDED]
        await self._processing.keep(examined)
        return answered


def join(parts: Sequence[FinishedRequest], quarantine_as: Answer) -> ScanAnswer:
    """Return the strictest answer; a discard for only some recipients becomes a rejection for all."""
    answers = [answer_to(part, quarantine_as) for part in parts]
    strictest = max(answers)
    leading = answers.index(strictest)
    if strictest is Answer.DISCARD and set(answers) != {Answer.DISCARD}:
        strictest = Answer.REJECT
    ordered = [parts[leading], *parts[:leading], *parts[leading + 1 :]]
    return ScanAnswer(strictest, public_answer_of(ordered))


def answer_to(finished: FinishedRequest, quarantine_as: Answer) -> Answer:
    match finished.ruling.decision:
        case Decision.UNDECIDED:
            return Answer.RETRY
        case Decision.BOUNCE:
            return Answer.REJECT
        case Decision.DROP:
            return Answer.DISCARD
        case Decision.QUARANTINE:
            # A mark would deliver the message, and malware is never delivered.
            malware = finished.judgement.verdict is Verdict.MALWARE
            return Answer.REJECT if malware and quarantine_as is Answer.MARK else quarantine_as
        case Decision.DELIVER:
            return Answer.MARK if WARN_TAG in finished.tags else Answer.PASS


def sentence_of(finished: FinishedRequest) -> str:
    """Return the text for the sender as one line of ASCII: the verdict and the ggrid.

    The summary of the judgement may name a tenant's list entries, so it is left out.
    """
    if finished.ruling.decision is Decision.UNDECIDED:
        return f"The message could not be judged; try again later ({finished.ggrid})"
    return f"Refused: {finished.judgement.verdict} ({finished.ggrid})"


@dataclass(frozen=True, slots=True)
class HttpSourceContext:
    """The parts of guard that such a source uses."""

    admission: Admission
    scanner: PerTenantScan
    seal: ResultSeal
    spool: Path


def check_secret(wanted: str, given: str | None, scheme: str) -> None:
    """Compare in constant time; raise if the secret is missing or wrong."""
    if not wanted:
        return
    if not given:
        raise Unauthenticated("The secret is missing.", scheme=scheme)
    if not equal(wanted.encode("utf-8"), given.encode("utf-8", "surrogateescape")):
        raise InvalidCredentials("The secret is wrong.", scheme=scheme)


def check_body_head(request: web.BaseRequest, compressions: Set[str] = frozenset()) -> str:
    """Check size and encoding of the body before any byte of it is read; return its compression, or an empty string.

    Clients of Rspamd name the compression twice.
    """
    if (request.content_length or 0) > MAX_BODY:
        raise too_large(MAX_BODY)
    named = (request.headers.get(name, "").strip().lower() for name in ("Content-Encoding", "Compression"))
    found = {name for name in named if name not in ("identity", "")}
    if not found:
        return ""
    if len(found) > 1 or not found <= compressions:
        raise UnsupportedMediaType(f"The body must not be compressed by {', '.join(sorted(found))}.")
    return found.pop()


class ZstdBody:
    """Decompresses one zstd frame piece by piece, within the limit of a body and the capacity of guard.

    A damaged or incomplete frame is a bad request.
    """

    def __init__(self, reservation: Reservation) -> None:
        self._reservation = reservation
        self._size = 0
        self._frame = ZstdDecompressor(options={DecompressionParameter.window_log_max: WINDOW_LOG_MAX})

    def pieces(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the content of a chunk, at most PIECE bytes at once: a small chunk can have much content."""
        try:
            while chunk or not (self._frame.needs_input or self._frame.eof):
                if self._frame.eof:
                    raise BadRequest("Bytes follow the compressed body.")
                piece = self._frame.decompress(chunk, PIECE)
                self._size += len(piece)
                if self._size > MAX_BODY:
                    raise too_large(MAX_BODY)
                self._reservation.extend(self._size)
                yield piece
                chunk = self._frame.unused_data
        except ZstdError as error:
            raise BadRequest("The body is not a zstd frame, or needs a dictionary or a large window.") from error

    def check_complete(self) -> None:
        if not self._frame.eof:
            raise BadRequest("The compressed body is incomplete.")


async def receive_body(
    request: web.BaseRequest, spool: Path, body_timeout_ms: int, zstd: ZstdBody | None = None
) -> Spooled:
    """Return the whole body, decompressed if it is compressed; the caller closes it."""
    await send_continue(request)
    writer = SpoolWriter(spool)
    try:
        async with BodyClock(body_timeout_ms) as clock:
            while chunk := await clock.next_chunk(request):
                for piece in (chunk,) if zstd is None else zstd.pieces(chunk):
                    await writer.write(piece)
        if zstd is not None:
            zstd.check_complete()
        received = await writer.finish()
    finally:
        writer.discard()
    if not received.size:
        raise EmptyEmail("The message is missing: the body is empty.")
    return received


def make_envelope(sender: str, recipients: list[str], address: str | None, helo: str | None) -> Envelope:
    """Return the envelope, checked by the rules of the scanning API; clients may send no recipient."""
    fields: dict[str, object] = {"envelopeFrom": sender, "envelopeRecipients": recipients or [NO_RECIPIENT]}
    if address:
        fields["remoteAddress"] = address
    if helo:
        fields["senderHelo"] = helo
    for text in (sender, *recipients, address or "", helo or ""):
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise BadRequest("The envelope is not UTF-8.")
    envelope = envelope_of(read_record({"borderMtaData": fields}))
    return envelope if recipients else Envelope(envelope.sender, (), envelope.remote_address, envelope.helo)
