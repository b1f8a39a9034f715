"""Rspamd: asked about the raw message; its answer is checked for being whole, and translated into neutral facts.

Security: envelope text goes into HTTP headers here; it must never hold a control character (checked again below).
Option texts hold names chosen by the sender, so they are split from the right, where only Rspamd writes.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from ipaddress import ip_address, ip_network
from itertools import chain
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
from msgspec import Meta
from ruamel.yaml import YAML

from mailwarden.analysis.analyzer import EngineAnswer, EngineFailed, SenderChecks, Statistics
from mailwarden.engines import samples
from mailwarden.engines.engine import (
    CLASSIFIER_HEADER,
    Announce,
    Diagnosis,
    EngineInfo,
    EngineSettings,
    ShippedFiles,
    SocketEngine,
    SocketSettings,
    address_mistakes,
    closed_socket,
    within,
)
from mailwarden.message.limits import SHOWN
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Fact, FailureKind, Finding
from mailwarden.model.scan import RawMessage
from mailwarden.settings.shared import Count, Milliseconds

if TYPE_CHECKING:
    from mailwarden.engines.rspamd_teacher import RspamdTeacher

NAME = "rspamd"
MAX_ANSWER = 16 * 1024 * 1024  # not inspection: an engine's own answer
MAX_SENTINELS = 16  # not inspection: addresses in guard.yml
TRAINING_SECONDS = 5.0  # for the controller or Redis to answer `mailwarden doctor`
# From which score on which finding is reported; only the highest band that is reached counts.
BANDS = (
    (8.0, "rspamd.strong-spam"),
    (6.0, "rspamd.probable-spam"),
    (5.0, "rspamd.likely-spam"),
    (4.0, "rspamd.suspected-spam"),
    (3.0, "rspamd.raised-score"),
)

# The API hands over no host name of the client, so what judges its absence judges nothing about the message.
_ALWAYS_OFF = ("HFILTER_HOSTNAME_UNKNOWN", "RDNS_NONE")
# Without the client's address SPF has no result, and DMARC would fail because of that.
_OFF_WITHOUT_ADDRESS = ("DMARC_CHECK", "DMARC_CALLBACK", "AUTH_NA", "AUTH_NA_OR_FAIL")
_OFF_WITHOUT_HELO = ("HFILTER_HELO_UNKNOWN", "HFILTER_HELO_NORESOLVE_MX", "HFILTER_HELO_NORES_A_OR_MX")


# Rspamd's defaults for local networks.
_PRIVATE = tuple(
    map(ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16", "fd00::/8", "fe80::/10"))
)
_SIGNED = re.compile(rb"^dkim-signature[ \t]*:", re.IGNORECASE | re.MULTILINE)
_BEHIND_DKIM = ("ARC_", "DMARC_")
THREAT, GOOD = "BAYES_SPAM", "BAYES_HAM"
LEARNED = (THREAT, GOOD)

# In each table the first symbol that is there decides.
SPF = (
    ("R_SPF_PLUSALL", "neutral"),  # a domain that allows the whole world proves nothing
    ("R_SPF_FAIL", "fail"),
    ("R_SPF_SOFTFAIL", "softfail"),
    ("R_SPF_ALLOW", "pass"),
    ("R_SPF_NEUTRAL", "neutral"),
    ("R_SPF_DNSFAIL", "error"),
    ("R_SPF_PERMFAIL", "error"),
    ("R_SPF_NA", "none"),
)
DMARC = (
    ("DMARC_POLICY_REJECT", "reject"),
    ("DMARC_POLICY_QUARANTINE", "quarantine"),
    ("DMARC_POLICY_SOFTFAIL", "softfail"),
    ("DMARC_POLICY_ALLOW", "pass"),
    ("DMARC_BAD_POLICY", "error"),
    ("DMARC_DNSFAIL", "error"),
    ("DMARC_NA", "none"),
)
# A message may carry several signatures: every kind of result is reported, with the domains that Rspamd marks so.
DKIM = (
    (("R_DKIM_ALLOW",), "pass", "+"),
    (("R_DKIM_REJECT",), "fail", "-"),
    (("R_DKIM_TEMPFAIL", "R_DKIM_PERMFAIL"), "error", "?~"),
    (("R_DKIM_NA",), "none", ""),
)
_TEMPORARY = frozenset({"R_SPF_DNSFAIL", "R_DKIM_TEMPFAIL", "DMARC_DNSFAIL"})

# Findings about links: their options name the hosts.
_ABOUT_LINKS = frozenset(
    {"rspamd.link-mismatch", "rspamd.known-phishing-url", "rspamd.known-malware-url", "rspamd.lookalike-url",
     "rspamd.listed-url"}
)  # fmt: skip
_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)+", re.IGNORECASE)

_GREYLISTED = ("soft reject", "greylist")
# A public address: greylisting leaves local ones alone.
_DOCTOR = Envelope("doctor@mailwarden.invalid", ("doctor@mailwarden.invalid",), "198.51.100.7", "mailwarden.invalid")
_PLAIN_HEAD = (
    b"POST /checkv2 HTTP/1.1\r\nHost: rspamd\r\nConnection: close\r\nContent-Length: %d\r\n"
    b"From: doctor@mailwarden.invalid\r\nRcpt: doctor@mailwarden.invalid\r\nIP: 198.51.100.7\r\n\r\n"
)
Symbols = Mapping[str, tuple[str, ...]]
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


_ANSWERS = msgspec.json.Decoder(CheckAnswer)  # a third of the cost of a new decoder for each


class Training(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Trains Rspamd with the reports of each tenant; without it no report trains it."""

    controller: Annotated[str, Meta(description="Rspamd's controller: `unix:/path/to/socket` or `tcp:host:port`.")] = (
        "tcp:127.0.0.1:11334"
    )
    password: Annotated[str, Meta(description="The controller's password; none if empty.")] = ""
    redis: Annotated[
        str, Meta(description="The Redis in which Rspamd keeps statistics: `redis://host:port/number`.")
    ] = "redis://127.0.0.1:6379/0"
    sentinels: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_SENTINELS,
            description="Redis Sentinels, `host:port` each. They name the Redis; `redis` gives login and number.",
        ),
    ] = ()
    sentinel_service: Annotated[str, Meta(min_length=1, description="Name of the Redis that the Sentinels watch.")] = (
        "mailwarden"
    )

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from address_mistakes("controller", self.controller)
        for address in self.sentinels:
            host, _, port = address.rpartition(":")
            if not (host and port.isdigit() and 0 < int(port) < 65536):
                yield "sentinels", f"`{address}` is not an address: write host:port"
        if not self.redis.startswith(("redis://", "rediss://", "unix://")):
            yield "redis", "must start with redis://, rediss:// or unix://"
        if any(character < " " or character > "~" for character in self.password):
            yield "password", "must be printable ASCII: it goes into a header"


