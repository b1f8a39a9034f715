"""The services and jobs of training, composed as in abby and guard, and messages to learn from."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from mailwarden.analysis.analyzer import Known
from mailwarden.analysis.analyzers.learned import LearnedAnalyzer
from mailwarden.crypto.keyring import KeyRing
from mailwarden.engines.rspamd import RspamdEngine
from mailwarden.engines.rspamd_teacher import RspamdTeacher
from mailwarden.history.store import HistoryStore
from mailwarden.model.envelope import Envelope
from mailwarden.model.record import MessageSummary
from mailwarden.model.scope import Actor, Scope
from mailwarden.serving.spool import Spooled
from mailwarden.user_reports.reports import ContentsSeal, Kind
from mailwarden.user_reports.service import ReportService
from mailwarden.user_reports.store import ReportStore
from mailwarden.user_reports.training import Training
from workshop.rig.engines import Engines
from workshop.rig.rspamd import PASSWORD

ALL = Scope.deployment()
ANN = Actor("ann")
SEAL = ContentsSeal(KeyRing.of(b"k" * 32))
ENVELOPE = Envelope("ada@north.example", ("bob@south.example",), "192.0.2.1", "mx.north.example")
BAD = [f"prize{letter}" for letter in "abcdefghijklmn"]
GOOD = [f"budget{letter}" for letter in "abcdefghijklmn"]
LITTLE = b"Subject: x\r\n\r\nhi\r\n"


def message(words: list[str], number: int) -> bytes:
    """Return a unique message made of these words."""
    choice = random.Random(f"{words[0]} {number}")
    text = " ".join(choice.choices(words, k=60))
    head = f"From: ada@north.example\r\nTo: bob@south.example\r\nSubject: {choice.choice(words)} {number}\r\n"
    return f"{head}Message-ID: <{words[0]}{number}@north.example>\r\n\r\n{text}\r\n".encode()


@dataclass
class TrainingSetup:
    """The services and jobs of training, composed as in abby and guard."""

    report_service: ReportService
    training: Training
    report_store: ReportStore
    history: HistoryStore
    rspamd: RspamdEngine
    tenants: tuple[UUID, UUID]

    async def report_many(self, tenant: UUID, kind: Kind, words: list[str], count: int) -> list[UUID]:
        reports = [
            await self.report_service.report_contents(ALL, tenant, kind, ANN, contents=message(words, number))
            for number in range(count)
        ]
        return [report.uid for report in reports]

    async def found(self, tenant: UUID, raw: bytes) -> set[str]:
        """Return the findings of a message to the tenant."""
        answer = await self.rspamd.ask(Spooled.of(raw), ENVELOPE, self.training.classifier(tenant))
        known = Known(ENVELOPE, MessageSummary(size=len(raw), sha256=""), {"rspamd": answer})
        return {finding.name for finding in LearnedAnalyzer().conclude(known)}


def teacher_of(engines: Engines) -> RspamdTeacher:
    return RspamdTeacher(engines.rspamd.controller_address, PASSWORD, engines.redis.url)


def keys_of(engines: Engines, classifier: str) -> int:
    import redis

    with redis.Redis.from_url(engines.redis.url) as connection:
        return sum(1 for _ in connection.scan_iter(match=f"RS{classifier}*", count=1_000))


def learned_by(engines: Engines, classifier: str) -> tuple[int, int]:
    """Return how many threats and how many good messages Rspamd has learned for a classifier."""
    import redis

    with redis.Redis.from_url(engines.redis.url) as connection:
        kept = connection.hmget(f"RS{classifier}", ["learns_spam", "learns_ham"])
    return int(kept[0] or 0), int(kept[1] or 0)


@contextmanager
def full(engines: Engines) -> Iterator[None]:
    """Give Redis no free memory."""
    import redis

    with redis.Redis.from_url(engines.redis.url) as connection:
        connection.config_set("maxmemory", 1)
        try:
            yield
        finally:
            connection.config_set("maxmemory", 0)
