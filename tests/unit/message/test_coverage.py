"""Coverage: what a reader did not inspect is recorded once, bounded, and never forgotten by kind."""

import pytest

from mailwarden.message.coverage import Coverage, MissedReason
from mailwarden.message.limits import KEPT, Limits


def test_a_text_within_the_limit_is_returned_whole():
    coverage = Coverage(Limits(text=5))
    assert coverage.cut("short", "text", "the text") == "short"
    assert coverage.complete


def test_a_text_beyond_the_limit_is_cut_and_recorded():
    coverage = Coverage(Limits(text=5))
    assert coverage.cut(b"longer", "text", "the text") == b"longe"
    assert [(each.place, each.reason, each.limit) for each in coverage.missed] == [
        ("the text", MissedReason.LIMIT, "text")
    ]


def test_items_beyond_the_limit_are_recorded():
    coverage = Coverage(Limits(files=2))
    assert list(coverage.first("ab", "files", "a.zip")) == ["a", "b"]
    assert coverage.complete
    assert list(coverage.first("abc", "files", "a.zip")) == ["a", "b"]
    assert coverage.missed[0].limit == "files"


def test_an_unknown_limit_is_an_error_of_ours():
    with pytest.raises(AttributeError):
        Coverage().beyond("no_such_limit", "somewhere")


def test_a_flood_of_records_keeps_every_kind():
    coverage = Coverage()
    for number in range(KEPT.missed + 10):
        coverage.damaged(f"file {number}", "cut off")
    coverage.encrypted("last.zip")
    coverage.beyond("files", "last.zip")
    assert {each.reason for each in coverage.missed} == {
        MissedReason.DAMAGED,
        MissedReason.ENCRYPTED,
        MissedReason.LIMIT,
    }
    assert len(coverage.missed) == KEPT.missed + 2
