"""Reports as people make them: kept, bounded, within their tenant, and undone with what they changed."""

from uuid import uuid4

import pytest

from mailwarden.errors import (
    LearningFull,
    MessageMismatch,
    MessageNotFound,
    ReportNotFound,
    TenantForbidden,
)
from mailwarden.history.senders import sender_contacts
from mailwarden.learning import store as store_module
from mailwarden.learning.reports import MAX_CONTENTS, Kind, TrainingState
from mailwarden.learning.service import count_sender
from mailwarden.model.scope import Scope
from tests.integration.learning.learning_setup import ALL, ANN, BAD, LearningSetup, message
from tests.samples.finished import finished_request


async def test_contents_too_large_to_learn_from_are_not_stored(setup: LearningSetup):
    north, _ = setup.tenants
    large = message(BAD, 1) + b"x" * MAX_CONTENTS
    report = await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=large)
    assert (report.state, report.size) == (TrainingState.NOT_KEPT, len(large))


async def test_the_number_of_reports_per_tenant_is_bounded(setup: LearningSetup, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "MAX_REPORTS", 1)
    north, south = setup.tenants
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    with pytest.raises(LearningFull):
        await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 2))
    await setup.report_service.report_contents(ALL, south, Kind.SPAM, ANN, contents=message(BAD, 2))


async def test_a_message_of_history_is_reported_by_its_ggrid_with_its_own_bytes_alone(setup: LearningSetup):
    north, south = setup.tenants
    raw = message(BAD, 1)
    request = finished_request(north)
    await setup.history.save(ALL, [request])
    ggrid = str(request.ggrid)
    with pytest.raises(MessageMismatch):
        await setup.report_service.report_message(ALL, ggrid, Kind.SPAM, ANN, raw)
    with pytest.raises(MessageNotFound):
        await setup.report_service.report_message(Scope.of(south), ggrid, Kind.SPAM, ANN)
    report = await setup.report_service.report_message(Scope.of(north), ggrid, Kind.SPAM, ANN)
    assert (report.state, report.subject) == (TrainingState.NOT_KEPT, request.summary.subject)
    assert [each.uid for each in await setup.report_service.reports_of(Scope.of(north), request.ggrid)] == [report.uid]
    assert await setup.report_service.reports_of(Scope.of(south), request.ggrid) == []


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_tenant_cannot_change_reports_of_another(setup: LearningSetup, kind: Kind):
    north, south = setup.tenants
    report = await setup.report_service.report_contents(ALL, north, kind, ANN, contents=message(BAD, 1))
    foreign = Scope.of(south)
    with pytest.raises(TenantForbidden):
        await setup.report_service.report_contents(foreign, north, kind, ANN, contents=message(BAD, 2))
    with pytest.raises(TenantForbidden):
        await setup.report_service.reset(foreign, north, ANN)
    with pytest.raises(TenantForbidden):
        await setup.report_service.status(foreign, north)
    with pytest.raises(ReportNotFound):
        await setup.report_service.withdraw(foreign, report.uid, ANN)
    assert await setup.report_service.reports(foreign, north) == []


async def test_a_reported_sender_is_forgotten_and_known_again_when_the_report_is_taken_back(setup: LearningSetup):
    north, _ = setup.tenants
    first, second = finished_request(north), finished_request(north)
    await setup.history.save(ALL, [first, second])
    fine = await setup.report_service.report_message(ALL, str(first.ggrid), Kind.FINE, ANN)
    pairs = [(north, pair) for pair in sender_contacts(first, await setup.history.senders.salt(ALL))]
    assert {stats.messages for stats in (await setup.history.senders.stats(ALL, pairs)).values()} == {1}
    # The same bytes stand in both, so the second report replaces the first.
    spam = await setup.report_service.report_message(ALL, str(second.ggrid), Kind.SPAM, ANN)
    assert await setup.history.senders.stats(ALL, pairs) == {}
    await setup.report_service.withdraw(ALL, spam.uid, ANN)
    assert fine.uid != spam.uid


async def test_withdrawing_a_report_restores_the_sender_count(setup: LearningSetup):
    north, _ = setup.tenants
    request = finished_request(north)
    await setup.history.save(ALL, [request])
    await count_sender(setup.history.senders, request)
    pairs = [(north, pair) for pair in sender_contacts(request, await setup.history.senders.salt(ALL))]
    before = await setup.history.senders.stats(ALL, pairs)
    spam = await setup.report_service.report_message(ALL, str(request.ggrid), Kind.SPAM, ANN)
    assert await setup.history.senders.stats(ALL, pairs) == {}
    await setup.report_service.withdraw(ALL, spam.uid, ANN)
    assert await setup.history.senders.stats(ALL, pairs) == before


async def test_a_report_that_is_not_there_cannot_be_taken_back(setup: LearningSetup):
    with pytest.raises(ReportNotFound):
        await setup.report_service.withdraw(ALL, uuid4(), ANN)