class RspamdSettings(SocketSettings, frozen=True, tag=NAME):
    """Rspamd, which scores messages, checks the sender and learns."""

    address: Annotated[str, Meta(description="Rspamd's normal worker: `unix:/path/to/socket` or `tcp:host:port`.")] = (
        "tcp:127.0.0.1:11333"
    )
    timeout: Annotated[Milliseconds, Meta(description="Longest wait for one answer, in milliseconds.")] = 20_000
    max_concurrency: Annotated[
        Count, Meta(description="Scans at once; beyond about 200 a worker Rspamd loses symbols silently.")
    ] = 32
    training: Training | None = None


class RspamdEngine(SocketEngine[RspamdSettings]):
    type_name: ClassVar[str] = NAME
    title: ClassVar[str] = "Rspamd"
    settings_type: ClassVar[type[EngineSettings]] = RspamdSettings
    shipped_address: ClassVar[str] = "unix:/run/rspamd/normal.sock"
    shipped_files: ClassVar[ShippedFiles | None] = ShippedFiles(
        "rspamd", "etc/rspamd", (("rspamd", "etc/rspamd/local.d"),), "rspamd"
    )
    authenticates: ClassVar[bool] = True
    learns: ClassVar[bool] = True

    def __init__(self, name: str, settings: RspamdSettings) -> None:
        super().__init__(name, settings)
        self._finding_of = load_symbols()

    async def ask(self, raw: RawMessage, envelope: Envelope, classifier: str = "") -> EngineAnswer:
        request = chain((request_head(envelope, raw.size, classifier),), raw.chunks())
        head, body = split_answer(await self._connection.ask(request, MAX_ANSWER))
        answer = read_answer(body)
        require_whole(answer, envelope, signed=is_signed(raw))
        symbols = {name: symbol.options for name, symbol in answer.symbols.items()}
        return EngineAnswer(
            findings=tuple(findings_of(answer, self._finding_of)),
            engine=server_of(head),
            authentication=sender_checks(symbols, envelope),
            statistics=statistics_of(symbols) if classifier else None,
        )

    async def check(self) -> EngineInfo:
        request = b"GET /ping HTTP/1.1\r\nHost: rspamd\r\nConnection: close\r\n\r\n"
        head, body = split_answer(await self._connection.probe(request))
        if body.strip() != b"pong":
            raise EngineFailed(FailureKind.UNFINISHED, "Rspamd did not answer its ping with pong.")
        return EngineInfo(server_of(head), server_of(head))

    def teacher(self) -> "RspamdTeacher | None":
        from mailwarden.engines.rspamd_teacher import RspamdTeacher  # noqa: PLC0415 - loads the Redis client

        training = self._settings.training
        if training is None:
            return None
        sentinels = training.sentinels, training.sentinel_service
        return RspamdTeacher(training.controller, training.password, training.redis, *sentinels)

    async def diagnose(self, announce: Announce) -> AsyncIterator[Diagnosis]:
        """Send test messages to Rspamd, and name each setting with which it would answer without what it found."""
        remedy = "set `mode=0660 group=...` behind the path in bind_socket of worker-normal.inc"
        refused = closed_socket(self.name, self._settings.address, remedy)
        if refused is not None:
            yield refused
        else:
            async for line in self._wrong_or_right(announce):
                yield line
        async for line in self._diagnose_training():
            yield line

    async def _wrong_or_right(self, announce: Announce) -> AsyncIterator[Diagnosis]:
        try:
            first = await self._scan(samples.text_message(samples.GTUBE))
            wrong = [line async for line in self._wrong_settings(first, announce)]
        except EngineFailed:
            return  # check() reports it
        for line in wrong:
            yield line
        if not wrong:
            seen = "knows GTUBE, reads 50 MiB, checks DKIM, does not greylist"
            yield Diagnosis(True, f"{self.name} settings", seen)

    async def _wrong_settings(self, gtube: Mapping[str, object], announce: Announce) -> AsyncIterator[Diagnosis]:
        name = f"{self.name} settings"
        if gtube.get("action") != "reject":
            seen = f"Rspamd answers `{gtube.get('action') or gtube.get('error')}` for GTUBE instead of `reject`"
            yield Diagnosis(False, name, seen, "leave gtube_patterns and the actions of Rspamd as they are shipped")
        # Without guard's own settings the score of this message lies where greylisting acts.
        suspect = await self._scan(samples.text_message(b"Hello."), _PLAIN_HEAD)
        if suspect.get("action") in _GREYLISTED:
            seen = f"Rspamd greylists: it answers `{suspect['action']}`, without what it found"
            fix = "copy deploy/rspamd/greylist.conf to /etc/rspamd/local.d and restart Rspamd"
            yield Diagnosis(False, name, seen, fix)
        announce("Rspamd reads a message of 50 MiB")
        try:
            large = await self._scan(samples.message_with("padding.txt", b"Test.", samples.MAX_MESSAGE))
            whole = large.get("action") and not large.get("is_skipped")
            refused = "" if whole else str(large.get("error") or "skipped")
        except EngineFailed as error:
            refused = error.sentence
        if refused:
            seen = f"Rspamd does not read a message of 50 MiB ({refused.rstrip('.')})"
            fix = "set `max_message = 62914560;` in /etc/rspamd/local.d/options.inc"
            yield Diagnosis(False, name, seen, fix)
        if suspect.get("action") not in _GREYLISTED:  # a greylisted message is not checked further
            async for line in self._wrong_checks(name):
                yield line

    async def _wrong_checks(self, name: str) -> AsyncIterator[Diagnosis]:
        symbols = (await self._scan(samples.signed_message())).get("symbols")
        dkim = [symbol for symbol in symbols if symbol.startswith("R_DKIM_")] if isinstance(symbols, dict) else []
        if not dkim or dkim == ["R_DKIM_NA"]:
            seen = "Rspamd does not check DKIM signatures"
            yield Diagnosis(False, name, seen, "enable its modules dkim, spf and dmarc")
        elif dkim == ["R_DKIM_TEMPFAIL"]:
            seen = "Rspamd's name server does not answer (R_DKIM_TEMPFAIL for a domain that cannot exist)"
            fix = "set `dns { nameserver = [...]; }` in /etc/rspamd/local.d/options.inc"
            yield Diagnosis(False, name, seen, fix)

    async def _diagnose_training(self) -> AsyncIterator[Diagnosis]:
        """Check Rspamd's controller, and the Redis in which it keeps statistics."""
        training, teacher = self._settings.training, self.teacher()
        if training is None or teacher is None:
            return
        asked = (
            ("controller", training.controller, teacher.check_controller),
            ("redis", ", ".join(training.sentinels) or training.redis.rpartition("@")[2], teacher.check_redis),
        )
        for key, address, check in asked:
            name = f"{self.name} {key}"
            remedy = f"start it, or set engines.{self.name}.training.{key} in guard.yml; until then reports wait"
            try:
                yield Diagnosis(True, name, f"{await within(TRAINING_SECONDS, check())} at {address}")
            except EngineFailed as error:
                yield Diagnosis(False, name, f"{address}: {error}", remedy)
        await teacher.close()

    async def _scan(self, content: bytes, plain: bytes = b"") -> Mapping[str, object]:
        """Return Rspamd's answer to a message, asked as guard asks or with another head."""
        head = plain % len(content) if plain else request_head(_DOCTOR, len(content))
        answer = await within(self.timeout, self._connection.ask((head, content), MAX_ANSWER))
        _, body = split_answer(answer)
        try:
            return msgspec.json.decode(body, type=dict[str, object])
        except msgspec.DecodeError:
            return {"error": body[:100].decode("utf-8", "replace")}  # shown: the malformed answer


