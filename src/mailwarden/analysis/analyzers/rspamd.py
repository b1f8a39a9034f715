"""Asks Rspamd about the raw message, and checks that its answer is whole before trusting it.

Security: envelope text goes into HTTP headers here; it must never hold a control character (checked again below).
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from ipaddress import ip_address, ip_network
from itertools import chain
from typing import ClassVar

import msgspec
from ruamel.yaml import YAML

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed, RawMessage
from mailwarden.analysis.engine import EngineDoor
from mailwarden.analysis.teacher import LEARNER_HEADER
from mailwarden.message.limits import SHOWN
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import FailureKind, Finding

MAX_ANSWER = 16 * 1024 * 1024  # not inspection: an engine's own answer
# From which score on which finding tells it; only the highest band that is reached speaks.
BANDS = (
    (8.0, "rspamd.strong-spam"),
    (6.0, "rspamd.probable-spam"),
    (5.0, "rspamd.likely-spam"),
    (4.0, "rspamd.suspected-spam"),
    (3.0, "rspamd.raised-score"),
)

# The API hands over no host name of the client, so what judges its absence judges nothing about the message.
_ALWAYS_OFF = ("HFILTER_HOSTNAME_UNKNOWN", "RDNS_NONE")
# Without the client's address SPF cannot be told, and DMARC would fail for want of it.
_OFF_WITHOUT_ADDRESS = ("DMARC_CHECK", "DMARC_CALLBACK", "AUTH_NA", "AUTH_NA_OR_FAIL")
_OFF_WITHOUT_HELO = ("HFILTER_HELO_UNKNOWN", "HFILTER_HELO_NORESOLVE_MX", "HFILTER_HELO_NORES_A_OR_MX")


# What Rspamd takes for its own network, by its own defaults.
_PRIVATE = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fd00::/8", "fe80::/10"))
)
_SIGNED = re.compile(rb"^dkim-signature[ \t]*:", re.IGNORECASE | re.MULTILINE)
_BEHIND_DKIM = ("ARC_", "DMARC_")
LEARNED = ("BAYES_SPAM", "BAYES_HAM")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Symbol(msgspec.Struct, frozen=True):
    score: float = 0.0
    options: tuple[str, ...] = ()


class CheckAnswer(msgspec.Struct, frozen=True):
    """The part of Rspamd's answer that we read."""

    action: str
    score: float
    required_score: float
    is_skipped: bool = False
    symbols: dict[str, Symbol] = {}
    messages: dict[str, object] = {}


class RspamdAnalyzer:
    name: ClassVar[str] = "rspamd"
    bears_any_structure: ClassVar[bool] = False
    learns: ClassVar[bool] = True
    reads_contents: ClassVar[bool] = False
    unpacks: ClassVar[bool] = False

    def __init__(self, address: str, timeout: float, max_concurrency: int) -> None:
        self.timeout = timeout
        self._door = EngineDoor("Rspamd", address, max_concurrency)
        self._finding_of = load_symbols()

    async def examine(self, raw: RawMessage, envelope: Envelope, learner: str = "") -> EngineAnswer:
        question = chain((request_head(envelope, raw.size, learner),), raw.chunks())
        head, body = split_answer(await self._door.ask(question, MAX_ANSWER))
        answer = read_answer(body)
        require_whole(answer, envelope, signed=is_signed(raw))
        return EngineAnswer(
            findings=tuple(findings_of(answer, self._finding_of)),
            engine=server_of(head),
            # What was learned for nobody in particular is nobody's word.
            symbols={name: symbol.options for name, symbol in answer.symbols.items() if learner or name not in LEARNED},
        )

    async def check(self) -> str:
        question = b"GET /ping HTTP/1.1\r\nHost: rspamd\r\nConnection: close\r\n\r\n"
        head, body = split_answer(await self._door.probe(question))
        if body.strip() != b"pong":
            raise EngineFailed(FailureKind.UNFINISHED, "Rspamd did not answer its ping with pong.")
        return server_of(head)


def load_symbols() -> dict[str, str]:
    """Return which of Rspamd's symbols become which finding of ours."""
    text = files("mailwarden.analysis.analyzers").joinpath("rspamd_symbols.yml").read_text()
    return msgspec.convert(YAML(typ="safe").load(text), dict[str, str])


def request_head(envelope: Envelope, size: int, learner: str = "") -> bytes:
    """Return the head of the question; the message follows it as it is."""
    text = "".join((envelope.sender, *envelope.recipients, envelope.remote_address or "", envelope.helo or ""))
    if _CONTROL.search(text):
        raise EngineFailed(FailureKind.UNFINISHED, "The envelope holds a control character; Rspamd was not asked.")
    recipients = "".join(f"Rcpt: {recipient}\r\n" for recipient in envelope.recipients)
    sent_by = told_address(envelope)
    address = f"IP: {sent_by}\r\n" if sent_by else ""
    helo = f"Helo: {envelope.helo}\r\n" if envelope.helo else ""
    learned = f"{LEARNER_HEADER}: {learner}\r\n" if learner else ""
    return (
        f"POST /checkv2 HTTP/1.1\r\nHost: rspamd\r\nConnection: close\r\nContent-Length: {size}\r\n"
        f"From: {envelope.sender}\r\n{recipients}{address}{helo}{learned}"
        f"Settings: {settings_for(has_address=bool(address), has_helo=bool(helo))}\r\n\r\n"
    ).encode()


