"""The changes that a call writes, and the texts in which they travel to PostgreSQL."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import changes_of, json_text, time_text
from mailwarden.lists.store import MARK, NULL, joined

MOMENT = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
INPUT = st.builds(
    ListEntryInput,
    st.sampled_from(["c.example", "a.example", "b.example"]),
    st.sampled_from([UNSET, "", 'why "b"']),
    st.sampled_from([UNSET, None, MOMENT]),
)


@given(st.lists(INPUT, min_size=1, max_size=6))
def test_entries_are_sorted_and_the_last_input_counts(inputs):
    last = {each.entry: index for index, each in enumerate(inputs)}
    changes = changes_of(last, inputs)
    assert changes.entries == sorted(last)
    chosen = [inputs[last[entry]] for entry in changes.entries]
    assert changes.comments == [UNSET if each.comment is UNSET else json_text(each.comment) for each in chosen]
    assert changes.expiries == [time_text(MOMENT) if each.expires is MOMENT else each.expires for each in chosen]


@given(st.lists(st.sampled_from(["x", "", UNSET, None]), min_size=1, max_size=5))
def test_values_that_are_not_text_travel_as_null(values):
    assert joined(values).split(MARK) == [each if isinstance(each, str) else NULL for each in values]


@pytest.mark.parametrize("values", [["a\x1fb"], [UNSET, "a\x1fb"], []])
def test_values_that_cannot_be_split_again_are_refused(values):
    with pytest.raises(ValueError, match="mark"):
        joined(values)
