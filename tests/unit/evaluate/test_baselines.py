"""The classifiers beside a fit: they learn findings and combinations, and never see the source that they judge."""

import pytest
from msgspec.structs import replace

from evaluate.baselines import baseline_table, left_out_scores, seen_scores, train_logistic, train_trees
from tests.samples.judged import judged


def mail(label, source, count, *findings):
    """Return so many messages of a source."""
    one = judged(label, 0, findings=[f"html.{name}" for name in findings])
    sample = replace(one.sample, corpus="made", origin=source)
    return [replace(one, scanned=replace(one.scanned, sample=sample)) for _ in range(count)]


@pytest.mark.parametrize("train", [train_logistic, train_trees])
def test_a_finding_of_attacks_raises_the_score(train):
    model = train([(1, 2)] * 40 + [(2,)] * 40, [True] * 40 + [False] * 40)
    assert model((1, 2)) > 0 > model((2,))


def test_trees_learn_a_combination():
    rows = [(1,), (2,), (1, 2), ()] * 30
    model = train_trees(rows, [row == (1, 2) for row in rows])
    assert model((1, 2)) > 0 > max(model((1,)), model((2,)), model(()))


def test_a_source_is_judged_without_its_own_messages():
    """Attacks of one source have a finding that nothing else has: left out, it is unknown."""
    some = [*mail("phishing", "pot", 30, "only"), *mail("phishing", "net", 30, "form"), *mail("ham", "shop", 60)]
    scores = left_out_scores(some, train_logistic)
    assert max(scores[:30]) < max(left_out_scores([*some, *mail("phishing", "trap", 30, "only")], train_logistic)[:30])


def test_a_model_that_saw_a_source_knows_its_finding():
    some = [*mail("phishing", "pot", 30, "only"), *mail("ham", "shop", 60)]
    assert min(seen_scores(some, train_logistic)[:30]) > 0 >= max(left_out_scores(some, train_logistic)[:30])


def test_the_table_has_every_score_with_its_interval():
    some = [*mail("phishing", "a", 30, "form"), *mail("phishing", "b", 30, "form"), *mail("ham", "c", 60)]
    some += mail("ham", "d", 60)
    lines = list(baseline_table(some, {"sums": [0.0] * len(some)}))
    assert any(line.startswith("sums") and "0.00%" in line for line in lines)
    assert any(line.startswith("boosted trees, left out") and "100.00%" in line for line in lines)
