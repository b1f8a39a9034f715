"""What is in the statistics is what the report_store say: no message twice, and none that was taken back meanwhile."""

import pytest

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.engines.rspamd_teacher import RspamdTeacher
from mailwarden.errors import EngineUnavailable
from mailwarden.model.evidence import FailureKind
from mailwarden.user_reports.reports import MIN_REPORTS, Kind, classifier_of
from tests.integration.user_reports.training.training_setup import (
    ALL,
    ANN,
    BAD,
    GOOD,
    TrainingSetup,
    full,
    keys_of,
    learned_by,
    message,
    teacher_of,
)
from workshop.rig.engines import Engines


async def test_a_message_that_is_given_again_is_not_learned_again(setup: TrainingSetup, engines: Engines):
    north, _ = setup.tenants
    for kind in (Kind.SPAM, Kind.SPAM, Kind.PHISHING):
        await setup.report_service.report_contents(ALL, north, kind, ANN, contents=message(BAD, 1))
        await setup.training.work()
    assert learned_by(engines, classifier_of(north, 1)) == (1, 0)
    standing = await setup.report_service.status(ALL, north)
    assert (standing.threats, standing.good, standing.wanted) == (1, 0, 1)


async def test_a_report_that_is_taken_back_while_it_is_learned_is_in_no_statistics(
    setup: TrainingSetup, engines: Engines, monkeypatch: pytest.MonkeyPatch
):
    north, _ = setup.tenants
    stays, goes = await setup.report_many(north, Kind.SPAM, BAD, 2)
    teach = RspamdTeacher.teach
    taught: list[str] = []

    async def teach_and_think_again(
        self: RspamdTeacher, raw: bytes, classifier: str, *, threat: bool, alone: bool = True
    ) -> bool:
        learned = await teach(self, raw, classifier, threat=threat, alone=alone)
        if classifier == classifier_of(north, 1) and len(taught) == 1:
            await setup.report_service.withdraw(ALL, goes, ANN)
        taught.append(classifier)
        return learned

    monkeypatch.setattr(RspamdTeacher, "teach", teach_and_think_again)
    await setup.training._trust()
    taught.clear()
    await setup.training.work()
    await setup.training.work()
    assert [report.uid for report in await setup.report_service.reports(ALL, north)] == [stays]
    standing = await setup.report_service.status(ALL, north)
    assert (standing.threats, standing.rebuilding) == (1, False)
    assert learned_by(engines, standing.classifier) == (1, 0)
    assert standing.generation == 2
    assert keys_of(engines, classifier_of(north, 1)) == 0


async def test_the_same_text_many_times_is_not_enough_to_speak(setup: TrainingSetup, engines: Engines):
    """Rspamd learns a text once, however many messages bring it, and says nothing before it has enough texts."""
    north, _ = setup.tenants
    await setup.report_many(north, Kind.SPAM, BAD, MIN_REPORTS - 50)
    await setup.report_many(north, Kind.GOOD, GOOD, MIN_REPORTS)
    for number in range(50):
        again = message(BAD, 1).replace(b"Message-ID: <", b"Message-ID: <%d." % number)
        await setup.report_service.report_contents(ALL, north, Kind.SPAM, ANN, contents=again)
    await setup.training.work()
    assert (await setup.report_service.status(ALL, north)).threats == MIN_REPORTS
    assert learned_by(engines, classifier_of(north, 1)) == (MIN_REPORTS - 50, MIN_REPORTS)
    assert await setup.found(north, message(BAD, 5_000)) == set()


async def test_a_message_that_a_full_redis_rejected_is_not_marked_learned(setup: TrainingSetup, engines: Engines):
    north, _ = setup.tenants
    await setup.training.work()
    await setup.report_many(north, Kind.SPAM, BAD, 2)
    with full(engines):
        await setup.training.work()
        with pytest.raises(EngineUnavailable, match="Redis takes nothing more"):
            await setup.training.work()
        assert setup.training._trusted, "what was learned before is still there, and goes on being asked for"
        standing = await setup.report_service.status(ALL, north)
        assert (standing.threats, standing.waiting) == (0, 2)
    await setup.training.work()
    standing = await setup.report_service.status(ALL, north)
    assert (standing.threats, standing.waiting) == (2, 0)
    assert learned_by(engines, classifier_of(north, 1)) == (2, 0)


async def test_a_message_whose_text_alone_was_noted_is_learned(engines: Engines, monkeypatch: pytest.MonkeyPatch):
    """In a failover Redis may reject the training message and accept, a moment later, that Rspamd knows its text."""
    teacher, ask, asked = teacher_of(engines), RspamdTeacher._ask, []

    async def lose_the_first(self: RspamdTeacher, raw: bytes, classifier: str, *, threat: bool) -> tuple[int, str]:
        answer = await ask(self, raw, classifier, threat=threat)
        if classifier == "failover-1":
            asked.append(answer[0])
            if len(asked) == 1:
                await self.forget(classifier)
        return answer

    monkeypatch.setattr(RspamdTeacher, "_ask", lose_the_first)
    try:
        assert await teacher.teach(message(BAD, 7_001), "failover-1", threat=True)
        assert asked == [200, 208, 200], "the third has a field that makes the text a new one"
        assert learned_by(engines, "failover-1") == (1, 0)
        assert await teacher.teach(message(BAD, 7_001), "failover-1", threat=True)
        assert learned_by(engines, "failover-1") == (1, 0), "a text that is known for certain is not learned again"
    finally:
        await teacher.forget("failover-1")
        await teacher.close()


async def test_a_message_that_was_learned_and_not_confirmed_is_not_learned_twice(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
):
    teacher, ask, asked = teacher_of(engines), RspamdTeacher._ask, []

    async def lose_the_answer(self: RspamdTeacher, raw: bytes, classifier: str, *, threat: bool) -> tuple[int, str]:
        answer = await ask(self, raw, classifier, threat=threat)
        if classifier == "failover-2":
            asked.append(answer[0])
            if len(asked) == 1:
                raise EngineFailed(FailureKind.TIMEOUT, "no answer")
        return answer

    monkeypatch.setattr(RspamdTeacher, "_ask", lose_the_answer)
    try:
        assert await teacher.teach(message(BAD, 7_002), "failover-2", threat=True)
        assert asked == [200]
        assert learned_by(engines, "failover-2") == (1, 0)
    finally:
        await teacher.forget("failover-2")
        await teacher.close()
