"""The DNS resolver as an engine: probed by itself, and asked again where the sender checks found no record.

SPF, DKIM and DMARC rest on DNS. A resolver that is down, slow, failing or answering "no such name" to everything makes
a forged message look like one of a domain without a policy. So guard asks the resolver for a name that must exist, and
where the engine that checks the sender reports a temporary error or no record, guard looks for the record itself before
anything is concluded.
Security: names come from hostile messages; each question has a deadline, what is kept is bounded by number and time.
"""

import asyncio
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from ipaddress import ip_address
from typing import Annotated, ClassVar

import dns.asyncquery
import dns.exception
import dns.message
import dns.rcode
from dns.resolver import NoResolverConfiguration
from dns.resolver import Resolver as SystemConfiguration
from msgspec import Meta, Struct

from mailwarden.analysis.analyzer import EngineFailed, Known, SenderChecks
from mailwarden.analysis.analyzers.authentication import spf_domain
from mailwarden.analysis.links.brands import load_brands
from mailwarden.engines.dns_query import Question, Reply, exchange, make_question, read_reply
from mailwarden.engines.engine import ConfirmingEngine, EngineInfo, EngineSettings, ShippedFiles
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import normalize_host
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import UNVERIFIED_SENDER, Failure, FailureKind, Finding, Report, Status
from mailwarden.model.place import area
from mailwarden.settings.shared import Milliseconds

NAME = "dns"
ROOT = "."
KEPT, FRESH = 10_000, 60.0
OUTSIDE = "com."  # a random name below it is in no cache, so that an answer shows that the resolver reaches others
OUTSIDE_PERIOD = 30.0
SHAKY = 15.0  # seconds after an outage in which a temporary error is taken for a part of it
_PLAIN_SENDER = re.compile(r"(?:[\w.!#$%&'*+/=?^`{|}~-]+@[\w.-]+)?", re.ASCII)


class Outcome(StrEnum):
    FOUND = "found"
    NONE = "none"  # no such name, or no such record
    FAILED = "failed"


class Answer(Struct, frozen=True):
    outcome: Outcome
    records: tuple[str, ...] = ()
    sentence: str = ""


Lookups = dict[tuple[str, str], Answer]  # by name and by what the record begins with


class DnsSettings(EngineSettings, frozen=True, tag=NAME):
    """The DNS resolver that guard probes; name the one that the engine for sender checks uses."""

    servers: Annotated[
        tuple[str, ...],
        Meta(
            max_length=8,
            description="Name servers, such as `127.0.0.1` or `[::1]:5353`; those of /etc/resolv.conf if empty.",
        ),
    ] = ()
    timeout: Annotated[
        Milliseconds, Meta(description="Longest wait for one answer, in milliseconds; a slower resolver is down.")
    ] = 2_000
    probe: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            description="A name with an A record that the resolver must find; `.` asks for the root name servers.",
        ),
    ] = ROOT

    def mistakes(self) -> Iterator[tuple[str, str]]:
        yield from server_mistakes(self.servers)


