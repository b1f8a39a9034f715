"""What reports say about who writes to whom: it holds as long as the report does, however often it is said."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from mailwarden.access.tenant_store import TenantStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.history.opening import open_history
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.record import FinishedRequest
from mailwarden.model.scope import Actor, Scope
from mailwarden.senders.lookup import account_contacts, sender_contacts
from mailwarden.senders.model import ContactCount, ContactRecord, SenderStore
from mailwarden.user_reports.reports import ContentsSeal, Kind
from mailwarden.user_reports.service import ReportService, count_sender, delete_sender, undo_sender_change
from mailwarden.user_reports.store import ReportStore
from tests.samples.finished import finished_request

ALL = Scope.deployment()
ANN = Actor("ann")


@dataclass
class ReportedSender:
    """A tenant with two counted messages of one sender."""

    report_service: ReportService
    contacts: SenderStore
    request: FinishedRequest

    async def say(self, kind: Kind) -> None:
        await self.report_service.report_message(ALL, str(self.request.ggrid), kind, ANN)

    async def known(self) -> int:
        """Return how many messages of the sender are counted."""
        asked = [(self.request.tenant, pair) for pair in sender_contacts(self.request, await self.contacts.salt(ALL))]
        return max((stats.messages for stats in (await self.contacts.stats(ALL, asked)).values()), default=0)

    async def take_back(self) -> None:
        (report,) = await self.report_service.reports(ALL, self.request.tenant)
        await self.report_service.withdraw(ALL, report.uid, ANN)


@pytest.fixture
async def reported_sender(database: Database) -> ReportedSender:
    tenant = (await TenantStore(database).create(ALL, "North")).uid
    history = open_history(database)
    request = finished_request(tenant)
    await history.save(ALL, [request])
    for _ in range(2):
        await count_sender(history.senders, request)
    return ReportedSender(
        ReportService(ReportStore(database), history, ContentsSeal(KeyRing.of(b"k" * 32))),
        history.senders,
        request,
    )


async def test_repeated_reports_keep_the_sender_forgotten(reported_sender: ReportedSender):
    for kind in (Kind.SPAM, Kind.PHISHING, Kind.SPAM):
        await reported_sender.say(kind)
        assert await reported_sender.known() == 0
    await reported_sender.take_back()
    assert await reported_sender.known() == 2


async def test_repeated_good_reports_count_the_sender_once(reported_sender: ReportedSender):
    for kind in (Kind.GOOD, Kind.RELEASED, Kind.GOOD):
        await reported_sender.say(kind)
        assert await reported_sender.known() == 3
    await reported_sender.take_back()
    assert await reported_sender.known() == 2


async def test_a_changed_report_undoes_the_first(reported_sender: ReportedSender):
    await reported_sender.say(Kind.SPAM)
    await reported_sender.say(Kind.GOOD)
    assert await reported_sender.known() == 3
    await reported_sender.say(Kind.SPAM)
    assert await reported_sender.known() == 0
    await reported_sender.take_back()
    assert await reported_sender.known() == 2


async def test_a_threat_forgets_the_new_account_of_its_message_until_it_is_withdrawn(reported_sender: ReportedSender):
    senders, tenant = reported_sender.contacts, reported_sender.request.tenant
    found = Finding("fraud.bank-account", facts={"account": "DE44500105175407324931"})
    evidence = Evidence((Report("fraud", True, Status.FINISHED, 1.0, (found,)),))
    request = replace(reported_sender.request, evidence=evidence)
    accounts = account_contacts(request, await senders.salt(ALL))

    async def count() -> int:
        return len(await senders.stats(ALL, [(tenant, each) for each in accounts]))

    today = datetime.now(UTC).date()
    await senders.add(ALL, [ContactCount(tenant, each, today, 1) for each in accounts])
    change = await delete_sender(senders, request)
    assert await count() == 0
    await undo_sender_change(senders, tenant, change)
    assert await count() == 2
    old = today - timedelta(days=30)
    await senders.restore(ALL, tenant, [ContactRecord(each, 1, 1, old, old) for each in accounts])
    await delete_sender(senders, request)
    assert await count() == 2
