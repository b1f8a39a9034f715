"""Reports as people make them: bounded, and undone with what they changed."""

import pytest

from mailwarden.errors import (
    TrainingFull,
)
from mailwarden.senders.lookup import sender_contacts
from mailwarden.user_reports import store as store_module
from mailwarden.user_reports.reports import Kind
from mailwarden.user_reports.service import count_sender
from tests.integration.user_reports.training.training_setup import ALL, ANN, BAD, TrainingSetup, message
from tests.samples.finished import finished_request


async def test_the_number_of_reports_per_tenant_is_bounded(setup: TrainingSetup, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "MAX_REPORTS", 1)
    north, south = setup.tenants
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    with pytest.raises(TrainingFull):
        await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 2))
    await setup.report_service.report_contents(ALL, south, Kind.SPAM, ANN, contents=message(BAD, 2))


async def test_a_reported_sender_is_forgotten_and_known_again_when_the_report_is_taken_back(setup: TrainingSetup):
    north, _ = setup.tenants
    first, second = finished_request(north), finished_request(north)
    await setup.history.save(ALL, [first, second])
    good = await setup.report_service.report_message(ALL, str(first.ggrid), Kind.GOOD, ANN)
    pairs = [(north, pair) for pair in sender_contacts(first, await setup.history.senders.salt(ALL))]
    assert {stats.messages for stats in (await setup.history.senders.stats(ALL, pairs)).values()} == {1}
    # The same bytes stand in both, so the second report replaces the first.
    spam = await setup.report_service.report_message(ALL, str(second.ggrid), Kind.SPAM, ANN)
    assert await setup.history.senders.stats(ALL, pairs) == {}
    await setup.report_service.withdraw(ALL, spam.uid, ANN)
    assert good.uid != spam.uid


async def test_withdrawing_a_report_restores_the_sender_count(setup: TrainingSetup):
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