@cache
def settings_for(*, has_address: bool, has_helo: bool) -> str:
    """Return the setting that switches off what judges the parts of an envelope that are not there."""
    off = [*_ALWAYS_OFF]
    off += () if has_address else _OFF_WITHOUT_ADDRESS
    off += () if has_helo else _OFF_WITHOUT_HELO
    return json.dumps({"symbols_disabled": off})


def split_answer(raw: bytes) -> tuple[bytes, bytes]:
    """Return head and body of an HTTP answer that was read to its end, or raise EngineFailed."""
    head, found, body = raw.partition(b"\r\n\r\n")
    if not found:
        raise EngineFailed(FailureKind.UNFINISHED, "Rspamd closed the connection without an answer.")
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] != b"200":
        raise EngineFailed(FailureKind.UNFINISHED, f"Rspamd answered {head[:60].decode('latin-1')!r}.")
    length = _field(head, b"content-length")
    if length.isdigit() and int(length) != len(body):
        raise EngineFailed(FailureKind.UNFINISHED, f"Rspamd's answer was cut: {len(body)} of {int(length)} bytes came.")
    return head, body


def _field(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""


def server_of(head: bytes) -> str:
    return _field(head, b"server").decode("latin-1")[:40] or "rspamd"


def read_answer(body: bytes) -> CheckAnswer:
    try:
        return msgspec.json.decode(body, type=CheckAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineFailed(FailureKind.UNFINISHED, f"Rspamd's answer cannot be read: {error}.") from None


def told_address(envelope: Envelope) -> str:
    """Return the address that Rspamd is told.

    None where it is one of a private network: Rspamd would take the message for the network's own, and check nothing
    about its sender, though any relay of ours may have brought it from outside.
    """
    try:
        sent_by = ip_address(envelope.remote_address or "")
    except ValueError:
        return ""
    plain = getattr(sent_by, "ipv4_mapped", None) or sent_by
    return "" if plain.is_loopback or any(plain in network for network in _PRIVATE) else str(sent_by)


def is_signed(raw: RawMessage) -> bool:
    """Tell whether the message has a DKIM signature, readable or not."""
    start = next(iter(raw.chunks()), b"")
    # The pattern tries every byte of a message that has none; looking for the name takes a fifth of that.
    return b"dkim-signature" in start.lower() and bool(_SIGNED.search(start))


def require_whole(answer: CheckAnswer, envelope: Envelope, *, signed: bool = False) -> None:
    """Refuse an answer that Rspamd gave before it was done: overload and time-outs look like clean mail otherwise.

    A signature that has expired or cannot be read leaves no symbol of DKIM; then one must be there of a check that
    Rspamd begins only when DKIM is done.
    """
    if is_gtube(answer):
        return
    if answer.is_skipped or answer.action == "soft reject":
        raise EngineFailed(FailureKind.UNFINISHED, f"Rspamd gave up on the message (action {answer.action!r}).")
    dkim = ("R_DKIM_", *_BEHIND_DKIM) if signed else ("R_DKIM_",)
    for wanted in (dkim, ("R_SPF_",)) if told_address(envelope) else (dkim,):
        if not any(name.startswith(wanted) for name in answer.symbols):
            sentence = f"Rspamd answered without its {wanted[0]}* symbols: it did not finish the authentication checks."
            raise EngineFailed(FailureKind.UNFINISHED, sentence)


def is_gtube(answer: CheckAnswer) -> bool:
    return answer.action == "reject" and "gtube" in str(answer.messages.get("smtp_message", "")).lower()


def score_without_learned(answer: CheckAnswer) -> float:
    """Return the score of what Rspamd sees by itself: what a tenant taught it is a finding of its own."""
    return answer.score - sum(answer.symbols[name].score for name in LEARNED if name in answer.symbols)


def findings_of(answer: CheckAnswer, finding_of: dict[str, str]) -> Iterator[Finding]:
    score = score_without_learned(answer)
    facts: dict[str, str | int | float | bool] = {"score": round(score, 2), "required": answer.required_score}
    if is_gtube(answer):
        yield Finding("rspamd.gtube")
    elif score >= answer.required_score:
        yield Finding("rspamd.reject", facts=facts)
    elif band := next((name for least, name in BANDS if score >= least), ""):
        yield Finding(band, facts=facts)
    for name in sorted(answer.symbols.keys() & finding_of.keys()):
        options = ", ".join(answer.symbols[name].options)[: SHOWN.fact]
        yield Finding(finding_of[name], facts={"symbol": name, "options": options})
