"""Weeks, the comparison with the week before, and the sentences for a manager."""

from datetime import UTC, date, datetime

import pytest

from mailwarden.errors import SchemaViolation
from mailwarden.history.store import Attacked, DayFigures
from mailwarden.model.tenant import Profile
from mailwarden.weekly_report.model import Actions, Figure, Week, checked_week, recent_weeks, sentences_of
from tests.unit.weekly_report.sample_reports import WEEK, days, sample_report

NOW = datetime(2026, 11, 17, 16, tzinfo=UTC)  # a Tuesday


@pytest.mark.parametrize(
    ("now", "monday"),
    [
        (datetime(2026, 11, 16, tzinfo=UTC), date(2026, 11, 9)),
        (datetime(2026, 11, 15, 23, 59, 59, tzinfo=UTC), date(2026, 11, 2)),
        (datetime(2027, 1, 4, tzinfo=UTC), date(2026, 12, 28)),
    ],
)
def test_the_last_full_week_ends_before_monday(now: datetime, monday: date) -> None:
    assert Week.before(now) == Week(monday)


def test_a_week_is_read_as_it_is_written() -> None:
    assert str(Week(date(2026, 12, 28))) == "2026-W53"
    assert [Week.parse(str(each)) for each in recent_weeks(NOW)] == recent_weeks(NOW)
    assert WEEK.title == "week 46, 2026-11-09 to 2026-11-15"


@pytest.mark.parametrize("text", ["2026-W47", "2026-W34", "2026-W00", "2026-W54", "46", "2026-W46 ", "9999-W99", "x"])
def test_any_other_week_is_rejected_with_a_sentence(text: str) -> None:
    with pytest.raises(SchemaViolation, match="week"):
        checked_week(text, NOW)
    assert checked_week("", NOW) == WEEK


@pytest.mark.parametrize(
    ("now", "before", "change"),
    [
        (110, 100, "+10 %"),
        (90, 100, "-10 %"),
        (5, 5, "same"),
        (7, 0, "+7"),
        (7, None, "not known"),
        (None, 7, "not known"),
    ],
)
def test_a_figure_is_compared_with_the_week_before(now: int | None, before: int | None, change: str) -> None:
    assert Figure("", now, before).change == change


def test_sentences_state_traffic_danger_and_what_users_did() -> None:
    assert sentences_of(sample_report()) == [
        "700 messages were scanned, 25 % more than in the week before (560).",
        "63 were attacks: 21 malware, 42 phishing. The week before there were 7.",
        "7 messages were not decided: a part of the analysis failed.",
        "Users released 1 message with the verdict phishing, fraud or malware. Check them.",
        "Users corrected 3 false positives.",
        "Users reported 5 messages as phishing or spam.",
    ]
    assert sample_report().complete


def test_a_monitored_tenant_reads_what_would_have_happened() -> None:
    figures = days(WEEK, {"decision:deliver": 10, "verdict:spam": 2, "policy.monitor": 2})
    report = sample_report(figures=figures, profile=Profile.MONITOR)
    assert "14 messages were delivered that would have been quarantined or rejected." in " ".join(sentences_of(report))
    assert "Would not have been delivered" in [each.name for each in report.headline_figures]
    assert "Would not have been delivered" not in [each.name for each in sample_report().headline_figures]


def test_a_report_says_what_it_lacks() -> None:
    cut = sample_report(figures=days(WEEK, {"decision:deliver": 1}, 5), attacked=Attacked(complete=False))
    cut = sample_report(figures=cut.figures, attacked=cut.attacked, actions=Actions())
    text = " ".join(sentences_of(cut))
    assert not cut.complete
    assert "2 days of the week were not counted." in text
    assert "more attacks than could be read in time" in text
    assert "the actions of users could not be read in time" in text


def test_an_uncounted_week_before_is_not_compared() -> None:
    report = sample_report(before=DayFigures())
    assert sentences_of(report)[0] == "700 messages were scanned. The week before is not known."
    assert {each.change for _, figures in report.shares for each in figures} == {"not known"}


def test_an_empty_week_has_no_shares() -> None:
    report = sample_report(figures=days(WEEK, {}), before=days(WEEK.earlier(), {}), attacked=Attacked())
    assert sentences_of(report)[:2] == ["No messages were scanned in this week.", "So there were no attacks."]
    assert [figures for _, figures in report.shares] == [[], []]
