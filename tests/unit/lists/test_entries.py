"""The entries of one call are taken together or refused together, with every reason."""

import msgspec
import pytest

from mailwarden.errors import EntryTooBroad, InvalidEntry, TooManyEntries
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.service import MAX_ENTRIES, read_entries, spell_entries

SENDERS = find_list("sender-block")


def test_entries_come_back_in_their_order():
    assert read_entries(SENDERS, ["B.example", "a@B.example", "b.example"]) == [
        "b.example",
        "a@b.example",
        "b.example",
    ]


def test_every_invalid_entry_is_reported_with_its_index():
    with pytest.raises(InvalidEntry, match="3 entries") as refused:
        read_entries(SENDERS, ["a.example", "no dot", "co.uk", "b.example", "x"])
    assert [detail["index"] for detail in refused.value.details] == [1, 2, 4]
    assert refused.value.details[1]["entry"] == "co.uk"
    assert "public suffix" in str(refused.value.details[1]["reason"])


def test_entries_that_are_only_too_broad_have_their_own_error():
    with pytest.raises(EntryTooBroad, match="1 entry"):
        read_entries(SENDERS, ["a.example", "co.uk"])


def test_details_are_valid_json_and_truncated_for_any_entry():
    with pytest.raises(InvalidEntry) as refused:
        read_entries(SENDERS, ["\ud800.example", "x" * 5_000])
    msgspec.json.encode(refused.value.details)
    assert len(str(refused.value.details[1]["entry"])) <= 200


def test_more_than_500_entries_are_refused_before_one_is_read():
    for read in (read_entries, spell_entries):
        with pytest.raises(TooManyEntries):
            read(SENDERS, [""] * (MAX_ENTRIES + 1))


def test_deleting_accepts_any_spelling_and_ignores_invalid_entries():
    assert spell_entries(SENDERS, ["B[.]example", "no dot", "\ud800", "", "a.example", "b.example."]) == [
        "a.example",
        "b.example",
    ]