def load_symbols() -> dict[str, str]:
    """Return which of Rspamd's symbols become which finding of ours."""
    text = files("mailwarden.engines").joinpath("rspamd_symbols.yml").read_text()
    return msgspec.convert(YAML(typ="safe").load(text), dict[str, str])


def request_head(envelope: Envelope, size: int, classifier: str = "") -> bytes:
    """Return the head of the request; the message follows it as it is."""
    text = "".join((envelope.sender, *envelope.recipients, envelope.remote_address or "", envelope.helo or ""))
    if _CONTROL.search(text):
        raise EngineFailed(FailureKind.UNFINISHED, "The envelope holds a control character; Rspamd was not asked.")
    recipients = "".join(f"Rcpt: {recipient}\r\n" for recipient in envelope.recipients)
    sent_by = client_address(envelope)
    address = f"IP: {sent_by}\r\n" if sent_by else ""
    helo = f"Helo: {envelope.helo}\r\n" if envelope.helo else ""
    learned = f"{CLASSIFIER_HEADER}: {classifier}\r\n" if classifier else ""
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
        return _ANSWERS.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineFailed(FailureKind.UNFINISHED, f"Rspamd's answer cannot be read: {error}.") from None


def client_address(envelope: Envelope) -> str:
    """Return the client's address as Rspamd gets it.

    None if it is one of a private network: Rspamd would take the message for the network's own, and check nothing
    about its sender, though any relay of ours may have brought it from outside.
    """
    return _public_address(envelope.remote_address or "")


