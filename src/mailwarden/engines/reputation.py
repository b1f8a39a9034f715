"""A feed of domain reputation and age as an engine: a DNS zone that answers 127.0.x.y for listed domains (RFC 5782).

It runs only where `guard.yml` names it. A feed that does not answer in time says nothing, neither good nor bad.
Security: names come from hostile messages; their number, the time for all of them and the kept answers are bounded.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, ClassVar

from msgspec import Meta, field

from mailwarden.analysis.analyzer import EngineFailed, Known
from mailwarden.analysis.links.popular import Band, band_of
from mailwarden.engines.dns import DnsEngine, DnsSettings, Outcome, server_mistakes
from mailwarden.engines.engine import ConfirmingEngine, EngineInfo, EngineSettings
from mailwarden.lists.kinds.domains import free_mail_domains
from mailwarden.message.limits import SHOWN
from mailwarden.message.urls import written_domain
from mailwarden.model.envelope import domain_of
from mailwarden.model.evidence import Failure, FailureKind, Finding, Report, Status
from mailwarden.model.place import WHOLE_MESSAGE, Place, area
from mailwarden.settings.shared import Milliseconds

NAME = "reputation"
MAX_DOMAINS = 20  # not inspection: of one message, those of the sender and answers first
KEPT, FRESH = 20_000, 300.0
TEST_POINT = "test"  # RFC 5782, section 5: a domain list must have this entry, and must not have `invalid`
_ZONE = re.compile(r"(?:[a-z0-9_-]{1,63}\.){1,9}[a-z0-9-]{1,63}")
_LISTED = re.compile(r"127\.0\.\d{1,3}\.\d{1,3}")  # 127.255.255.y says that the feed refuses the question


class Meaning(StrEnum):
    SPAM = "spam"
    PHISHING = "phishing"
    MALWARE = "malware"
    NEW = "new"


CODES = {
    "127.0.1.2": Meaning.SPAM,
    "127.0.1.4": Meaning.PHISHING,
    "127.0.1.5": Meaning.MALWARE,
    "127.0.1.6": Meaning.MALWARE,
    "127.0.2.*": Meaning.NEW,
}


class ReputationSettings(EngineSettings, frozen=True, tag=NAME):
    """A DNS zone about domains; guard asks it only where this is configured."""

    zone: Annotated[str, Meta(description="The zone to ask, such as `dbl.example`: guard looks up `domain.zone`.")] = ""
    servers: Annotated[
        tuple[str, ...], Meta(max_length=8, description="Name servers; those of /etc/resolv.conf if empty.")
    ] = ()
    timeout: Annotated[Milliseconds, Meta(description="Longest wait for all answers, in milliseconds.")] = 500
    codes: Annotated[
        dict[str, Meaning],
        Meta(description="Meanings of answers: `127.0.1.4`, or `127.0.2.*` for all of them. Others mean nothing."),
    ] = field(default_factory=lambda: dict(CODES))

    def mistakes(self) -> Iterator[tuple[str, str]]:
        if not _ZONE.fullmatch(self.zone):
            yield "zone", f"`{self.zone}` must be a DNS name such as `dbl.example`"
        yield from server_mistakes(self.servers)


class ReputationEngine(ConfirmingEngine[ReputationSettings]):
    type_name: ClassVar[str] = NAME
    title: ClassVar[str] = "Domain feed"
    settings_type: ClassVar[type[EngineSettings]] = ReputationSettings
    required: ClassVar[bool] = False

    def __init__(self, name: str, settings: ReputationSettings) -> None:
        super().__init__(name, settings)
        self._resolver = DnsEngine(name, DnsSettings(settings.servers, settings.timeout))
        self._kept: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()

    @property
    def remedy(self) -> str:
        return f"check engines.{self.name}.zone and engines.{self.name}.servers in guard.yml, or remove the engine"

    async def check(self) -> EngineInfo:
        """Ask for the test entry of the zone."""
        if not await self._addresses_of(TEST_POINT):
            raise EngineFailed(FailureKind.UNFINISHED, f"{self._settings.zone} has no test entry (RFC 5782).")
        return EngineInfo(f"zone {self._settings.zone}", self._settings.zone)

    async def confirm(self, known: Known, until: float) -> Report:
        """Report what the zone says about the domains of a message; answers count even where others fail.

        Security: names that answer late, or never, must not hide a listed one beside them.
        """
        started = time.monotonic()
        seconds = max(0.0, min(until - started, self._settings.timeout / 1000))
        domains = domains_of(known)
        lookups = [asyncio.ensure_future(self._addresses_of(domain)) for domain in domains]
        try:
            if lookups:
                await asyncio.wait(lookups, timeout=seconds)
        finally:
            late = [lookup for lookup in lookups if lookup.cancel()]
        errors = [lookup.exception() for lookup in lookups if lookup not in late]
        found = tuple(
            finding
            for (domain, place), each in zip(domains.items(), lookups, strict=True)
            if each not in late and each.exception() is None
            for finding in self._findings(domain, place, each.result())
        )
        return self._report(started, found, self._failure(late, errors))

    def _failure(self, late: Sequence[object], errors: Sequence[BaseException | None]) -> Failure | None:
        for error in filter(None, errors):
            if not isinstance(error, EngineFailed):
                raise error
            return Failure(self.name, FailureKind.TIMEOUT, error.sentence)
        return Failure(self.name, FailureKind.TIMEOUT, "The domain feed took too long.") if late else None

    def _findings(self, domain: str, place: Place, listed: tuple[str, ...]) -> Iterator[Finding]:
        codes = self._settings.codes
        meanings = {codes.get(each) or codes.get(f"{each.rpartition('.')[0]}.*") for each in listed}
        for meaning in sorted(filter(None, meanings)):
            facts = {"domain": domain[: SHOWN.fact], "zone": self._settings.zone}
            yield Finding(f"reputation.{meaning}", place, {**facts})

    async def _addresses_of(self, domain: str) -> tuple[str, ...]:
        """Return the answers for a domain; raise EngineFailed for one that is no listing."""
        kept = self._kept.get(domain)
        if kept and time.monotonic() - kept[0] < FRESH:
            return kept[1]
        answer = await self._resolver.look_up_addresses(f"{domain}.{self._settings.zone}")
        if answer.outcome is Outcome.FAILED:
            raise EngineFailed(FailureKind.UNREACHABLE, "The domain feed does not answer.", answer.sentence)
        if any(not _LISTED.fullmatch(record) for record in answer.records):
            sentence = f"The domain feed {self._settings.zone} refuses the question ({', '.join(answer.records)[:60]})."
            raise EngineFailed(FailureKind.UNFINISHED, sentence)
        self._kept[domain] = (time.monotonic(), answer.records)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return answer.records

    def _report(self, started: float, findings: tuple[Finding, ...], failure: Failure | None = None) -> Report:
        took = round((time.monotonic() - started) * 1000, 3)
        status = Status.FAILED if failure else Status.FINISHED
        return Report(self.name, self.required, status, took, findings, failure, self._settings.zone)


def domains_of(known: Known) -> dict[str, Place]:
    """Return the registered domains to ask about: of From, envelope, Reply-To and links, without the most used."""
    hosts = [
        (domain_of(known.summary.from_address), area("From")),
        (domain_of(known.envelope.sender), area("envelope")),
        (domain_of(known.summary.reply_to), area("Reply-To")),
        *((link.host, WHOLE_MESSAGE) for link in known.summary.links),
    ]
    found: dict[str, Place] = {}
    for host, place in hosts:
        domain = written_domain(host)
        if domain and domain not in found and domain not in free_mail_domains() and band_of(domain) is not Band.TOP:
            found[domain] = place
        if len(found) >= MAX_DOMAINS:
            break
    return found
