"""Judges stored evidence by the current rules, with all analyzers or without one."""

from collections.abc import Iterable, Sequence
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from mailwarden.model.evidence import Evidence
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.model.tenant import AssignedBy, Assignment
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import Policy
from workshop.evaluate.corpus import Sample
from workshop.evaluate.records import Scanned
from workshop.evaluate.scores import score_of

BALANCED = Assignment(UUID(int=0), AssignedBy.REQUEST)
HELD = (Decision.QUARANTINE, Decision.BOUNCE, Decision.DROP)


Source = tuple[str, str]  # corpus and collection


class Judged(Struct, frozen=True):
    """A message with its judgement."""

    scanned: Scanned
    judgement: Judgement
    decision: Decision
    score: float

    @property
    def sample(self) -> Sample:
        return self.scanned.sample

    @property
    def source(self) -> Source:
        return self.sample.corpus, self.sample.origin

    @property
    def held(self) -> bool:
        return self.decision in HELD

    @property
    def crashed(self) -> bool:
        """Return whether there was no usable result: an error, or a verdict that says so."""
        return bool(self.scanned.problem) or self.judgement.verdict is Verdict.UNKNOWN

    @property
    def finding_names(self) -> frozenset[str]:
        return frozenset(finding.name for _, finding in self.scanned.evidence.findings)


def try_all(records: Iterable[Scanned], policy: Policy) -> list[Judged]:
    return [_try(record, record.evidence, policy) for record in records]


def try_without(analyzer: str, judged: Sequence[Judged], policy: Policy) -> list[Judged]:
    """Judge again as if the analyzer had found nothing; only messages with its findings change."""
    return [
        _try(one.scanned, without(one.scanned.evidence, analyzer), policy) if _spoke(one, analyzer) else one
        for one in judged
    ]


def analyzers_of(judged: Iterable[Judged]) -> list[str]:
    """Return the analyzers with at least one finding, by name."""
    return sorted({name for one in judged for name, _ in one.scanned.evidence.findings})


def without(evidence: Evidence, analyzer: str) -> Evidence:
    return Evidence(
        tuple(replace(each, findings=()) if each.analyzer == analyzer else each for each in evidence.reports)
    )


def without_findings(records: Iterable[Scanned], prefixes: Sequence[str]) -> list[Scanned]:
    """Return the records without the findings whose names begin so, to see what these findings contribute."""
    begins = tuple(prefixes)
    return [
        replace(
            record,
            evidence=Evidence(
                tuple(
                    replace(each, findings=tuple(one for one in each.findings if not one.name.startswith(begins)))
                    for each in record.evidence.reports
                )
            ),
        )
        for record in records
    ]


def _spoke(one: Judged, analyzer: str) -> bool:
    return any(report.analyzer == analyzer and report.findings for report in one.scanned.evidence.reports)


def _try(record: Scanned, evidence: Evidence, policy: Policy) -> Judged:
    judgement = judge(evidence, policy)
    return Judged(record, judgement, decide(judgement, BALANCED, policy).decision, score_of(judgement))