@lru_cache(maxsize=4_096)  # asked three times for each message, and clients recur
def _public_address(text: str) -> str:
    try:
        sent_by = ip_address(text)
    except ValueError:
        return ""
    plain = getattr(sent_by, "ipv4_mapped", None) or sent_by
    return "" if plain.is_loopback or any(plain in network for network in _PRIVATE) else str(sent_by)


def is_signed(raw: RawMessage) -> bool:
    """Return whether the message has a DKIM signature, readable or not."""
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
    for wanted in (dkim, ("R_SPF_",)) if client_address(envelope) else (dkim,):
        if not any(name.startswith(wanted) for name in answer.symbols):
            sentence = f"Rspamd answered without its {wanted[0]}* symbols: it did not finish the authentication checks."
            raise EngineFailed(FailureKind.UNFINISHED, sentence)


def is_gtube(answer: CheckAnswer) -> bool:
    return answer.action == "reject" and "gtube" in str(answer.messages.get("smtp_message", "")).lower()


def score_without_learned(answer: CheckAnswer) -> float:
    """Return Rspamd's own score; the statistics that a tenant trained are a finding of their own."""
    return answer.score - sum(answer.symbols[name].score for name in LEARNED if name in answer.symbols)


def findings_of(answer: CheckAnswer, finding_of: dict[str, str]) -> Iterator[Finding]:
    score = score_without_learned(answer)
    facts: dict[str, Fact] = {"score": round(score, 2), "required": answer.required_score}
    if is_gtube(answer):
        yield Finding("rspamd.gtube")
    elif score >= answer.required_score:
        yield Finding("rspamd.reject", facts=facts)
    elif band := next((name for least, name in BANDS if score >= least), ""):
        yield Finding(band, facts=facts)
    for name in sorted(answer.symbols.keys() & finding_of.keys()):
        options = ", ".join(answer.symbols[name].options)
        about: dict[str, Fact] = {"symbol": name, "options": options[: SHOWN.fact]}
        if finding_of[name] in _ABOUT_LINKS and (hosts := linked_hosts(options)):
            about["hosts"] = hosts
        yield Finding(finding_of[name], facts=about)


