"""The effect of a tenant's learning: Rspamd is trained with the dev split as guard trains it, and then queried.

Each message is queried with all training data and, if it is ham, again without its own source. The statistics are
counts, so a source is left out by subtracting its counts, instead of training all others again. On the dev split, each
half is judged by the training of the other half.
"""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager

from msgspec import Struct
from msgspec.structs import replace
from redis.asyncio import Redis

from mailwarden.analysis.analyzer import EngineFailed, Known
from mailwarden.analysis.analyzers.learned import LearnedAnalyzer
from mailwarden.engines.rspamd import RspamdEngine, RspamdSettings
from mailwarden.engines.rspamd_teacher import NAMESPACE, RspamdTeacher
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.record import MessageSummary
from mailwarden.serving.spool import Spooled
from workshop.evaluate.corpus import HAM, MALFORMED, PHISHING, SPAM, Corpus, Sample, Split
from workshop.evaluate.progress import AT_ONCE, Meter, side_by_side
from workshop.evaluate.records import Scanned
from workshop.rig.engines import Engines
from workshop.rig.rspamd import PASSWORD

PATIENCE = 60_000  # milliseconds
BATCH = 5_000
_VERSION = b"version"
LEARNED = LearnedAnalyzer.name


class Classifier(Struct, frozen=True):
    """One set of statistics: its training data, and the name of the counts of each source of ham."""

    name: str
    lessons: tuple[Sample, ...]

    @property
    def sources(self) -> Mapping[str, str]:
        subsets = sorted({sample.subset for sample in self.lessons if sample.kind == HAM})
        return {subset: f"{self.name}.{number}" for number, subset in enumerate(subsets)}


def classifiers_for(split: Split, lessons: Sequence[Sample]) -> tuple[Classifier, ...]:
    """Return one classifier for the test split; for the dev split, two halves that judge each other."""
    useful = [sample for sample in lessons if sample.kind in (HAM, PHISHING, SPAM)]
    if split == "test":
        return (Classifier("evaluate.0", tuple(useful)),)
    return tuple(Classifier(f"evaluate.{half}", tuple(useful[half::2])) for half in (0, 1))


async def ask_classifiers(
    engines: Engines, corpus: Corpus, split: Split, lessons: Sequence[Sample], records: Sequence[Scanned]
) -> list[Scanned]:
    """Train, query each record, and return the records with the learned findings."""
    school = Trainer(engines, corpus)
    classifiers = classifiers_for(split, lessons)
    try:
        await school.teach(classifiers)
        await school.split_by_source(classifiers)
        whole = await school.ask(records, classifiers)
        found = dict(zip((record.sample.path for record in records), whole, strict=True))
        elsewhere: dict[str, tuple[Finding, ...]] = {}
        ham: dict[str, list[Scanned]] = defaultdict(list)
        for record in records:
            if record.sample.kind == HAM:
                ham[record.sample.subset].append(record)
        meter = Meter(sum(map(len, ham.values())), "messages of ham, each without its source")
        for subset, some in ham.items():
            async with school.left_out(subset, classifiers):
                words = await school.ask(some, classifiers, meter)
            elsewhere |= dict(zip((record.sample.path for record in some), words, strict=True))
    finally:
        await school.close()
    return [
        replace(record, learned=found[record.sample.path], learned_elsewhere=elsewhere.get(record.sample.path))
        for record in records
    ]


