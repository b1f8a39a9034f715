"""Trains the engine that learns in the background, and knows which learner's statistics a tenant's messages use.

One guard of a deployment teaches at a time. A lesson that cannot be learned now waits; nothing of a scan waits for it.
"""

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from mailwarden.analysis.analyzer import EngineFailed
from mailwarden.analysis.engines.engine import Teacher
from mailwarden.crypto.keyring import BrokenSeal, UnknownKey
from mailwarden.errors import EngineUnavailable
from mailwarden.learning.contents import ContentsSeal
from mailwarden.learning.reports import PendingReport, learner_of
from mailwarden.learning.store import ReportStore
from mailwarden.model.evidence import FailureKind
from mailwarden.model.scope import Scope
from mailwarden.telemetry.chore import Chore
from mailwarden.telemetry.logs import get_logger

PERIOD, HOUR = 2.0, 3_600.0
TRUSTED = HOUR  # between two checks that the engine keeps learners apart: its configuration may change
ROUND = 50  # lessons between two looks at who speaks
FAILURES = 2  # tenants whose lessons fail: with one tenant it may be the message, with two it is the engine
_ALL = Scope.deployment()
_log = get_logger("guard.learning")


class Learning:
    """The learners that have something to say, looked up without waiting; and the chore that teaches them."""

    def __init__(self, store: ReportStore, teacher: Teacher, seal: ContentsSeal, retention_days: int) -> None:
        self._store = store
        self._teacher = teacher
        self._seal = seal
        self._retention = timedelta(days=retention_days)
        self._learners: Mapping[UUID, str] = {}
        self._trusted = False  # to keep what one tenant teaches from another
        self._check_at = 0.0
        self._chores = (
            Chore("learning", self.work, PERIOD),
            Chore("lessons too old", self.expire, HOUR, quiet=True),
        )

    def learner(self, tenant: UUID) -> str:
        """Return whose statistics the tenant's messages go by; "" where too little is learned."""
        return self._learners.get(tenant, "")

    def start(self) -> None:
        for chore in self._chores:
            chore.start(rested=True)

    async def stop(self) -> None:
        for chore in self._chores:
            await chore.stop()
        await self._teacher.close()

    async def work(self) -> None:
        """Teach what is due, one round after the other, and take up what came of it."""
        await self._look()
        if not self._trusted or time.monotonic() >= self._check_at:
            await self._trust()
        async with self._store.training_lock(_ALL) as mine:
            while mine and await self._round():
                await self._look()

    async def _trust(self) -> None:
        """Check that the engine keeps learners apart; until then nothing is taught, and no statistics are used."""
        try:
            await self._teacher.check()
        except EngineFailed as error:
            if error.kind is FailureKind.UNFINISHED:  # it answers, and not as it should
                self._trusted, self._learners = False, {}
            raise EngineUnavailable(error.sentence) from error
        self._trusted, self._check_at = True, time.monotonic() + TRUSTED
        await self._look()

    async def _look(self) -> None:
        standings = await self._store.statuses(_ALL)
        self._learners = {each.tenant: each.learner for each in standings if each.speaks and self._trusted}

    async def _round(self) -> bool:
        """Teach a few lessons and tell whether there was anything to do."""
        lessons = await self._store.pending(_ALL, ROUND)
        failed: set[UUID] = set()
        waiting = 0
        for lesson in lessons:
            if lesson.tenant in failed:
                continue
            try:
                await self._teach(lesson)
            except EngineFailed as error:
                _log.warning("lessons_wait", tenant=str(lesson.tenant), reason=error.sentence, lessons=len(lessons))
                failed.add(lesson.tenant)
                self._check_at = 0.0  # it may be that learners are no longer kept apart
                if len(failed) >= FAILURES:
                    return False
            except UnknownKey as error:
                _log.error("lesson_needs_key", lesson=str(lesson.uid), tenant=str(lesson.tenant), reason=str(error))
                waiting += 1
        switched = await self._store.switch(_ALL)
        if switched:
            await self._look()
        for tenant, done_with in switched:
            for generation in done_with:  # several, where more was taken back before the first was whole
                await self._forget(tenant, generation)
        return bool(lessons) and not failed and not waiting

    async def expire(self) -> None:
        """Forget the lessons that are too old."""
        await self._store.delete_old(_ALL, datetime.now(UTC) - self._retention)

    async def _teach(self, lesson: PendingReport) -> None:
        try:
            message = self._seal.open(lesson.contents, lesson.uid)
        except UnknownKey:  # it waits: once the key is restored it is learned
            raise
        except BrokenSeal as error:
            _log.warning("lesson_unreadable", lesson=str(lesson.uid), reason=str(error))
            await self._store.mark_trained(_ALL, lesson, refused=True)
            return
        learner = learner_of(lesson.tenant, lesson.generation)
        learned = await self._teacher.teach(message, learner, threat=lesson.kind.is_threat)
        await self._store.mark_trained(_ALL, lesson, refused=not learned)

    async def _forget(self, tenant: UUID, generation: int) -> None:
        """Remove the statistics of a generation that nobody goes by any more."""
        try:
            gone = await self._teacher.forget(learner_of(tenant, generation))
        except EngineFailed as error:
            _log.warning("statistics_stay", tenant=str(tenant), generation=generation, reason=error.sentence)
        else:
            _log.info("statistics_forgotten", tenant=str(tenant), generation=generation, keys=gone)