class DnsEngine(ConfirmingEngine[DnsSettings]):
    """Asks the configured name servers one after the other; keeps each answer for a minute."""

    type_name: ClassVar[str] = NAME
    title: ClassVar[str] = "DNS resolver"
    settings_type: ClassVar[type[EngineSettings]] = DnsSettings
    shipped_files: ClassVar[ShippedFiles | None] = ShippedFiles(
        "unbound", "etc/unbound", (("unbound", "etc/unbound/unbound.conf.d"),), "unbound"
    )

    def __init__(self, name: str, settings: DnsSettings) -> None:
        super().__init__(name, settings)
        self.servers = settings.servers or system_servers()
        self.timeout = settings.timeout / 1000
        self._probe_name = settings.probe
        self._kept: OrderedDict[tuple[str, str], tuple[float, Answer]] = OrderedDict()
        self._probing: asyncio.Task[None] | None = None
        self._probe_began = 0.0
        self._good_since = -1.0  # when the last probe that succeeded began
        self._failed_at = -SHAKY - 1.0
        self._outside_at = -OUTSIDE_PERIOD - 1.0

    @property
    def remedy(self) -> str:
        key = f"engines.{self.name}"
        return f"start it, or set {key}.servers and {key}.probe in guard.yml; name the resolver of the sender checks"

    async def check(self) -> EngineInfo:
        """Probe, and return which resolver answered; raise EngineFailed if none does."""
        await self.probe(time.monotonic())
        detail = f"resolver at {', '.join(self.servers)}"
        return EngineInfo(detail, detail)

    async def probe(self, since: float, *, outside: bool = False) -> None:
        """Return once a probe that began after `since` succeeded; raise EngineFailed if it did not.

        Callers share a probe. With `outside`, the resolver must also answer a question that no cache can answer.
        """
        if outside:
            self._outside_at = min(self._outside_at, since - OUTSIDE_PERIOD - 1.0)
        while self._good_since < since:
            if self._probing is None or self._probing.done():
                self._probe_began = time.monotonic()
                self._probing = asyncio.create_task(self._probe(), name="resolver probe")
            began, probing = self._probe_began, self._probing
            try:
                await asyncio.shield(probing)
            except EngineFailed:
                if began >= since:
                    raise

    async def _probe(self) -> None:
        began = time.monotonic()
        kind = "NS" if self._probe_name == ROOT else "A"
        answer = await self._ask(self._probe_name, kind)
        if answer.outcome is Outcome.FOUND and began - self._outside_at > OUTSIDE_PERIOD:
            outside = await self._ask(f"mailwarden-{secrets.token_hex(8)}.{OUTSIDE}", "A")
            if outside.outcome is Outcome.FAILED:
                answer = outside
            else:
                self._outside_at = began
        if answer.outcome is Outcome.FOUND:
            self._good_since = began
            return
        self._failed_at = time.monotonic()
        self._outside_at = -OUTSIDE_PERIOD - 1.0
        sentence = answer.sentence or f"it has no {kind} record of {self._probe_name}, which must exist"
        where = ", ".join(self.servers) or "no server in /etc/resolv.conf"
        raise EngineFailed(FailureKind.UNREACHABLE, "The DNS resolver does not work.", f"{where}: {sentence}")

    @property
    def was_down(self) -> bool:
        """Return whether a probe failed a moment ago."""
        return time.monotonic() - self._failed_at < SHAKY

    async def look_up_text(self, name: str, start: str, unsure: Lookups) -> Answer:
        """Look for TXT records that begin with a text.

        A new answer goes into `unsure`: a resolver that is failing can answer that there is none. It is kept for a
        minute once a probe that began after it succeeded.
        """
        key = (name, start)
        kept = self._kept.get(key)
        if kept and time.monotonic() - kept[0] < FRESH:
            return kept[1]
        answer = await self._ask(name, "TXT")
        if answer.outcome is Outcome.FOUND:
            matching = tuple(record for record in answer.records if record.lower().startswith(start))
            answer = Answer(Outcome.FOUND, matching) if matching else Answer(Outcome.NONE)
        unsure[key] = answer
        return answer

    def keep(self, sure: Lookups) -> None:
        """Keep answers for a minute; failed queries are repeated."""
        for key, answer in sure.items():
            if answer.outcome is not Outcome.FAILED:
                self._kept[key] = (time.monotonic(), answer)
                self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    async def look_up_addresses(self, name: str) -> Answer:
        """Look for A records; nothing is kept."""
        return await self._ask(name, "A")

    async def _ask(self, name: str, kind: str) -> Answer:
        """Ask the servers in turn, all within the deadline."""
        answer = Answer(Outcome.FAILED, sentence="no server is configured")
        try:
            question = make_question(name, kind)
        except (dns.exception.DNSException, UnicodeError):
            return Answer(Outcome.NONE)  # no such name can exist
        for server in self.servers:
            answer = await self._ask_server(server, question)
            if answer.outcome is not Outcome.FAILED:
                return answer
        return answer

    async def _ask_server(self, server: str, question: Question) -> Answer:
        host, port = split_server(server)
        server_timeout = self.timeout / max(len(self.servers), 1)
        try:
            async with asyncio.timeout(server_timeout):
                reply = read_reply(await exchange(host, port, question), question)
                reply = reply or await _ask_by_dnspython(question, host, port, server_timeout)
        except (TimeoutError, dns.exception.Timeout):
            return Answer(Outcome.FAILED, sentence=f"{server} did not answer within {server_timeout * 1000:.0f} ms")
        except (OSError, dns.exception.DNSException) as error:
            return Answer(Outcome.FAILED, sentence=f"{server}: {error or type(error).__name__}")
        if reply.code not in (dns.rcode.NOERROR, dns.rcode.NXDOMAIN):
            return Answer(Outcome.FAILED, sentence=f"{server} answers {dns.rcode.to_text(dns.rcode.Rcode(reply.code))}")
        return Answer(Outcome.FOUND, reply.records) if reply.records else Answer(Outcome.NONE)

    async def confirm(self, known: Known, until: float) -> Report:
        """Report whether the sender checks can rest on DNS; a failure means that they cannot."""
        started = time.monotonic()
        checks = known.authentication or SenderChecks()
        if not (self.was_down or checks.temporary_error or _is_doubtful(checks)):
            return self._report(started)  # there is nothing to ask, and no deadline to hold
        try:
            async with asyncio.timeout(max(0.0, until - started)):
                findings = await self._confirm(known, started)
        except EngineFailed as error:
            return self._report(started, failure=Failure(self.name, error.kind, error.sentence))
        except TimeoutError:
            failure = Failure(self.name, FailureKind.TIMEOUT, "The DNS resolver took too long.")
            return self._report(started, failure=failure)
        return self._report(started, findings)

    async def _confirm(self, known: Known, since: float) -> tuple[Finding, ...]:
        # A test message (GTUBE) is answered without checks, and without a client IP neither SPF nor DMARC is checked.
        checks = known.authentication or SenderChecks()
        temporary = checks.temporary_error
        if not _is_doubtful(checks):
            await self.probe(since, outside=temporary)
            return ()
        domain = normalize_host(domain_of(known.summary.from_address))
        # The lookups stand between two probes that succeed: a resolver that came back meanwhile is asked as it is now.
        await self.probe(since)
        unsure: Lookups = {}
        compared = bool(domain) and not known.ambiguous_sender
        failed = await self._compare(checks, domain, known, unsure) if compared else False
        if unsure or temporary or failed:
            await self.probe(time.monotonic(), outside=temporary or failed)
            self.keep(unsure)
        if temporary and self.was_down:
            raise EngineFailed(FailureKind.UNFINISHED, "The DNS resolver failed while the sender was checked.")
        if not (temporary or failed) or not domain:
            return ()
        found = [Finding(UNVERIFIED_SENDER, area("From"), {"domain": domain[: SHOWN.fact]})]
        if load_brands().owner_of(domain):
            found.append(Finding("dns.brand-sender", area("From"), {"domain": domain[: SHOWN.fact]}))
        return tuple(found)

    async def _compare(self, checks: SenderChecks, domain: str, known: Known, unsure: Lookups) -> bool:
        """Look up the records that the engine did not find.

        Return whether a lookup failed; raise EngineFailed if a record exists.
        """
        failed = False
        if not checks.policy_found and checks.policy_missing:
            for name in dict.fromkeys((domain, normalize_host(checks.dmarc_domain))):
                failed |= await self._require_none(f"_dmarc.{name}", "v=dmarc1", unsure) if name else False
        sender = normalize_host(spf_domain(known.envelope))
        # SPF is not checked for an address that the engine cannot read, such as one of SMTPUTF8 (RFC 6531).
        if checks.spf == "none" and sender and _is_plain(known.envelope.sender):
            failed |= await self._require_none(sender, "v=spf1", unsure)
        return failed

    async def _require_none(self, name: str, start: str, unsure: Lookups) -> bool:
        answer = await self.look_up_text(name, start, unsure)
        if answer.outcome is Outcome.FOUND:
            sentence = f"The check of the sender did not find the record {start} of {name[: SHOWN.fact]}"
            reason = "its resolver fails, or its module for it is disabled"
            raise EngineFailed(FailureKind.UNFINISHED, f"{sentence}: {reason}.")
        return answer.outcome is Outcome.FAILED

    def _report(self, started: float, findings: tuple[Finding, ...] = (), failure: Failure | None = None) -> Report:
        took = round((time.monotonic() - started) * 1000, 3)
        status = Status.FAILED if failure else Status.FINISHED
        return Report(self.name, self.required, status, took, findings, failure, "resolver")


