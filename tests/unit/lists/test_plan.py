"""What an import would do is told before it does anything."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import UNSET

from mailwarden.cli.lists_import import StateFile, render_preview
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.files import BadRow, Plan, Row, compare, normalised, survey
from mailwarden.lists.requests import PublicListsEntry

MOMENT = datetime(2027, 1, 31, 12, tzinfo=UTC)


def present(entry: str, comment: str = "", expires: str | None = None) -> PublicListsEntry:
    moment = "2026-01-01T00:00:00.000Z"
    return PublicListsEntry(entry, comment, moment, "key:a", moment, "key:a", expires, 0, None)


def test_rows_are_normalised_and_invalid_ones_reported_with_their_line():
    given: list[Row | BadRow] = [
        Row(1, "Billing@Spam.Example"),
        Row(2, "not an address"),
        Row(3, "co.uk"),
        BadRow(4, "x", "Not CSV"),
    ]

    first, invalid, broad, broken = normalised(find_list("sender-block"), given, "feed", MOMENT)

    assert first == Row(1, "billing@spam.example", "feed", MOMENT)
    assert [bad.line for bad in (invalid, broad, broken)] == [2, 3, 4]
    assert all(isinstance(bad, BadRow) for bad in (invalid, broad, broken))


def test_a_row_keeps_its_own_comment_and_time():
    (row,) = normalised(find_list("sender-block"), [Row(1, "a.example", "mine", None)], "feed", MOMENT)
    assert row == Row(1, "a.example", "mine", None)


def test_of_a_repeated_entry_the_last_row_counts():
    seen = survey([Row(1, "a.example", "one"), Row(2, "b.example"), Row(3, "a.example", "two")])
    assert (seen.rows, seen.repeated) == (3, 1)
    assert seen.last == {"a.example": Row(3, "a.example", "two"), "b.example": Row(2, "b.example")}


def test_new_changed_and_unchanged_entries_are_distinguished():
    rows = survey(
        [Row(1, "new.example"), Row(2, "same.example", "why"), Row(3, "other.example", "why"), Row(4, "kept.example")]
    )
    there = [present("same.example", "why"), present("other.example", "old"), present("kept.example", "old")]

    assert rows.last is not None
    plan = compare(rows.last, there)

    assert (plan.new, plan.changed, plan.unchanged) == (1, 1, 2)
    assert plan.sends(Row(1, "new.example"))
    assert plan.sends(Row(3, "other.example"))
    assert not plan.sends(Row(2, "same.example"))
    assert not plan.sends(Row(9, "new.example"))


@pytest.mark.parametrize(
    ("expires", "there", "changed"),
    [
        (MOMENT, "2027-01-31T12:00:00.000Z", 0),
        (MOMENT + timedelta(microseconds=999), "2027-01-31T12:00:00.000Z", 0),
        (MOMENT + timedelta(milliseconds=1), "2027-01-31T12:00:00.000Z", 1),
        (None, "2027-01-31T12:00:00.000Z", 1),
        (None, None, 0),
        (UNSET, "2027-01-31T12:00:00.000Z", 0),
        (MOMENT, None, 1),
    ],
)
def test_a_time_is_compared_as_it_is_stored(expires, there, changed):
    plan = compare({"a.example": Row(1, "a.example", UNSET, expires)}, [present("a.example", "", there)])
    assert plan.changed == changed


def test_pruning_deletes_only_entries_of_the_feed():
    there = [present("gone.example", "feed"), present("mine.example", "by hand"), present("a.example", "feed")]
    assert compare({"a.example": Row(1, "a.example", "feed")}, there, "feed").gone == ("gone.example",)
    assert compare({"a.example": Row(1, "a.example", "feed")}, there).gone == ()


def test_a_file_too_large_to_compare_is_counted_and_sent_whole():
    seen = survey((Row(line, f"{line}.example") for line in range(1, 12)), most=10)
    assert (seen.rows, seen.last) == (11, None)
    assert Plan().sends(Row(1, "1.example"))


def test_the_preview_shows_the_numbers_and_the_first_mistakes():
    seen = survey([Row(1, "a.example"), *(BadRow(line, "?", "No.") for line in range(2, 30))])
    text = render_preview("sender-block", seen, Plan(new=1, lines_to_send={"a.example": 1}), 0)
    assert "new                 1" in text
    assert "line 2: '?': No." in text
    assert "and 8 more" in text


def test_the_state_is_for_one_content_and_one_list(tmp_path):
    feed = tmp_path / "feed.txt"
    feed.write_text("a.example\n")
    path = tmp_path / "feed.txt.import-state"
    assert StateFile(path, feed, "sender-block").line == 0

    StateFile(path, feed, "sender-block").remember(500)

    assert StateFile(path, feed, "sender-block").line == 500
    assert StateFile(path, feed, "sender-allow").line == 0
    feed.write_text("b.example\n")
    assert StateFile(path, feed, "sender-block").line == 0
    path.write_text("{")
    assert StateFile(path, feed, "sender-block").line == 0
