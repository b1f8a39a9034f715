"""Good mail as firms get it is delivered: receipts, resets, dunning, newsletters, talk about phishing, short notes.

Each message is judged as guard does, with the word of authentication put in place of Rspamd's. The
messages are our own.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from uuid import UUID

import pytest

from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import Evidence, Fact, Finding, Report, Status
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment, Profile
from mailwarden.pipeline.worker_steps import Job, run_steps
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import load_policy
from tests.tables import every

MESSAGES = sorted(Path(__file__).parent.glob("*.eml"))
KNOWN_HERE = "relationship.known-domain"  # the tenant has had good mail of these domains for weeks
PROVED = (
    "authentication.aligned",
    "authentication.spf-pass",
    "authentication.dkim-pass",
    "authentication.dmarc-pass",
    KNOWN_HERE,
)
UNPROVED = (
    "authentication.unaligned",
    "authentication.spf-none",
    "authentication.dkim-none",
    "authentication.dmarc-none",
)
# A discussion list and a survey, which lead to hosts of others.
SUSPICIOUS = {"googlegroup", "survey"}
# Advertising and a charge without a link: from a domain that is in no list and that the deployment does not know,
# these are held. Unwanted mail reads the same.
HELD_FROM_UNKNOWN_DOMAINS = {
    "cart-abandoned-esp",
    "casino-legal",
    "invoice-renewal-nolink",
    "marketing-discount",
    "marketing-discount-esp",
    "newsletter-de-esp",
    "newsletter-en-esp-nohdr",
    "newsletter-pictures",
    "newsletter-text-2002",
    "partner-esp-brand",
}
# A charge, a telephone number and no link: callback frauds read the same, so its sender must be known.
OF_THE_KNOWN = {"invoice-renewal-nolink"}
NEWSLETTERS = [path for path in MESSAGES if b"List-Unsubscribe:" in path.read_bytes()]
ADDRESS = re.compile(r"[\w.+-]+@[\w.-]+")


def field(raw: bytes, name: str) -> str:
    """Return the last address in a header field, or "" where it has none."""
    found = re.search(rf"^{name}:(.*)$", raw.decode("utf-8"), re.IGNORECASE | re.MULTILINE)
    return (ADDRESS.findall(found[1]) or [""])[-1] if found else ""


@cache
def examined(path: Path) -> tuple[Report, ...]:
    raw = path.read_bytes()
    sender = field(raw, "Return-Path") if b"Return-Path:" in raw else field(raw, "From")
    envelope = Envelope(sender, (field(raw, "To"),), "203.0.113.77", "mail.example")
    return tuple(frame.report for frame in run_steps(Job(raw, envelope=envelope)))


def declared(path: Path) -> tuple[str, ...]:
    """Return what Rspamd says of headers for many readers."""
    raw = path.read_bytes()
    reported = {b"List-Unsubscribe:": "rspamd.unsubscribe-header", b"List-Id:": "rspamd.discussion-list"}
    return tuple(name for text, name in reported.items() if text in raw)


def stem_of(path: Path) -> str:
    return path.stem


def judged(reports: Iterable[Report], said: Iterable[str]) -> Judgement:
    facts: dict[str, Fact] = {"domain": "sender.example", "by": "DKIM"}
    other = Report("authentication", True, Status.FINISHED, 1.0, tuple(Finding(name, facts=facts) for name in said))
    return judge(Evidence((*reports, other)), load_policy())


def decided(judgement: Judgement, profile: Profile = Profile.BALANCED) -> Decision:
    return decide(judgement, Assignment(UUID(int=1), AssignedBy.REQUEST, profile), load_policy()).decision


def test_an_authenticated_sender_is_heard():
    def check(path):
        reports = examined(path)
        known = ("relationship.known-sender",) if path.stem in OF_THE_KNOWN else ()
        judgement = judged(reports, (*PROVED, *declared(path), *known))
        assert decided(judgement) is Decision.DELIVER, judgement.summary
        expected = {Verdict.SUSPICIOUS} if path.stem in SUSPICIOUS else {Verdict.CLEAN, Verdict.BULK}
        assert judgement.verdict in expected, judgement.summary

    every(MESSAGES, check, stem_of)


def test_an_authenticated_sender_with_an_unknown_domain_is_heard():
    def check(path):
        reports = examined(path)
        said = (name for name in PROVED if name != KNOWN_HERE)
        judgement = judged(reports, (*said, *declared(path)))
        expected = Decision.QUARANTINE if path.stem in HELD_FROM_UNKNOWN_DOMAINS else Decision.DELIVER
        assert decided(judgement) is expected, judgement.summary

    every(MESSAGES, check, stem_of)


@pytest.mark.parametrize(
    ("name", "verdict"), [("short-call", Verdict.CLEAN), ("invoice-renewal-nolink", Verdict.CLEAN)]
)
def test_a_known_sender_may_call_and_charge(name, verdict):
    reports = examined(Path(__file__).with_name(f"{name}.eml"))
    assert judged(reports, (*PROVED, "relationship.known-sender")).verdict is verdict
    assert judged(reports, (*UNPROVED, "relationship.known-sender")).verdict is judged(reports, UNPROVED).verdict
    answered_elsewhere = judged(reports, (*PROVED, "relationship.known-sender", "sender.reply-to-other-domain"))
    assert answered_elsewhere.points[Verdict.FRAUD] >= judged(reports, PROVED).points[Verdict.FRAUD]


def test_a_popular_sender_may_charge_and_name_its_telephone():
    reports = examined(Path(__file__).with_name("invoice-renewal-nolink.eml"))
    popular = judged(reports, (*PROVED, "domains.sender-popular"))
    assert decided(popular) is Decision.DELIVER
    assert decided(judged(reports, (*UNPROVED, "domains.sender-popular"))) is decided(judged(reports, UNPROVED))
    pressing = judged(reports, (*PROVED, "domains.sender-popular", "fraud.call-request-often"))
    assert decided(pressing) is Decision.QUARANTINE, "all users can have such a service send an invoice"


def test_a_known_service_that_presses_for_a_call_is_not_heard():
    reports = examined(Path(__file__).with_name("invoice-renewal-nolink.eml"))
    pressing = judged(reports, (*PROVED, "fraud.call-request-often"))
    known = judged(reports, (*PROVED, "fraud.call-request-often", "relationship.known-sender"))
    assert decided(known) is Decision.QUARANTINE, "anybody can have such a service send an invoice"
    assert known.points[Verdict.FRAUD] == pressing.points[Verdict.FRAUD]


def test_a_newsletter_that_declares_itself_is_delivered_without_any_proof():
    def check(path):
        judgement = judged(examined(path), (*UNPROVED, *declared(path), KNOWN_HERE))
        assert decided(judgement) is Decision.DELIVER, judgement.summary

    every(NEWSLETTERS, check, stem_of)


@pytest.mark.parametrize(
    "hard", ["html.credential-form", "rspamd.known-phishing-url", "clamav.malware", "yara.phishing"]
)
def test_a_conclusive_finding_convicts_good_mail(hard):
    def check(path):
        judgement = judged(examined(path), (*PROVED, "rspamd.unsubscribe-header", hard))
        assert decided(judgement) is Decision.QUARANTINE

    every(MESSAGES, check, stem_of)


def test_the_first_message_of_an_honest_domain_is_delivered():
    def check(path):
        reports = examined(path)
        new = ("relationship.first-contact", "relationship.first-seen-domain")
        judgement = judged(reports, (*PROVED, *declared(path), *new))
        usual = judged(reports, (*PROVED, *declared(path), new[0]))
        assert decided(judgement) is decided(usual), judgement.summary

    # The own domain is never new.
    every([path for path in MESSAGES if not Evidence(examined(path)).has("sender.own-domain")], check, stem_of)
