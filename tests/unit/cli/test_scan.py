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
MALWARE_STEP = "malware: no later step may deliver it"
INCOMPLETE_STEP = "the analysis is incomplete: not delivered"


def text_of(verdict, decision, points, *facts, steps=()):
    """Return what is printed; each fact is its verdict, and the points of its rules."""
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
    return render(result, explanation)


def lines(*words):
    """Return the lines below the summary."""
    return text_of(*words).partition("Summary.\n\n")[2].splitlines()


def test_a_fact_says_how_many_rules_its_points_are_of():
    assert lines("phishing", "quarantine", {"phishing": 110}, ("phishing", 60, 30, 0), ("phishing", 20))[:3] == [
        "   +90  text      Fact 0. (2 rules)",
        "   +20  text      Fact 1.",
        " = 110  phishing  100 are enough",
    ]


@pytest.mark.parametrize(
    ("verdict", "points", "facts", "sums"),
    [
        ("clean", {"phishing": 12}, [("phishing", 12)], ["  = 12  phishing  100 are needed"]),
        (
            "suspicious",
            {"phishing": 30, "fraud": 25, "bulk": 60},
            [("phishing", 30), ("fraud", 25)],
            [
                "  = 30  phishing  100 are needed",
                "  = 25  fraud     100 are needed",
                "  = 55  threats   50 of all threats are enough for suspicious",
                "        also      bulk 60",
            ],
        ),
        (
            "phishing",
            {"phishing": 150, "spam": 105},
            [("phishing", 120)],
            [
                "   +30  smaller facts",
                " = 150  phishing  100 are enough",
                "        also      spam 105; phishing comes first",
            ],
        ),
    ],
)
def test_a_sum_says_what_it_leads_to(verdict, points, facts, sums):
    assert lines(verdict, "deliver", points, *facts)[len(facts) : -2] == sums


@pytest.mark.parametrize(
    ("decision", "outcome", "line"),
    [
        ("deliver", "clean under the profile balanced: deliver", "deliver: clean under the profile balanced"),
        ("quarantine", LIST_STEP, f"quarantine: {LIST_STEP}"),
        ("quarantine", MALWARE_STEP, f"quarantine: {MALWARE_STEP}"),
        (
            "quarantine",
            "a rule forces quarantine, in every profile",
            "quarantine: a rule forces quarantine, in every profile",
        ),
        ("undecided", INCOMPLETE_STEP, f"undecided: {INCOMPLETE_STEP}; submit it again later, or hold it"),
    ],
)
def test_the_deciding_step_stands_behind_the_decision(decision, outcome, line):
    others = ("monitor", f"the profile balanced decides the same: {decision}"), ("bounce", "no bounce")
    shown = text_of("clean", decision, {}, steps=(("profile", outcome), *others))
    assert shown.splitlines()[0] == f"decision  {line}"
