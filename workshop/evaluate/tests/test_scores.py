"""The number that stands for a message, and the thresholds that it is held against."""

import itertools
import math

import pytest

from mailwarden.model.evidence import Evidence, Finding, Report, Status
from mailwarden.model.outcome import Decision, Judgement, Verdict
from mailwarden.policy.decide import decide
from mailwarden.policy.judge import judge
from tests.samples.judged import policy_of
from workshop.evaluate.scores import curve, score_of, share_above, threshold_at
from workshop.evaluate.trial import BALANCED


def of(**points):
    return score_of(Judgement(Verdict.CLEAN, "", (), points, ()))


def test_the_weightiest_verdict_counts_whole_and_the_others_by_a_part():
    assert of(phishing=60, spam=40) == 70
    assert of(phishing=60, suspicious=40, spam=40) == 80
    assert of(spam=100, phishing=20) == 105


def test_parts_alone_never_convict():
    assert of(phishing=90, spam=90, fraud=90) < 100


def test_bulk_counts_for_nothing():
    assert of(bulk=100) == 0


def test_negative_points_of_one_verdict_lower_no_other():
    assert of(spam=-40) == 0  # another verdict stands at nothing
    assert of(phishing=60, spam=-40) == 60


def test_a_score_of_100_means_exactly_that_the_shipped_policy_quarantines():
    verdicts = (Verdict.MALWARE, Verdict.PHISHING, Verdict.SPAM, Verdict.SUSPICIOUS, Verdict.BULK)
    for weights in itertools.product((-40, 0, 60, 99, 100), repeat=len(verdicts)):
        policy = policy_of(**{f"f{n}": pair for n, pair in enumerate(zip(verdicts, weights, strict=True))})
        findings = tuple(Finding(f"html.f{n}") for n in range(len(verdicts)))
        judgement = judge(Evidence((Report("x", True, Status.FINISHED, 1.0, findings),)), policy)
        held = decide(judgement, BALANCED, policy).decision is Decision.QUARANTINE
        assert held == (score_of(judgement) >= 100), weights


def test_a_forced_quarantine_scores_as_a_conviction():
    assert score_of(Judgement(Verdict.SUSPICIOUS, "", (), {"suspicious": 50}, (), forces_quarantine=True)) >= 100


@pytest.mark.parametrize(("rate", "threshold"), [(0.0, 9), (0.1, 8), (0.2, 7), (0.29, 7), (0.5, 4), (1.0, -math.inf)])
def test_a_threshold_lets_no_more_ham_pass_than_the_rate(rate, threshold):
    ham = [float(score) for score in range(10)]
    assert threshold_at(rate, ham) == threshold
    assert share_above(threshold, ham) <= rate


def test_equal_scores_are_let_through_together():
    ham = [50.0] * 5 + [0.0] * 95
    assert threshold_at(0.02, ham) == 50
    assert share_above(threshold_at(0.02, ham), ham) == 0
    assert threshold_at(0.05, ham) == 0


def test_a_class_without_messages_has_no_share():
    assert share_above(0, []) is None


def test_the_curve_climbs_from_nothing_to_everything():
    points = curve([0, 0, 1, 5], [0, 5, 9, 9])
    assert points == [(0, 0), (0, 0.5), (0.25, 0.75), (0.5, 0.75), (1, 1)]
    assert curve([], [1]) == []
