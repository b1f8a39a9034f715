"""What the people of a tenant say, learned by a real Rspamd for that tenant alone, taken back and forgotten."""

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest

from mailwarden.access.tenants import TenantStore
from mailwarden.analysis import teacher as teacher_module
from mailwarden.analysis.analyzer import Known
from mailwarden.analysis.analyzers.learned import LearnedAnalyzer
from mailwarden.analysis.analyzers.rspamd import RspamdAnalyzer
from mailwarden.analysis.collection import Content
from mailwarden.analysis.teacher import Teacher
from mailwarden.database.pool import Database
from mailwarden.errors import (
    EngineUnavailable,
    LearningFull,
    LessonNotFound,
    MessageNotFound,
    OtherMessage,
    TenantForbidden,
)
from mailwarden.guard.learning import Learning
from mailwarden.history.memory import MemoryHistoryStore
from mailwarden.history.relationship_store import RelationshipStore
from mailwarden.learning import store as store_module
from mailwarden.learning.contents import MAX_CONTENTS, ContentsSeal
from mailwarden.learning.lesson import ENOUGH, Kind, State, learner_of
from mailwarden.learning.senders import Senders
from mailwarden.learning.store import LessonStore
from mailwarden.learning.teaching import Teaching
from mailwarden.model.actor import Actor
from mailwarden.model.envelope import Envelope
from mailwarden.model.scope import Scope
from mailwarden.model.summary import MessageSummary
from rig.engines import Engines
from rig.rspamd import PASSWORD
from tests.samples.finished import finished_request

ALL = Scope.deployment()
ANN = Actor("ann")
SEAL = ContentsSeal(b"k" * 32)
ENVELOPE = Envelope("ada@north.example", ("bob@south.example",), "192.0.2.1", "mx.north.example")
BAD = [f"prize{letter}" for letter in "abcdefghijklmn"]
GOOD = [f"budget{letter}" for letter in "abcdefghijklmn"]
LITTLE = b"Subject: x\r\n\r\nhi\r\n"


def message(words: list[str], number: int) -> bytes:
    """Write a message of its own out of some words."""
    choice = random.Random(f"{words[0]} {number}")
    text = " ".join(choice.choices(words, k=60))
    head = f"From: ada@north.example\r\nTo: bob@south.example\r\nSubject: {choice.choice(words)} {number}\r\n"
    return f"{head}Message-ID: <{words[0]}{number}@north.example>\r\n\r\n{text}\r\n".encode()


@dataclass
class School:
    """Everything about learning, put together as abby and guard do."""

    teaching: Teaching
    learning: Learning
    lessons: LessonStore
    history: MemoryHistoryStore
    relationships: RelationshipStore
    rspamd: RspamdAnalyzer
    tenants: tuple[UUID, UUID]

    async def report_many(self, tenant: UUID, kind: Kind, words: list[str], count: int) -> list[UUID]:
        reports = [
            await self.teaching.report_contents(ALL, tenant, kind, ANN, contents=message(words, number))
            for number in range(count)
        ]
        return [report.uid for report in reports]

    async def found(self, tenant: UUID, raw: bytes) -> set[str]:
        """Return what is found in a message that comes to the tenant."""
        answer = await self.rspamd.examine(Content(raw), ENVELOPE, self.learning.learner(tenant))
        known = Known(ENVELOPE, MessageSummary(size=len(raw), sha256=""), {"rspamd": answer})
        return {finding.name for finding in LearnedAnalyzer().conclude(known)}


def teacher_of(engines: Engines) -> Teacher:
    return Teacher(engines.rspamd.controller_address, PASSWORD, engines.redis.url)


@pytest.fixture
async def school(engines: Engines, database_url: str) -> AsyncIterator[School]:
    database = Database(database_url)
    tenants = TenantStore(database)
    made = [(await tenants.create(ALL, name)).uid for name in ("North", "South")]
    lessons, history, relationships = LessonStore(database), MemoryHistoryStore(), RelationshipStore(database)
    learning = Learning(lessons, teacher_of(engines), SEAL, 365)
    teaching = Teaching(lessons, history, Senders(relationships), SEAL)
    rspamd = RspamdAnalyzer(engines.rspamd.address, 20.0, 8)
    yield School(teaching, learning, lessons, history, relationships, rspamd, (made[0], made[1]))
    await learning.stop()
    await database.close()