class Trainer:
    """Rspamd, its controller and its Redis, as guard uses them."""

    def __init__(self, engines: Engines, corpus: Corpus) -> None:
        self._corpus = corpus
        self._now = time.time()
        self._teacher = RspamdTeacher(engines.rspamd.controller_address, PASSWORD, engines.redis.url)
        self._rspamd = RspamdEngine("rspamd", RspamdSettings(engines.rspamd.address, PATIENCE, AT_ONCE))
        self._redis = Redis.from_url(engines.redis.url)
        self._parts: dict[str, list[tuple[str, dict[bytes, float]]]] = defaultdict(list)

    async def close(self) -> None:
        await self._teacher.close()
        await self._redis.aclose()

    async def teach(self, classifiers: Iterable[Classifier]) -> None:
        lessons = [(name, sample) for classifier in classifiers for name, sample in _lessons(classifier)]
        meter = Meter(len(lessons), "training_reports")

        async def teach_one(lesson: tuple[str, Sample]) -> None:
            name, sample = lesson
            raw = self._corpus.post(sample, self._now).raw
            await self._teacher.teach(raw, name, threat=sample.kind != HAM, alone=False)

        await side_by_side(lessons, teach_one, meter.step)

    async def ask(
        self, records: Sequence[Scanned], classifiers: Sequence[Classifier], meter: Meter | None = None
    ) -> list[tuple[Finding, ...]]:
        """Return the result of each message from a classifier that was not trained with it."""
        taught = {sample.path: classifier for classifier in classifiers for sample in classifier.lessons}
        strangers = {
            classifier: next((other for other in classifiers if other != classifier), classifier)
            for classifier in classifiers
        }

        async def ask_one(record: Scanned) -> tuple[Finding, ...]:
            if record.sample.kind == MALFORMED:
                return ()
            classifier = taught.get(record.sample.path)
            return await self._ask(record.sample, (strangers[classifier] if classifier else classifiers[0]).name)

        meter = meter or Meter(len(records), "messages queried")
        return await side_by_side(records, ask_one, meter.step)

    async def _ask(self, sample: Sample, classifier: str) -> tuple[Finding, ...]:
        posted = self._corpus.post(sample, self._now)
        try:
            answer = await self._rspamd.ask(Spooled.of(posted.raw), posted.envelope, classifier)
        except EngineFailed:
            return ()  # the scan already counted it
        known = Known(posted.envelope, MessageSummary(size=len(posted.raw), sha256=""), {"rspamd": answer})
        return tuple(LearnedAnalyzer().conclude(known))

    async def split_by_source(self, classifiers: Iterable[Classifier]) -> None:
        """Read the counts of each source in one pass over the keys, and remove them."""
        parts = {part for classifier in classifiers for part in classifier.sources.values()}
        batch: list[bytes] = []
        async for key in self._redis.scan_iter(match=f"{NAMESPACE}*", count=BATCH):
            if key.decode().removeprefix(NAMESPACE).partition("_")[0] in parts:
                batch.append(key)
            if len(batch) >= BATCH:
                await self._take(batch)
                batch = []
        await self._take(batch)

    async def _take(self, keys: Sequence[bytes]) -> None:
        reading = self._redis.pipeline(transaction=False)
        for key in keys:
            reading.hgetall(key)
            reading.delete(key)
        answers = await reading.execute()
        for key, fields in zip(keys, answers[::2], strict=True):
            part, _, token = key.decode().removeprefix(NAMESPACE).partition("_")
            self._parts[part].append(
                (token, {name: float(count) for name, count in fields.items() if name != _VERSION})
            )

    @asynccontextmanager
    async def left_out(self, subset: str, classifiers: Iterable[Classifier]) -> AsyncIterator[None]:
        """Leave one source of ham out of the classifiers inside the block."""
        names = [
            (classifier.name, classifier.sources[subset]) for classifier in classifiers if subset in classifier.sources
        ]
        for name, part in names:
            await self._add(name, part, -1)
        try:
            yield
        finally:
            for name, part in names:
                await self._add(name, part, 1)

    async def _add(self, classifier: str, part: str, times: int) -> None:
        """Add the counts of a part to those of the classifier, or subtract them."""
        counts = self._parts[part]
        for start in range(0, len(counts), BATCH):
            writing = self._redis.pipeline(transaction=False)
            for token, fields in counts[start : start + BATCH]:
                key = f"{NAMESPACE}{classifier}_{token}" if token else f"{NAMESPACE}{classifier}"
                for field, count in fields.items():
                    writing.hincrbyfloat(key, field, times * count)
            await writing.execute()


def with_learned(records: Iterable[Scanned]) -> list[Scanned]:
    """Return the records with the findings of the tenant's learning among the evidence."""
    return [_with(record, record.learned) for record in records]


def with_learned_elsewhere(records: Iterable[Scanned]) -> list[Scanned]:
    """Return the ham with the findings of a classifier that was not trained with its source."""
    return [_with(record, record.learned_elsewhere) for record in records if record.learned_elsewhere is not None]


def is_learned(records: Iterable[Scanned]) -> bool:
    return any(record.learned or record.learned_elsewhere for record in records)


def _with(record: Scanned, findings: tuple[Finding, ...]) -> Scanned:
    others = tuple(report for report in record.evidence.reports if report.analyzer != LEARNED)
    report = Report(LEARNED, required=False, status=Status.FINISHED, milliseconds=0.0, findings=findings)
    return replace(record, evidence=Evidence((*others, report)))


def _lessons(classifier: Classifier) -> Iterator[tuple[str, Sample]]:
    sources = classifier.sources
    for sample in classifier.lessons:
        yield classifier.name, sample
        if sample.kind == HAM:
            yield sources[sample.subset], sample
