"""Two tenants, the case service composed as in guard, and reports in every format."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from uuid import UUID

from msgspec.structs import replace

from mailwarden.access.tenant_store import TenantStore
from mailwarden.analysis.message_values import summarize
from mailwarden.analysis.similarity import find_similarity
from mailwarden.analysis.view import View
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.history.store import HistoryStore
from mailwarden.message.parser import parse_message
from mailwarden.model.envelope import Envelope
from mailwarden.model.record import FinishedRequest, MessageSummary
from mailwarden.model.scope import Actor, Scope
from mailwarden.user_reports.cases.model import Added
from mailwarden.user_reports.cases.service import PER_DAY, CaseService, Submission
from mailwarden.user_reports.cases.store import CaseStore
from mailwarden.user_reports.mailbox.report_mail import read_report
from mailwarden.user_reports.reports import ContentsSeal, Kind
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore
from tests.samples import report_mails as mails
from tests.samples.finished import finished_request

ALL = Scope.deployment()
ANALYST = Actor("user:ada")
SEAL = ContentsSeal(KeyRing.of(b"k" * 32))


def summary_of(raw: bytes) -> MessageSummary:
    """Return the summary of a message as a worker makes it."""
    message = parse_message(raw)
    similarity = find_similarity(View(message, Envelope("", (mails.REPORTER,))))
    return replace(summarize(message), similarity=similarity)


@dataclass
class CaseSetup:
    service: CaseService
    store: CaseStore
    training: ReportStore
    history: HistoryStore
    north: UUID
    south: UUID
    scans: int = 0

    async def scan(self, raw: bytes) -> MessageSummary:
        self.scans += 1
        return summary_of(raw)

    async def received(self, tenant: UUID, raw: bytes = mails.ORIGINAL, recipient: str = "") -> FinishedRequest:
        """Store the message in the tenant's history, as guard would."""
        summary = summary_of(raw)
        today = datetime.now(UTC).date()
        [campaign] = await self.history.campaigns.assign(ALL, [(tenant, summary.similarity)], today)
        request = finished_request(
            tenant=tenant,
            envelope=Envelope("service@parcel.example", (recipient or mails.REPORTER,), "192.0.2.9", "mx.example"),
            summary=summary,
            campaign=campaign,
        )
        assert (await self.history.save(ALL, [request])).stored == 1
        return request

    async def report(
        self, raw: bytes, tenant: UUID | None = None, *, verified: bool = True, per_day: int = PER_DAY
    ) -> Added:
        [added] = await self.report_all(raw, tenant, verified=verified, per_day=per_day)
        return added

    async def report_all(
        self, raw: bytes, tenant: UUID | None = None, *, verified: bool = True, per_day: int = PER_DAY
    ) -> Sequence[Added]:
        submission = Submission(tenant or self.north, sha256(raw).digest(), read_report(raw), verified, Kind.PHISHING)
        return await self.service.submit(submission, self.scan, per_day)


async def open_setup(database: Database) -> CaseSetup:
    tenants = TenantStore(database)
    north = (await tenants.create(ALL, "North", ["acme.example"])).uid
    south = (await tenants.create(ALL, "South", ["south.example"])).uid
    history, training, store = open_history(database), ReportStore(database), CaseStore(database)
    service = CaseService(store, history, ReportService(training, history, SEAL), SEAL)
    return CaseSetup(service, store, training, history, north, south)
