"""The figures, the tables and the last line, on messages that are written down here."""

import pytest

from tests.samples.judged import judged, policy_of, scanned
from workshop.evaluate.figures import figures_at, figures_shipped, rspamd_score, worst_ham
from workshop.evaluate.page import write_page
from workshop.evaluate.separation import NOTHING, causes, information, separating
from workshop.evaluate.tables import cause_tables, false_positives, left_out_table, missed
from workshop.evaluate.trial import analyzers_of, try_all, try_without

HAM = [judged("ham", float(n % 5), rspamd=float(n % 5)) for n in range(996)]
HAM += [judged("ham", 100.0, subset="newsletters", rspamd=1.0) for _ in range(4)]
BAD = [judged("phishing", 120.0, rspamd=9.0), judged("phishing", 60.0, rspamd=2.0), judged("phishing", 0.0)]
SPAM = [judged("spam", 100.0, rspamd=9.0), judged("spam", 3.0, rspamd=9.0)]
SIMULATED = [judged("phishing", 0.0, subset="bec-simulated"), judged("malware-simulated", 200.0)]
EVERYTHING = [*HAM, *BAD, *SPAM, *SIMULATED, judged("malformed", 200.0), judged("ham", 300.0, subset="fixture")]


def test_simulated_messages_and_fixtures_are_counted_apart():
    figures = figures_at(0.005, EVERYTHING)
    assert figures.threshold == 4
    assert figures.caught == {
        "phishing": pytest.approx(2 / 3),
        "spam": 0.5,
        "bec-qr": 0.0,
        "malware": 1.0,
    }
    assert figures.false_positives == 0.004
    assert figures.with_fixtures == pytest.approx(5 / 1001)


def test_the_worst_source_of_ham_is_named():
    worst = worst_ham(4, EVERYTHING)
    assert (worst.subset, worst.wrong, worst.size) == ("newsletters", 4, 4)


def test_the_shipped_figures_are_those_of_the_decision():
    assert figures_shipped(EVERYTHING).caught["phishing"] == pytest.approx(1 / 3)
    assert figures_shipped(EVERYTHING).false_positives == 0.004


def test_a_message_that_a_rival_did_not_score_is_not_caught_by_it():
    assert figures_at(0.005, EVERYTHING, rspamd_score).caught["phishing"] == pytest.approx(1 / 3)


def test_an_analyzer_left_out_is_judged_as_if_it_had_seen_nothing():
    policy = policy_of(form=("phishing", 100))
    some = try_all([scanned("phishing", "html.form"), scanned("ham")], policy)
    assert some[0].held
    assert analyzers_of(some) == ["html"]
    assert [one.held for one in try_without("html", some, policy)] == [False, False]
    assert [line.split()[0] for line in left_out_table(some, policy)] == ["left", "(none)", "html"]


def test_the_findings_that_separate_best_come_first():
    some = [judged("spam", 0, findings=["html.a", "html.b"]) for _ in range(9)]
    some += [judged("ham", 0, findings=["html.b"]) for _ in range(5)] + [judged("ham", 0, findings=["html.c"])]
    rows = separating(some)
    assert [row.name for row in rows] == ["html.a", "html.b", "html.c"]
    assert rows[0].gain == pytest.approx(1.0)
    assert rows[-1].gain < 0
    assert rows[1].worst_subset == "list-x"


def test_information_is_none_where_both_classes_have_it_alike():
    assert information(5, 10, 50, 100) == pytest.approx(0)
    assert information(0, 0, 1, 1) == 0


def test_wrong_decisions_are_grouped_by_rule():
    policy = policy_of(link=("phishing", 30))
    some = try_all([scanned("phishing"), scanned("phishing"), scanned("phishing", "html.link")], policy)
    assert [(cause.rule, cause.count, cause.score) for cause in causes(missed(some, ["phishing"]))] == [
        (NOTHING, 2, 0),
        ("html.link", 1, 30),
    ]
    assert len(false_positives(EVERYTHING)) == 5
    assert any("ham that is quarantined: 5" in line for line in cause_tables(EVERYTHING))


def test_the_page_escapes_text_of_messages(tmp_path):
    write_page(tmp_path / "new" / "report.html", EVERYTHING, ["a < b"])
    text = (tmp_path / "new" / "report.html").read_text()
    assert "a &lt;subject&gt;" in text
    assert "<subject>" not in text
    assert text.count("<svg") >= 2
