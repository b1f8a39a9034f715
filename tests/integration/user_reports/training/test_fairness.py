"""Tenants learn in turns: none waits for all that another has to learn, or for what cannot be learned of another's."""

import pytest

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.rspamd_teacher import RspamdTeacher
from mailwarden.model.evidence import FailureKind
from mailwarden.user_reports.reports import Kind, TrainingState
from tests.integration.user_reports.training.training_setup import ALL, BAD, GOOD, TrainingSetup, message

BROKEN = EngineFailed(FailureKind.UNFINISHED, "Rspamd's controller broke off.")


async def test_a_tenant_with_much_to_learn_does_not_go_before_all_others(setup: TrainingSetup):
    north, south = setup.tenants
    await setup.report_many(north, Kind.SPAM, BAD, 12)
    await setup.report_many(south, Kind.GOOD, GOOD, 2)
    due = await setup.report_store.pending(ALL, 6)
    assert [report.tenant for report in due] == [north, south, north, south, north, north]
    assert [report.uid for report in await setup.report_store.pending(ALL, 50) if report.tenant == north] == [
        report.uid for report in reversed(await setup.report_service.reports(ALL, north))
    ], "the oldest of each first"


async def test_a_message_that_breaks_rspamd_holds_up_no_other_tenant(
    setup: TrainingSetup, monkeypatch: pytest.MonkeyPatch
):
    north, south = setup.tenants
    await setup.training.work()
    await setup.report_many(north, Kind.SPAM, BAD, 3)
    await setup.report_many(south, Kind.GOOD, GOOD, 3)
    teach = RspamdTeacher.teach

    async def break_on_north(
        self: RspamdTeacher, raw: bytes, classifier: str, *, threat: bool, alone: bool = True
    ) -> bool:
        if threat:
            raise BROKEN
        return await teach(self, raw, classifier, threat=threat, alone=alone)

    monkeypatch.setattr(RspamdTeacher, "teach", break_on_north)
    await setup.training.work()
    assert (await setup.report_service.status(ALL, north)).waiting == 3
    standing = await setup.report_service.status(ALL, south)
    assert (standing.good, standing.waiting) == (3, 0)


@pytest.mark.parametrize("how", ["an error", "silence"])
async def test_a_message_that_breaks_rspamd_is_refused_and_its_tenant_learns_on(
    setup: TrainingSetup, monkeypatch: pytest.MonkeyPatch, how: str
):
    north, _ = setup.tenants
    first, *_ = await setup.report_many(north, Kind.SPAM, BAD, 3)
    ask = RspamdTeacher._ask
    breaking = message(BAD, 0)

    async def break_on_one(self: RspamdTeacher, raw: bytes, classifier: str, *, threat: bool) -> tuple[int, str]:
        if raw != breaking:
            return await ask(self, raw, classifier, threat=threat)
        if how == "silence":
            raise EngineFailed(FailureKind.TIMEOUT, "Rspamd's controller did not answer.")
        return 500, "broken"

    monkeypatch.setattr(RspamdTeacher, "_ask", break_on_one)
    await setup.training.work()
    standing = await setup.report_service.status(ALL, north)
    assert (standing.threats, standing.waiting) == (2, 0)
    refused = [
        report.uid
        for report in await setup.report_service.reports(ALL, north)
        if report.state is TrainingState.REJECTED
    ]
    assert refused == [first]


async def test_an_rspamd_that_is_down_is_not_asked_for_every_tenant(
    setup: TrainingSetup, monkeypatch: pytest.MonkeyPatch
):
    north, south = setup.tenants
    await setup.training.work()
    await setup.report_many(north, Kind.SPAM, BAD, 3)
    await setup.report_many(south, Kind.GOOD, GOOD, 3)
    asked: list[str] = []

    async def be_away(self: RspamdTeacher, raw: bytes, classifier: str, *, threat: bool, alone: bool = True) -> bool:
        asked.append(classifier)
        raise BROKEN

    monkeypatch.setattr(RspamdTeacher, "teach", be_away)
    await setup.training.work()
    assert len(asked) == 2