def linked_hosts(options: str) -> str:
    """Return the hosts that the options name, of `shown->real` the real one; "" where some host may be missing."""
    if len(options) >= SHOWN.fact:
        return ""
    found = [_HOST.search(option.rpartition("->")[2]) for option in options.split(",")]
    hosts = [host.group().lower() if host else "" for host in found]
    return ", ".join(hosts) if all(hosts) else ""


def sender_checks(symbols: Symbols, envelope: Envelope) -> SenderChecks | None:
    """Translate the symbols of SPF, DKIM and DMARC; None if there are no symbols, as for a test message."""
    if not symbols:
        return None
    not_found = symbols.get("DMARC_NA", ())
    read = symbols.get("FROM_NEQ_ENVFROM", ())
    results = ((result, marks) for names, result, marks in DKIM if any(name in symbols for name in names))
    return SenderChecks(
        spf=_first(SPF, symbols),
        spf_checked=any(name.startswith("R_SPF_") for name in symbols) and bool(client_address(envelope)),
        dkim=tuple((result, signing_domains(symbols, marks)) for result, marks in results),
        signed_by=signing_domains(symbols, "+"),
        dmarc=_first(DMARC, symbols),
        dmarc_domain=dmarc_domain(symbols),
        policy_found=_has_policy(symbols),
        # An option with a space is a reason: the record is wrong, or there is no From.
        policy_missing=not not_found or " " not in not_found[0],
        temporary_error=not _TEMPORARY.isdisjoint(symbols),
        policy_unknown="DMARC_DNSFAIL" in symbols,
        several_senders="MULTIPLE_FROM" in symbols or "Duplicate From header" in not_found,
        from_missing="No From header" in not_found,
        read_as=(read[0], read[1]) if len(read) == 2 else None,
        read_as_equal="FROM_EQ_ENVFROM" in symbols,
    )


def dmarc_domain(symbols: Symbols) -> str:
    """Return the domain whose DMARC policy Rspamd looked up; it writes `domain`, or `domain : reason`."""
    for name, _ in DMARC:
        for option in symbols.get(name, ())[:1]:
            domain = option.partition(":")[0].strip()
            return "" if " " in domain else domain
    return ""


def signing_domains(symbols: Symbols, marks: str) -> tuple[str, ...]:
    """Return the domains of the signatures with one of these marks, which Rspamd writes as `domain:mark`."""
    pairs = (option.rpartition(":") for option in symbols.get("DKIM_TRACE", ()))
    return tuple(domain for domain, _, mark in pairs if mark and mark in marks)


def _has_policy(symbols: Symbols) -> bool:
    """Return whether Rspamd saw the DMARC policy: it applied it, or it found it wrong."""
    if any(name.startswith("DMARC_POLICY_") or name == "DMARC_BAD_POLICY" for name in symbols):
        return True
    return any("SPF/DKIM temp error" in option for option in symbols.get("DMARC_DNSFAIL", ()))


def _first(table: tuple[tuple[str, str], ...], symbols: Symbols) -> str:
    return next((result for symbol, result in table if symbol in symbols), "")


def statistics_of(symbols: Symbols) -> Statistics:
    """Return how sure the statistics of a classifier are."""
    threat, good = ((symbols.get(name) or ("",))[0] for name in LEARNED)
    return Statistics(percentage(threat), percentage(good))


def percentage(text: str) -> float:
    """Return the number in `99.98%`, and 0 for any other text."""
    digits = text.removesuffix("%").strip()
    try:
        number = float(digits)
    except ValueError:
        return 0.0
    return number if 0.0 <= number <= 100.0 else 0.0
