"""Each verdict is told by its reasons: whoever adds up their weights comes to the points, and from them to the verdict.

The verdict is worked out here once more from the stored reasons alone, by the page about verdicts and not by the code
that judges, for every kind of evidence there is: samples of the analyzers, answers of engines, failures, lists.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.engines import clamav, rspamd
from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.listing import ListHit, Listing
from mailwarden.model.outcome import Judgement, Verdict
from mailwarden.model.place import Place
from mailwarden.pipeline.registry import CONCLUDING, LOCAL
from mailwarden.policy.judge import judge
from mailwarden.policy.list_effects import failed_report, report_of
from mailwarden.policy.rules import load_policy
from mailwarden.settings.document import load
from tests.properties import examples
from tests.samples.examined import MESSAGES, examined
from tests.samples.finished import finished_request
from tests.tables import every, named
from tests.unit.policy.conftest import failed, finished

POLICY = load_policy()
FORCING = {rule.id for rule in POLICY.rules if rule.forces_quarantine}
ANSWERS = [path for name in ("rspamd", "clamav") for path in sorted(Path("tests/analyzers", name).glob("*.yml"))]
NAMES = sorted({name for rule in POLICY.rules for name in (*rule.needs, *rule.any_of, *rule.unless)})


def recompute(judgement: Judgement) -> Verdict:
    """Work the verdict out from the reasons, as the page about verdicts tells it."""
    points: Counter[Verdict] = Counter()
    for reason in judgement.reasons:
        points[reason.verdict] += reason.weight
    convicting = ("malware", "phishing", "fraud", "spoof", "blocked", "spam")
    for name in convicting:
        if points[Verdict(name)] >= 100:
            return Verdict(name)
    if any(reason.rule in FORCING for reason in judgement.reasons):
        return Verdict.SUSPICIOUS
    if "analysis.incomplete" in judgement.tags:
        return Verdict.UNKNOWN
    threats = ("malware", "phishing", "fraud", "spoof", "suspicious")
    if sum(max(0, points[Verdict(name)]) for name in threats) >= 50:
        return Verdict.SUSPICIOUS
    return Verdict.BULK if points[Verdict.BULK] >= 100 else Verdict.CLEAN


def hold(evidence: Evidence) -> Judgement:
    """Judge what was stored and hold the judgement against its own reasons."""
    stored = msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence)
    kept = msgspec.json.decode(msgspec.json.encode(judge(stored, POLICY)), type=Judgement)
    points: Counter[str] = Counter()
    for reason in kept.reasons:
        points[reason.verdict] += reason.weight
    assert {name: count for name, count in kept.points.items() if count} == {n: c for n, c in points.items() if c}
    assert recompute(kept) is kept.verdict
    assert {reason.tag for reason in kept.reasons if reason.tag} <= set(kept.tags)
    return kept


def answered(path: Path) -> Evidence:
    answer = str(load(path)["answer"]).encode()  # type: ignore[index]
    findings = (
        clamav.read_answer(answer)
        if path.parent.name == "clamav"
        else rspamd.findings_of(rspamd.read_answer(answer), rspamd.load_symbols())
    )
    return Evidence((Report(path.parent.name, True, Status.FINISHED, 1.0, tuple(findings)),))


@pytest.mark.xdist_group("samples")
def test_the_verdict_of_a_sample_follows_from_its_reasons():
    def check(path: Path) -> None:
        reports = examined(path)
        hold(Evidence(reports))
        hold(Evidence((*reports, failed())))
        hold(Evidence((*reports, failed_report("The lists are away.", 1.0))))

    every(MESSAGES, check, named)


def test_the_verdict_of_an_engines_answer_follows_from_its_reasons():
    every(ANSWERS, lambda path: hold(answered(path)), named)


def listings() -> Iterator[Listing]:
    for rule in POLICY.rules:
        if rule.id.startswith("lists."):
            yield Listing(acting=(ListHit(rule.needs[0].partition(".")[2], "north.example"),))


def test_the_verdict_by_an_entry_of_a_list_follows_from_its_reasons():
    for listing in listings():
        hold(Evidence((finished(), report_of(listing, 1.0))))


def test_the_evidence_that_history_keeps_whole_is_judged_by_its_reasons():
    assert hold(finished_request().evidence).verdict is Verdict.UNKNOWN
    assert hold(Evidence(())).verdict is Verdict.UNKNOWN


def test_every_rule_alone_and_often_follows_from_its_reasons():
    for rule in POLICY.rules:
        for times in (1, 3, 30):
            hold(Evidence((finished(*rule.needs * times),)))


@examples(300)
@given(st.lists(st.sampled_from(NAMES), max_size=25), st.booleans())
def test_the_verdict_of_any_findings_follows_from_their_reasons(names, broken):
    reports = [Report("tested", True, Status.FINISHED, 1.0, tuple(Finding(name, Place(part="1")) for name in names))]
    hold(Evidence((*reports, failed()) if broken else tuple(reports)))


def test_every_analyzer_is_among_the_samples():
    held = {path.parent.name for path in (*MESSAGES, *ANSWERS)}
    assert {*(local.name for local in LOCAL), *(concluding.name for concluding in CONCLUDING)} - held == set()
