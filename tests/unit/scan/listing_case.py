"""One message against lists in memory: compared, judged and decided as guard does it, without sockets."""

from dataclasses import dataclass, field

from mailwarden.lists.lookup import EVERYTHING, ActingLists, Shown
from mailwarden.lists.matching import Match
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observables, ObservedFile
from mailwarden.model.outcome import Judgement, Ruling
from mailwarden.model.place import Place
from mailwarden.model.record import MessageSummary
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import report_of, without_allowed_files, without_allowed_links
from mailwarden.policy.rules import load_policy
from tests.unit.lists.memory_lists import TENANT, MemoryLists

POLICY = load_policy()
SENDER = "ada@north.example"
ADDRESS = "192.0.2.7"
FILE = ObservedFile(Place(part="2", name="tool.zip"), "tool.zip", "application/zip", "a" * 64, "b" * 40, "c" * 32)
BODY = ObservedFile(Place(part="1"), "", "text/plain", "d" * 64, is_body=True)

SPAM = Finding("rspamd.reject", facts={"score": 20.0, "required": 15.0})
PHISHING = Finding(
    "html.credential-form", Place(part="1"), {"host": "thief.example", "url": "http://thief.example/pay"}
)
MALWARE = Finding("clamav.malware", facts={"signature": "Test.Signature"})
MALWARE_IN_FILE = Finding("html.smuggling", FILE.place, {"how": "it saves a decoded blob"})
ALIGNED = Finding("authentication.aligned", facts={"domain": "north.example", "by": "DKIM"})
SPF = Finding("authentication.spf-pass", facts={"domain": "north.example"})


@dataclass(frozen=True)
class Result:
    listing: Listing
    evidence: Evidence
    judgement: Judgement
    ruling: Ruling
    shelf: MemoryLists

    @property
    def outcome(self) -> tuple[str, str]:
        return self.judgement.verdict.value, self.ruling.decision.value

    @property
    def tags(self) -> set[str]:
        return {*self.judgement.tags, *self.ruling.tags}


@dataclass(frozen=True)
class Case:
    """What a message shows; every field has the value of an ordinary message."""

    findings: tuple[Finding, ...] = ()
    sender: str = SENDER
    from_address: str = SENDER
    from_name: str = "Ada Byron"
    recipients: tuple[str, ...] = ("bob@south.example",)
    subject: str = "Quarterly figures"
    observables: Observables = field(default_factory=lambda: Observables(senders=(SENDER,), files=(BODY, FILE)))
    address: str | None = ADDRESS
    profile: Profile = Profile.BALANCED
    failed: tuple[Report, ...] = ()

    def against(self, *entries: Match, session_open: bool = False, engines_clear: bool = False) -> Result:
        shelf = MemoryLists(*entries)
        envelope = Envelope(self.sender, self.recipients, self.address)
        summary = MessageSummary(1, "", from_address=self.from_address, from_name=self.from_name, subject=self.subject)
        seen = Evidence((Report("tested", True, Status.FINISHED, 1.0, self.findings), *self.failed))
        shown = Shown(envelope, summary, self.observables, frozenset(EVERYTHING))
        lists = ActingLists(shelf)
        listing = lists.look_up(TENANT, shown, seen)
        lists.count(listing)
        reports = without_allowed_links(seen, listing, self.observables).reports
        evidence = Evidence((*reports, report_of(listing, 0.1)))
        judgement = judge(evidence, POLICY)
        rest_judgement = None
        if listing.allowed_files:
            rest = without_allowed_files(evidence, listing, self.observables.files, engines_clear=engines_clear)
            rest_judgement = judge(rest, POLICY)
        assignment = Assignment(TENANT, AssignedBy.REQUEST, self.profile)
        ruling = decide(
            judgement, assignment, POLICY, session_open=session_open, listing=listing, rest_judgement=rest_judgement
        )
        return Result(listing, evidence, judgement, ruling, shelf)
