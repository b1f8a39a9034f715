"""What the people of a tenant say, learned by a real Rspamd for that tenant alone, taken back and forgotten."""

import pytest

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.crypto.keyring import KeyRing
from mailwarden.engines import rspamd_teacher as teacher_module
from mailwarden.engines.rspamd_teacher import RspamdTeacher
from mailwarden.errors import (
    EngineUnavailable,
)
from mailwarden.model.evidence import FailureKind
from mailwarden.user_reports.reports import MIN_REPORTS, ContentsSeal, Kind, TrainingState, classifier_of
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.training import TRUSTED, Training
from tests.integration.user_reports.training.training_setup import (
    ALL,
    ANN,
    BAD,
    GOOD,
    LITTLE,
    SEAL,
    TrainingSetup,
    keys_of,
    message,
    teacher_of,
)
from workshop.rig.engines import Engines
from workshop.rig.rspamd import PASSWORD
from workshop.rig.samples import spam_message


async def test_reports_train_only_their_tenant_and_can_be_withdrawn_and_reset(setup: TrainingSetup, engines: Engines):
    north, south = setup.tenants
    bad = await setup.report_many(north, Kind.PHISHING, BAD, MIN_REPORTS)
    await setup.report_many(north, Kind.GOOD, GOOD, MIN_REPORTS - 1)
    await setup.training.work()
    assert setup.training.classifier(north) == "", "one good message too few: it says nothing yet"

    await setup.report_service.report_contents(ALL, north, Kind.RELEASED, ANN, contents=message(GOOD, 999))
    await setup.training.work()
    standing = await setup.report_service.status(ALL, north)
    assert (standing.threats, standing.good, standing.waiting, standing.active) == (MIN_REPORTS, MIN_REPORTS, 0, True)

    assert await setup.found(north, message(BAD, 5_000)) == {"learned.bad-sure"}
    assert await setup.found(north, message(GOOD, 5_000)) == {"learned.good-sure"}
    assert await setup.found(south, message(BAD, 5_000)) == set(), "another tenant has learned nothing"

    await setup.report_service.withdraw(ALL, bad[0], ANN)
    assert (await setup.report_service.status(ALL, north)).rebuilding
    assert setup.training.classifier(north) == classifier_of(north, 1), (
        "the old statistics serve until the new are whole"
    )
    await setup.training.work()
    standing = await setup.report_service.status(ALL, north)
    assert (standing.threats, standing.generation, standing.rebuilding) == (MIN_REPORTS - 1, 2, False)
    assert setup.training.classifier(north) == ""
    assert keys_of(engines, classifier_of(north, 1)) == 0, "nothing of the old statistics stays"
    assert keys_of(engines, classifier_of(north, 2)) > 0

    assert await setup.report_service.reset(ALL, north, ANN) == 2 * MIN_REPORTS - 1
    await setup.training.work()
    assert keys_of(engines, classifier_of(north, 2)) == 0
    standing = await setup.report_service.status(ALL, north)
    assert (standing.threats, standing.good, standing.generation) == (0, 0, 3)


async def test_statistics_of_every_generation_that_was_passed_over_are_removed(setup: TrainingSetup, engines: Engines):
    north, _ = setup.tenants
    first, second, _ = await setup.report_many(north, Kind.SPAM, BAD, 3)
    await setup.training.work()
    assert keys_of(engines, classifier_of(north, 1)) > 0
    await setup.report_service.withdraw(ALL, first, ANN)
    await setup.report_service.withdraw(ALL, second, ANN)
    await setup.training.work()
    standing = await setup.report_service.status(ALL, north)
    assert (standing.generation, standing.threats) == (3, 1)
    assert keys_of(engines, classifier_of(north, 1)) == 0, "what was taken back is in no statistics any more"
    assert keys_of(engines, classifier_of(north, 3)) > 0


async def test_old_reports_are_deleted(setup: TrainingSetup, engines: Engines):
    north, _ = setup.tenants
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    await setup.training.expire()
    assert len(await setup.report_service.reports(ALL, north)) == 1
    hasty = Training(setup.report_store, teacher_of(engines), SEAL, 0)
    await hasty.expire()
    assert await setup.report_service.reports(ALL, north) == []
    await hasty.stop()


async def test_a_message_with_too_little_text_is_rejected_once(setup: TrainingSetup):
    north, _ = setup.tenants
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=LITTLE)
    await setup.training.work()
    assert [report.state for report in await setup.report_service.reports(ALL, north)] == [TrainingState.REJECTED]
    assert await setup.report_store.pending(ALL, 10) == []


@pytest.mark.parametrize("kind", [Kind.SPAM, Kind.GOOD])
async def test_a_message_that_rspamd_skips_is_rejected_and_blocks_no_other(setup: TrainingSetup, kind: Kind):
    north, south = setup.tenants
    for tenant in (north, south):
        await setup.report_service.report_contents(ALL, tenant, kind, ANN, contents=spam_message())
        await setup.report_service.report_contents(ALL, tenant, kind, ANN, contents=message(BAD, 1))
    await setup.training.work()
    for tenant in (north, south):
        reported = {report.size: report.state for report in await setup.report_service.reports(ALL, tenant)}
        assert reported == {len(spam_message()): TrainingState.REJECTED, len(message(BAD, 1)): TrainingState.TRAINED}
    assert await setup.report_store.pending(ALL, 10) == []


