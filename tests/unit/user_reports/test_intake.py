"""Mail to a report address: taken if the reporter was checked, and deferred otherwise."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from msgspec.structs import replace

from mailwarden.crypto.keyring import KeyRing
from mailwarden.guard.sources.smtp import Smtp
from mailwarden.guard.sources.smtp_delivery import Delivery
from mailwarden.model.envelope import Envelope
from mailwarden.model.evidence import AMBIGUOUS_SENDER, UNVERIFIED_SENDER, Evidence, Finding, Report, Status
from mailwarden.model.listing import Listing
from mailwarden.model.observables import Observables
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.quarantine.result_headers import ResultSeal
from mailwarden.scan.admission import Admission
from mailwarden.scan.list_lookup import ListLookupResult
from mailwarden.scan.shared_answer import Part
from mailwarden.serving.spool import Spooled
from mailwarden.smtp.commands import Recipient, Rejection, Sender
from mailwarden.smtp.session import Transaction
from mailwarden.smtp.settings import Smtp as Settings
from mailwarden.telemetry.metrics import Metrics
from mailwarden.user_reports.cases.model import Added, Stored
from mailwarden.user_reports.cases.service import Scan, Submission
from mailwarden.user_reports.intake import ReportIntake
from mailwarden.user_reports.reports import Kind
from mailwarden.user_reports.settings import ReportMailboxes
from tests.samples import report_mails as mails
from tests.samples.finished import finished_request

TENANT, OTHER = UUID(int=1), UUID(int=2)
ALIGNED, UNALIGNED = "authentication.aligned", "authentication.unaligned"


class Service:
    """Remembers what it is given, and answers what it is told to."""

    def __init__(self, stored: Stored = Stored.OPENED) -> None:
        self.submissions: list[Submission] = []
        self._stored = stored

    async def submit(self, submission: Submission, scan: Scan, per_day: int) -> Sequence[Added]:
        self.submissions.append(submission)
        return [Added(self._stored)]


class Judged:
    def __init__(self, part: Part) -> None:
        self._part = part

    async def judge(self, _: object) -> list[Part]:
        return [self._part]


class NoTokens:
    async def claim(self, *_: object) -> None:
        return None


class Directory:
    def assign(self, address: str) -> Assignment:
        owner = TENANT if address.endswith("@acme.example") else OTHER
        return Assignment(owner, AssignedBy.DOMAINS)


def intake_of(service: Service) -> ReportIntake:
    return ReportIntake(
        ReportMailboxes("reports@acme.example", {mails.MAILBOX: "phishing"}),
        cast("Any", service),
        tenants=cast("Any", Directory()),
        admission=cast("Any", None),
        processing=cast("Any", None),
        metrics=Metrics(),
    )


def examined_of(*findings: str, incomplete: bool = False, reporter: str = mails.REPORTER) -> Part:
    evidence = Evidence((Report("authentication", True, Status.FINISHED, 1.0, tuple(map(Finding, findings))),))
    finished = finished_request(TENANT, evidence=evidence, envelope=Envelope(reporter, (mails.MAILBOX,)))
    finished = replace(
        finished,
        summary=replace(finished.summary, from_address=reporter),
        judgement=replace(finished.judgement, incomplete=incomplete),
    )
    compared = ListLookupResult(finished.envelope, Observables(senders=(reporter,)), Listing(), evidence)
    return Part(finished, compared, stored=True)


@pytest.mark.parametrize(
    "part",
    [examined_of(incomplete=True), examined_of(UNALIGNED, UNVERIFIED_SENDER)],
    ids=["engine down", "DNS down"],
)
async def test_a_reporter_who_could_not_be_checked_gets_451(part: Part) -> None:
    service = Service()
    with pytest.raises(Rejection) as rejected:
        await intake_of(service).store(part, Kind.PHISHING, Spooled.of(mails.attached()))
    assert rejected.value.reply.startswith("451 4.7.1")
    assert service.submissions == []


@pytest.mark.parametrize(
    ("part", "raw", "verified"),
    [
        (examined_of(ALIGNED, incomplete=True), mails.attached(), True),
        (examined_of(UNALIGNED), mails.attached(), False),
        (
            examined_of(incomplete=True, reporter="eve@other.example"),
            mails.attached(sender="eve@other.example"),
            False,
        ),
    ],
    ids=["aligned though incomplete", "not aligned", "of another domain"],
)
async def test_a_reporter_who_was_checked_is_stored(part: Part, raw: bytes, verified: bool) -> None:
    service = Service()
    await intake_of(service).store(part, Kind.PHISHING, Spooled.of(raw))
    assert [each.verified for each in service.submissions] == [verified]


@pytest.mark.parametrize(
    ("part", "sender", "verified"),
    [
        (examined_of(UNALIGNED), mails.REPORTER, True),
        (examined_of(UNALIGNED, AMBIGUOUS_SENDER), mails.REPORTER, False),
        (examined_of(UNALIGNED), "bob@acme.example", False),
        (examined_of(UNALIGNED, reporter="eve@other.example"), "eve@other.example", False),
    ],
    ids=["own domain", "ambiguous", "another From for our reader", "another tenant"],
)
async def test_a_mailbox_of_authenticated_senders_proves_from(part: Part, sender: str, verified: bool) -> None:
    service = Service()
    raw = Spooled.of(mails.attached(sender=sender))
    await intake_of(service).store(part, Kind.PHISHING, raw, authenticated=True)
    assert [each.verified for each in service.submissions] == [verified]


ABSENT = mails.head("Out of office", "Auto-Submitted: auto-replied") + b"I am away.\r\n"


@pytest.mark.parametrize(
    ("findings", "stored", "raw", "before_queue", "after_queue"),
    [
        (ALIGNED, Stored.OPENED, mails.attached(), "250 2.0.0", "250 2.0.0"),
        (ALIGNED, Stored.LIMITED, mails.attached(), "550 5.7.1", "451 4.7.1"),
        (UNALIGNED, Stored.LIMITED, mails.attached(), "550 5.7.1", "250 2.0.0"),
        (ALIGNED, Stored.OPENED, ABSENT, "550 5.7.1", "250 2.0.0"),
    ],
    ids=["stored", "verified beyond the bound", "unverified beyond the bound", "automatic"],
)
async def test_the_reply_says_whether_the_report_is_stored(
    findings: str, stored: Stored, raw: bytes, before_queue: str, after_queue: str
) -> None:
    for mode, code in (("beforeQueue", before_queue), ("afterQueue", after_queue)):
        reply = await reply_of(examined_of(findings), Service(stored), raw, mode)
        assert reply[:9] == code
        assert ("not stored" in reply) == (stored is Stored.LIMITED or raw == ABSENT)


async def reply_of(part: Part, service: Service, raw: bytes, mode: str) -> str:
    """Return the reply to a mail that has the report address as its only recipient."""
    source = Smtp(
        Settings(mode=cast("Any", mode)),
        admission=Admission(maximum=1, threshold=1, max_delay=0.0, max_bytes=100_000),
        processing=cast("Any", Judged(part)),
        tenants=cast("Any", None),
        delivery=Delivery(cast("Any", None), ResultSeal(KeyRing.of(b"k" * 32)), None, Metrics()),
        tokens=cast("Any", NoTokens()),
        spool=Path(),
        reports=intake_of(service),
    )
    transaction, recipient = Transaction(), Recipient(mails.MAILBOX)
    transaction.sender = Sender(mails.REPORTER)
    transaction.recipients.append(recipient)
    transaction.assigned[recipient.address] = Assignment(TENANT, AssignedBy.DOMAINS)
    transaction.tenants[TENANT] = [recipient]
    return await source.take(transaction, Spooled.of(raw))
