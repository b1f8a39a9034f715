"""The lines of a stream: no entry of a plain kind can break out of its quotes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.kinds import KINDS
from mailwarden.lists.store import PLAIN_KINDS, lines_query

STRANGE = st.text(alphabet=st.sampled_from("ab1.@/\\\"'%:#?*<>[]() \t\x01\x02\x7f\u20ac\u201c&;{}"), max_size=30)
AROUND = st.builds(
    lambda first, second, form: form.format(first, second), STRANGE, STRANGE,
    st.sampled_from(["{}a@{}b.example", "https://a.example/{}?{}", "{}.example/{}", ".{}{}", "text/{}{}", "{}.a{}"]),
)  # fmt: skip


def test_every_plain_kind_exists():
    assert set(KINDS) >= PLAIN_KINDS


@pytest.mark.parametrize("name", sorted(PLAIN_KINDS))
@given(text=st.one_of(STRANGE, AROUND, st.text()))
def test_entries_of_a_plain_kind_need_no_escaping(name, text):
    try:
        stored = KINDS[name].spell(text)
    except (InvalidEntry, EntryTooBroad):
        return
    assert not set(stored) & set('"\\')
    assert not any(sign < " " or "\x7f" <= sign <= "\x9f" for sign in stored)


def test_other_kinds_are_written_by_the_database():
    assert "to_json(entry)" in lines_query("subject", 1)
    assert "to_json(entry)" in lines_query("person", 1)
    assert "to_json(entry)" not in lines_query("hash", 1)
