"""What is in the statistics is what the lessons say: no message twice, and none that was taken back meanwhile."""

import pytest

from mailwarden.analysis.teacher import Teacher
from mailwarden.learning.lesson import Kind, learner_of
from rig.engines import Engines
from tests.integration.learning.school import ALL, ANN, BAD, School, keys_of, learned_by, message


async def test_a_message_that_is_given_again_is_not_learned_again(school: School, engines: Engines):
    north, _ = school.tenants
    for kind in (Kind.SPAM, Kind.SPAM, Kind.PHISHING):
        await school.teaching.report_contents(ALL, north, kind, ANN, contents=message(BAD, 1))
        await school.learning.work()
    assert learned_by(engines, learner_of(north, 1)) == (1, 0)
    standing = await school.teaching.standing(ALL, north)
    assert (standing.threats, standing.fine, standing.wanted) == (1, 0, 1)


async def test_a_report_that_is_taken_back_while_it_is_learned_is_in_no_statistics(
    school: School, engines: Engines, monkeypatch: pytest.MonkeyPatch
):
    north, _ = school.tenants
    stays, goes = await school.report_many(north, Kind.SPAM, BAD, 2)
    teach = Teacher.teach
    taught: list[str] = []

    async def teach_and_think_again(self: Teacher, raw: bytes, learner: str, *, threat: bool) -> bool:
        learned = await teach(self, raw, learner, threat=threat)
        if learner == learner_of(north, 1) and len(taught) == 1:
            await school.teaching.take_back(ALL, goes, ANN)
        taught.append(learner)
        return learned

    monkeypatch.setattr(Teacher, "teach", teach_and_think_again)
    await school.learning._trust()
    taught.clear()
    await school.learning.work()
    await school.learning.work()
    assert [lesson.uid for lesson in await school.teaching.reports(ALL, north)] == [stays]
    standing = await school.teaching.standing(ALL, north)
    assert (standing.threats, standing.rebuilding) == (1, False)
    assert learned_by(engines, standing.learner) == (1, 0)
    assert standing.generation == 2
    assert keys_of(engines, learner_of(north, 1)) == 0
