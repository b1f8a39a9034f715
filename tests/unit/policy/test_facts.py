"""What an explanation says: one fact for each topic, and sums that add up."""

import pytest

from mailwarden.model.outcome import Judgement, Reason, Verdict
from mailwarden.policy.facts import MOST, explain
from mailwarden.policy.judge import judge
from mailwarden.policy.rules import About, load_policy
from tests.unit.policy.conftest import evidence, finished

POLICY = load_policy()
ALIGNED = Reason("authentication.aligned", "authentication", Verdict.SPOOF, 0, "Authenticated.")


def reason(rule, weight, verdict=Verdict.PHISHING):
    return Reason(rule, rule.partition(".")[0], verdict, weight, f"{rule}.")


def judged(verdict, *reasons):
    points: dict[str, int] = {}
    for each in reasons:
        points[each.verdict] = points.get(each.verdict, 0) + each.weight
    return Judgement(verdict, "", reasons, points, ())


def test_the_rules_of_one_topic_are_one_fact_with_the_strongest_sentence():
    lures = (reason("lures.parcel", 22), reason("lures.parcel-often", 25), reason("lures.deadline", 2))
    explanation = explain(judged(Verdict.PHISHING, reason("urls.button", 60), *lures), POLICY)
    assert [(fact.topic, fact.points, fact.sentence) for fact in explanation.facts] == [
        ("links.target", 60, "urls.button."),
        ("text.lure", 49, "lures.parcel-often."),
    ]
    assert [each.rule for each in explanation.facts[1].reasons] == [
        "lures.parcel-often",
        "lures.parcel",
        "lures.deadline",
    ]


def test_facts_and_the_rest_add_up_to_the_points_of_the_verdict():
    of_the_sender = ("sender.authentication", "sender.trusted")
    topics = {rule.topic: rule.id for rule in POLICY.rules if rule.topic not in of_the_sender}
    many = [reason(rule, 5 + number) for number, rule in enumerate(topics.values())]
    relief = reason("restraint.own-links", -25)
    judgement = judged(Verdict.PHISHING, *many, relief, ALIGNED)
    explanation = explain(judgement, POLICY)
    (total,) = explanation.sums
    assert len(explanation.facts) == MOST
    assert explanation.facts[-1].sentence == "Authenticated."
    assert total.unshown == len(topics) + 1 - (MOST - 1)  # and the relief
    assert sum(fact.points for fact in explanation.facts) + total.unshown_points == total.points
    assert total.points == judgement.points[Verdict.PHISHING]


def test_facts_for_another_verdict_are_left_out():
    spam = reason("offers.seo-offer", 90, Verdict.SPAM)
    explanation = explain(judged(Verdict.PHISHING, reason("urls.button", 100), spam), POLICY)
    assert [fact.topic for fact in explanation.facts] == ["links.target"]
    assert [(each.verdict, each.points) for each in explanation.sums] == [(Verdict.PHISHING, 100)]


@pytest.mark.parametrize("verdict", [Verdict.CLEAN, Verdict.UNKNOWN])
def test_without_a_conviction_the_highest_sum_is_explained(verdict):
    low, high = reason("lures.parcel", 10), reason("fraud.bank-change", 20, Verdict.FRAUD)
    explanation = explain(judged(verdict, low, high, ALIGNED), POLICY)
    assert [fact.sentence for fact in explanation.facts] == ["fraud.bank-change.", "Authenticated."]
    assert explain(judged(verdict, ALIGNED), POLICY).sums == ()


def test_a_suspicious_message_has_a_sum_for_each_threat():
    reasons = (reason("lures.parcel", 30), reason("fraud.bank-change", 20, Verdict.FRAUD))
    explanation = explain(judged(Verdict.SUSPICIOUS, *reasons), POLICY)
    assert [(each.verdict, each.points) for each in explanation.sums] == [(Verdict.PHISHING, 30), (Verdict.FRAUD, 20)]


def test_a_reason_of_a_rule_that_was_deleted_is_a_fact_of_its_own():
    explanation = explain(judged(Verdict.SPAM, reason("old.rule", 100, Verdict.SPAM)), POLICY)
    assert [(fact.topic, fact.points) for fact in explanation.facts] == [("message.old", 100)]


def test_the_summary_counts_topics_and_begins_with_the_heaviest():
    found = judge(
        evidence(finished("urls.button", "lures.parcel", "lures.parcel-often", "clamav.phishing", signature="X.Y")),
        POLICY,
    )
    assert (found.verdict, found.points[Verdict.PHISHING]) == (Verdict.PHISHING, 132)
    assert found.summary.endswith("(2 more reasons).")
    assert found.summary.removeprefix("Phishing: ").startswith("ClamAV")
    assert found.headline == "ClamAV: links look like phishing (X.Y)."


def test_every_rule_has_a_topic_about_something():
    assert {rule.topic.partition(".")[0] for rule in POLICY.rules} == set(About)
