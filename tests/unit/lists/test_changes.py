"""The changes that a call writes."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import changes_of, json_text, time_text

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
    assert changes.comments == [None if each.comment is UNSET else json_text(each.comment) for each in chosen]
    stored = {UNSET: None, None: "", MOMENT: time_text(MOMENT)}
    assert (changes.expiries or [None] * len(chosen)) == [stored[each.expires] for each in chosen]
