"""The lines of `mailwarden scan`: points that add up, what they lead to, and the deciding step."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from mailwarden.cli.scan import render
from mailwarden.history.explanation import (
    EnvelopeRecord,
    FactRecord,
    MessageExplanation,
    MessageRecord,
    ReasonRecord,
    StepRecord,
)
from mailwarden.wire.scanning import MessageAnalysisResult

GGRID = UUID("0199a3f2-6c1e-7b54-9a11-5d0c7e2f8b10")
NOW = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
MESSAGE = MessageRecord(0, "", "", "", "", (), "", "", "", (), ())
LIST_STEP = "sender-block `a.example` of the tenant: quarantine stands"


def lines(verdict, decision, points, *facts, steps=()):
    """Return the lines below the summary; each fact is its verdict, and the points of its rules."""
    reasons = [
        ReasonRecord(f"x.rule-{number}-{place}", "x", of, weight, "", "", "")
        for number, (of, *weights) in enumerate(facts)
        for place, weight in enumerate(weights)
    ]
    explanation = MessageExplanation(
        GGRID, GGRID, NOW, NOW, decision, verdict, (), "Summary.",
        tuple(
            FactRecord(
                "text.x", of, sum(weights), f"Fact {number}.",
                tuple(each.rule for each in reasons if each.rule.startswith(f"x.rule-{number}-")),
            )
            for number, (of, *weights) in enumerate(facts)
        ),
        tuple(reasons), points, (), None, tuple(StepRecord(*step) for step in steps), "", "",
        EnvelopeRecord("", (), None, None), MESSAGE, (),
    )  # fmt: skip
    result = MessageAnalysisResult(GGRID, NOW, NOW, decision, verdict, ())
    _, _, text = render(result, explanation).partition("Summary.\n\n")
    return text.splitlines()


def test_a_fact_says_how_many_rules_its_points_are_of():
    assert lines("phishing", "quarantine", {"phishing": 110}, ("phishing", 60, 30, 0), ("phishing", 20))[:3] == [
        "   +90  text      Fact 0. (2 rules)",
        "   +20  text      Fact 1.",
        " = 110  phishing  at least 100: phishing",
    ]


@pytest.mark.parametrize(
    ("verdict", "points", "facts", "sums"),
    [
        ("clean", {"phishing": 12}, [("phishing", 12)], ["  = 12  phishing  below 100: not phishing"]),
        (
            "suspicious",
            {"phishing": 30, "fraud": 25, "bulk": 60},
            [("phishing", 30), ("fraud", 25)],
            [
                "  = 30  phishing  below 100: not phishing",
                "  = 25  fraud     below 100: not fraud",
                "  = 55  threats   at least 50 of all threats: suspicious",
                "        also      bulk 60",
            ],
        ),
        (
            "phishing",
            {"phishing": 150, "spam": 105},
            [("phishing", 120)],
            [
                "   +30  smaller facts",
                " = 150  phishing  at least 100: phishing",
                "        also      spam 105; phishing comes first",
            ],
        ),
    ],
)
def test_a_sum_says_what_it_leads_to(verdict, points, facts, sums):
    assert lines(verdict, "deliver", points, *facts)[len(facts) : -2] == sums


@pytest.mark.parametrize(
    ("decision", "outcome"),
    [
        ("deliver", "clean under the profile balanced: deliver"),
        ("quarantine", LIST_STEP),
        ("quarantine", "malware: no later step may deliver it"),
        ("quarantine", "a rule forces quarantine, in every profile"),
        ("undecided", "the analysis is incomplete: not delivered"),
    ],
)
def test_the_deciding_step_is_the_last_line_of_the_explanation(decision, outcome):
    others = ("monitor", f"the profile balanced decides the same: {decision}"), ("bounce", "no bounce")
    shown = lines("clean", decision, {}, steps=(("profile", outcome), *others))
    assert shown == [f"        decided   {outcome}"]