async def test_what_one_tenant_reports_is_learned_for_it_alone_taken_back_and_reset(school: School, engines: Engines):
    north, south = school.tenants
    bad = await school.report_many(north, Kind.PHISHING, BAD, ENOUGH)
    await school.report_many(north, Kind.FINE, GOOD, ENOUGH - 1)
    await school.learning.work()
    assert school.learning.learner(north) == "", "one good message too few: it says nothing yet"

    await school.teaching.report_contents(ALL, north, Kind.RELEASED, ANN, contents=message(GOOD, 999))
    await school.learning.work()
    standing = await school.teaching.standing(ALL, north)
    assert (standing.threats, standing.fine, standing.waiting, standing.speaks) == (ENOUGH, ENOUGH, 0, True)

    assert await school.found(north, message(BAD, 5_000)) == {"learned.threat-sure"}
    assert await school.found(north, message(GOOD, 5_000)) == {"learned.fine-sure"}
    assert await school.found(south, message(BAD, 5_000)) == set(), "another tenant has learned nothing"

    await school.teaching.take_back(ALL, bad[0], ANN)
    assert (await school.teaching.standing(ALL, north)).rebuilding
    assert school.learning.learner(north) == learner_of(north, 1), "the old statistics serve until the new are whole"
    await school.learning.work()
    standing = await school.teaching.standing(ALL, north)
    assert (standing.threats, standing.generation, standing.rebuilding) == (ENOUGH - 1, 2, False)
    assert school.learning.learner(north) == ""
    assert keys_of(engines, learner_of(north, 1)) == 0, "nothing of the old statistics stays"
    assert keys_of(engines, learner_of(north, 2)) > 0

    assert await school.teaching.reset(ALL, north, ANN) == 2 * ENOUGH - 1
    await school.learning.work()
    assert keys_of(engines, learner_of(north, 2)) == 0
    standing = await school.teaching.standing(ALL, north)
    assert (standing.threats, standing.fine, standing.generation) == (0, 0, 3)


def keys_of(engines: Engines, learner: str) -> int:
    import redis

    with redis.Redis.from_url(engines.redis.url) as connection:
        return sum(1 for _ in connection.scan_iter(match=f"RS{learner}*", count=1_000))


async def test_a_message_with_too_little_text_is_refused_and_asked_for_only_once(school: School):
    north, _ = school.tenants
    await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=LITTLE)
    await school.learning.work()
    assert [lesson.state for lesson in await school.teaching.reports(ALL, north)] == [State.REFUSED]
    assert await school.lessons.due(ALL, 10) == []


async def test_who_says_something_else_of_the_same_message_replaces_the_report(school: School):
    north, _ = school.tenants
    first = await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    await school.learning.work()
    second = await school.teaching.report_contents(ALL, north, Kind.FINE, ANN, contents=message(BAD, 1))
    await school.learning.work()
    assert [(each.uid, each.kind, each.state) for each in await school.teaching.reports(ALL, north)] == [
        (second.uid, Kind.FINE, State.LEARNED)
    ]
    standing = await school.teaching.standing(ALL, north)
    assert (standing.threats, standing.fine) == (0, 1)
    with pytest.raises(LessonNotFound):
        await school.teaching.take_back(ALL, first.uid, ANN)


async def test_lessons_wait_while_rspamd_is_away(school: School, engines: Engines):
    north, _ = school.tenants
    away = Learning(school.lessons, Teacher("tcp:127.0.0.1:9", PASSWORD, engines.redis.url), SEAL, 365)
    await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        await away.work()
    assert (await school.teaching.standing(ALL, north)).waiting == 1
    await away.stop()
    await school.learning.work()
    assert (await school.teaching.standing(ALL, north)).waiting == 0


async def test_nothing_is_taught_to_an_rspamd_that_keeps_learners_apart_nowhere(
    school: School, engines: Engines, monkeypatch: pytest.MonkeyPatch
):
    north, _ = school.tenants
    monkeypatch.setattr(teacher_module, "LEARNER_HEADER", "X-Not-Looked-At")
    await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    with pytest.raises(EngineUnavailable, match=r"classifier-bayes\.conf"):
        await school.learning.work()
    assert (await school.teaching.standing(ALL, north)).waiting == 1
    assert school.learning.learner(north) == ""


async def test_only_one_guard_teaches_at_a_time(school: School):
    north, _ = school.tenants
    await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    async with school.lessons.turn(ALL) as mine:
        assert mine
        await school.learning.work()
        assert (await school.teaching.standing(ALL, north)).waiting == 1
    await school.learning.work()
    assert (await school.teaching.standing(ALL, north)).waiting == 0