async def test_training_waits_while_rspamd_is_down(setup: TrainingSetup, engines: Engines):
    north, _ = setup.tenants
    away = Training(setup.report_store, RspamdTeacher("tcp:127.0.0.1:9", PASSWORD, engines.redis.url), SEAL, 365)
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        await away.work()
    assert (await setup.report_service.status(ALL, north)).waiting == 1
    await away.stop()
    await setup.training.work()
    assert (await setup.report_service.status(ALL, north)).waiting == 0


async def test_an_rspamd_without_per_tenant_statistics_is_not_trained(
    setup: TrainingSetup, engines: Engines, monkeypatch: pytest.MonkeyPatch
):
    north, _ = setup.tenants
    monkeypatch.setattr(teacher_module, "CLASSIFIER_HEADER", "X-Not-Looked-At")
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    with pytest.raises(EngineUnavailable, match=r"classifier-bayes\.conf"):
        await setup.training.work()
    assert (await setup.report_service.status(ALL, north)).waiting == 1
    assert setup.training.classifier(north) == ""


async def test_training_stops_when_per_tenant_statistics_disappear(
    setup: TrainingSetup, monkeypatch: pytest.MonkeyPatch
):
    """As after an upgrade that put another configuration in the place of ours, while guard goes on."""
    north, _ = setup.tenants
    await setup.report_many(north, Kind.SPAM, BAD, MIN_REPORTS)
    await setup.report_many(north, Kind.GOOD, GOOD, MIN_REPORTS)
    await setup.training.work()
    assert setup.training.classifier(north)
    monkeypatch.setattr(teacher_module, "CLASSIFIER_HEADER", "X-Not-Looked-At")
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, MIN_REPORTS))
    setup.training._check_at -= TRUSTED
    with pytest.raises(EngineUnavailable, match=r"classifier-bayes\.conf"):
        await setup.training.work()
    assert (await setup.report_service.status(ALL, north)).waiting == 1
    assert setup.training.classifier(north) == ""


async def test_learned_statistics_act_while_the_controller_is_down(
    setup: TrainingSetup, monkeypatch: pytest.MonkeyPatch
):
    north, _ = setup.tenants
    await setup.report_many(north, Kind.SPAM, BAD, MIN_REPORTS)
    await setup.report_many(north, Kind.GOOD, GOOD, MIN_REPORTS)
    await setup.training.work()

    async def be_away(_: RspamdTeacher) -> None:
        raise EngineFailed(FailureKind.UNREACHABLE, "Rspamd's controller cannot be reached.")

    monkeypatch.setattr(RspamdTeacher, "check", be_away)
    setup.training._check_at -= TRUSTED
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        await setup.training.work()
    assert setup.training.classifier(north) == classifier_of(north, 1)


async def test_only_one_guard_trains_at_a_time(setup: TrainingSetup):
    north, _ = setup.tenants
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    async with setup.report_store.training_lock(ALL) as mine:
        assert mine
        await setup.training.work()
        assert (await setup.report_service.status(ALL, north)).waiting == 1
    await setup.training.work()
    assert (await setup.report_service.status(ALL, north)).waiting == 0


async def test_a_report_with_a_lost_key_waits_and_blocks_no_other(setup: TrainingSetup):
    north, _ = setup.tenants
    other = ReportService(setup.report_store, setup.history, ContentsSeal(KeyRing.of(b"o" * 32)))
    await other.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 2))
    await setup.training.work()
    states = [report.state for report in await setup.report_service.reports(ALL, north)]
    assert states == [TrainingState.TRAINED, TrainingState.WAITING]


async def test_a_guard_with_another_key_loses_no_report(setup: TrainingSetup, engines: Engines):
    """Reports wait for the guard with their key; a report that Rspamd refuses is tried again by a rebuild."""
    north, _ = setup.tenants
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=LITTLE)
    mistaken = Training(setup.report_store, teacher_of(engines), ContentsSeal(KeyRing.of(b"o" * 32)), 365)
    await mistaken.work()
    await mistaken.stop()
    assert {report.state for report in await setup.report_service.reports(ALL, north)} == {TrainingState.WAITING}
    await setup.training.work()
    states = [report.state for report in await setup.report_service.reports(ALL, north)]
    assert states == [TrainingState.REJECTED, TrainingState.TRAINED]
    await setup.report_service.rebuild(ALL, north, ANN)
    await setup.training.work()
    states = [report.state for report in await setup.report_service.reports(ALL, north)]
    assert states == [TrainingState.REJECTED, TrainingState.TRAINED]
    assert not (await setup.report_service.status(ALL, north)).rebuilding
