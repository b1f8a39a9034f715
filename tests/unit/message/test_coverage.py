"""Coverage: what a reader did not inspect is recorded once, bounded, and never forgotten by kind."""

import pytest

from mailwarden.message.coverage import Coverage, MissedReason
from mailwarden.message.limits import KEPT, Limits
from mailwarden.model.place import THE_TEXT, Place, area


def test_a_text_within_the_limit_is_returned_whole():
    coverage = Coverage(Limits(text=5))
    assert coverage.cut("short", "text", THE_TEXT) == "short"
    assert coverage.complete


def test_a_text_beyond_the_limit_is_cut_and_recorded():
    coverage = Coverage(Limits(text=5))
    assert coverage.cut(b"longer", "text", THE_TEXT) == b"longe"
    assert [(each.place, each.reason, each.limit) for each in coverage.missed] == [
        (THE_TEXT, MissedReason.LIMIT, "text")
    ]


def test_items_beyond_the_limit_are_recorded():
    coverage = Coverage(Limits(files=2))
    assert list(coverage.first("ab", "files", Place(part="2", name="a.zip"))) == ["a", "b"]
    assert coverage.complete
    assert list(coverage.first("abc", "files", Place(part="2", name="a.zip"))) == ["a", "b"]
    assert coverage.missed[0].limit == "files"


def test_an_unknown_limit_is_an_error_of_ours():
    with pytest.raises(AttributeError):
        Coverage().beyond("no_such_limit", THE_TEXT)


def test_a_flood_of_records_keeps_every_kind():
    coverage = Coverage()
    for number in range(KEPT.missed + 10):
        coverage.damaged(area(f"file {number}"), "cut off")
    coverage.encrypted(THE_TEXT)
    coverage.beyond("files", THE_TEXT)
    assert {each.reason for each in coverage.missed} == {
        MissedReason.DAMAGED,
        MissedReason.ENCRYPTED,
        MissedReason.LIMIT,
    }
    assert len(coverage.missed) == KEPT.missed + 2