def _is_doubtful(checks: SenderChecks) -> bool:
    """Return whether a result may rest on records that the engine's resolver did not find."""
    return checks.spf_checked and (checks.temporary_error or not checks.policy_found or checks.spf == "none")


def _is_plain(sender: str) -> bool:
    """Return whether an envelope sender is the null sender or a dot-atom (RFC 5321, section 4.1.2)."""
    return _PLAIN_SENDER.fullmatch(sender) is not None


async def _ask_by_dnspython(question: Question, host: str, port: int, seconds: float) -> Reply:
    """Ask again; an answer that does not fit into a datagram is queried over TCP (RFC 7766, section 5)."""
    asked = dns.message.from_wire(secrets.token_bytes(2) + question.wire)
    assert isinstance(asked, dns.message.QueryMessage)
    reply, _ = await dns.asyncquery.udp_with_fallback(asked, host, seconds, port)
    found = (record for rrset in reply.answer if rrset.rdtype == question.kind for record in rrset)
    return Reply(int(reply.rcode()), tuple(_text_of(record) for record in found))


def _text_of(record: object) -> str:
    """Return a TXT record as one text (RFC 7208, section 3.3), the address of an A record, and no text of others."""
    strings = getattr(record, "strings", None)
    if strings is not None:
        return b"".join(strings).decode("utf-8", "replace")
    return str(getattr(record, "address", ""))


def system_servers() -> tuple[str, ...]:
    """Return the name servers of /etc/resolv.conf."""
    try:
        return tuple(str(nameserver) for nameserver in SystemConfiguration().nameservers)
    except (NoResolverConfiguration, OSError):
        return ()


def split_server(server: str) -> tuple[str, int]:
    """Split `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1` or `[2001:db8::1]:5353`."""
    if server.startswith("["):
        host, closed, port = server[1:].partition("]")
        return (host, int(port[1:] or 53)) if closed else (server, 53)
    host, colon, port = server.partition(":")
    return (host, int(port)) if colon and ":" not in port else (server, 53)


def server_mistakes(servers: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the setting and the mistake for each text that is no name server."""
    for server in servers:
        if not is_server(server):
            yield "servers", f"`{server}` must be an IP address, with `:port` where it is not 53"


def is_server(text: str) -> bool:
    """Return whether a text is the address of a name server."""
    try:
        host, port = split_server(text)
        ip_address(host)
    except ValueError:
        return False
    return 0 < port < 65_536