async def test_a_lesson_sealed_with_another_key_is_refused_and_holds_up_no_other(school: School):
    north, _ = school.tenants
    other = Teaching(school.lessons, school.history, Senders(school.relationships), ContentsSeal(b"o" * 32))
    await other.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 2))
    await school.learning.work()
    states = [lesson.state for lesson in await school.teaching.reports(ALL, north)]
    assert states == [State.LEARNED, State.REFUSED]


async def test_what_is_too_large_to_learn_from_is_noted_and_not_kept(school: School):
    north, _ = school.tenants
    large = message(BAD, 1) + b"x" * MAX_CONTENTS
    report = await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=large)
    assert (report.state, report.size) == (State.NOT_KEPT, len(large))


async def test_a_tenant_has_no_more_lessons_than_are_kept(school: School, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store_module, "MAX_LESSONS", 1)
    north, south = school.tenants
    await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 1))
    with pytest.raises(LearningFull):
        await school.teaching.report_contents(ALL, north, Kind.SPAM, ANN, contents=message(BAD, 2))
    await school.teaching.report_contents(ALL, south, Kind.SPAM, ANN, contents=message(BAD, 2))


async def test_a_message_of_history_is_reported_by_its_ggrid_with_its_own_bytes_alone(school: School):
    north, south = school.tenants
    raw = message(BAD, 1)
    request = finished_request(north)
    await school.history.save(ALL, [request])
    ggrid = str(request.ggrid)
    with pytest.raises(OtherMessage):
        await school.teaching.report_message(ALL, ggrid, Kind.SPAM, ANN, raw)
    with pytest.raises(MessageNotFound):
        await school.teaching.report_message(Scope.of(south), ggrid, Kind.SPAM, ANN)
    report = await school.teaching.report_message(Scope.of(north), ggrid, Kind.SPAM, ANN)
    assert (report.state, report.subject) == (State.NOT_KEPT, request.summary.subject)
    assert [each.uid for each in await school.teaching.reports_of(Scope.of(north), request.ggrid)] == [report.uid]
    assert await school.teaching.reports_of(Scope.of(south), request.ggrid) == []


@pytest.mark.parametrize("kind", list(Kind))
async def test_a_tenant_cannot_touch_what_another_learns(school: School, kind: Kind):
    north, south = school.tenants
    report = await school.teaching.report_contents(ALL, north, kind, ANN, contents=message(BAD, 1))
    foreign = Scope.of(south)
    with pytest.raises(TenantForbidden):
        await school.teaching.report_contents(foreign, north, kind, ANN, contents=message(BAD, 2))
    with pytest.raises(TenantForbidden):
        await school.teaching.reset(foreign, north, ANN)
    with pytest.raises(TenantForbidden):
        await school.teaching.standing(foreign, north)
    with pytest.raises(LessonNotFound):
        await school.teaching.take_back(foreign, report.uid, ANN)
    assert await school.teaching.reports(foreign, north) == []


async def test_a_reported_sender_is_forgotten_and_known_again_when_the_report_is_taken_back(school: School):
    north, _ = school.tenants
    first, second = finished_request(north), finished_request(north)
    await school.history.save(ALL, [first, second])
    fine = await school.teaching.report_message(ALL, str(first.ggrid), Kind.FINE, ANN)
    senders = Senders(school.relationships)
    pairs = [(north, pair) for pair in await senders.pairs(first)]
    assert {bond.messages for bond in (await school.relationships.known(ALL, pairs)).values()} == {1}
    # The same bytes stand in both, so the second report replaces the first.
    spam = await school.teaching.report_message(ALL, str(second.ggrid), Kind.SPAM, ANN)
    assert await school.relationships.known(ALL, pairs) == {}
    await school.teaching.take_back(ALL, spam.uid, ANN)
    assert fine.uid != spam.uid


async def test_what_a_report_forgot_is_given_back(school: School):
    north, _ = school.tenants
    request = finished_request(north)
    await school.history.save(ALL, [request])
    senders = Senders(school.relationships)
    await senders.trust(request)
    pairs = [(north, pair) for pair in await senders.pairs(request)]
    before = await school.relationships.known(ALL, pairs)
    spam = await school.teaching.report_message(ALL, str(request.ggrid), Kind.SPAM, ANN)
    assert await school.relationships.known(ALL, pairs) == {}
    await school.teaching.take_back(ALL, spam.uid, ANN)
    assert await school.relationships.known(ALL, pairs) == before


async def test_a_report_that_is_not_there_cannot_be_taken_back(school: School):
    with pytest.raises(LessonNotFound):
        await school.teaching.take_back(ALL, uuid4(), ANN)
