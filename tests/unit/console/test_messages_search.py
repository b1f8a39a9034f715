"""The address of a search holds all of it, and the way back over the pages."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from mailwarden.console.screens.messages import MAX_NEWER, Search, read_search
from mailwarden.errors import InvalidQuery
from mailwarden.model.ggrid import new_ggrid


def read(address: str) -> Search:
    return read_search(dict(parse_qsl(urlsplit(address).query)))


def test_an_address_is_read_as_the_search_it_was_made_from() -> None:
    place = new_ggrid()
    for search in (
        Search(),
        Search(text='from:"Jane & Döe" -tag:url.mismatch', range="24h"),
        Search(text="x", range="between", since="2026-11-15T08:30", until="2026-11-15T09:30"),
        Search(text="x", before=place, newer=("first", str(new_ggrid()))),
        Search(text="x", tail=True, seen=place),
    ):
        assert read(search.address()) == search


def test_older_and_newer_lead_there_and_back() -> None:
    first = Search(text="hello")
    second = read(first.to_older(new_ggrid()))
    third = read(second.to_older(new_ggrid()))
    assert read(third.to_newer()) == second
    assert read(second.to_newer()) == first


def test_the_way_back_is_bounded() -> None:
    search = Search()
    for _ in range(MAX_NEWER + 30):
        search = read(search.to_older(new_ggrid()))
    assert len(search.newer) == MAX_NEWER
    for _ in range(MAX_NEWER):
        search = read(search.to_newer())
    assert search.before is not None
    assert read(search.to_newer()) == Search()


@pytest.mark.parametrize("query", [{"before": "x"}, {"newer": "first.x"}, {"range": "x"}, {"tail": "1", "seen": "x"}])
def test_what_no_page_of_ours_wrote_is_a_mistake(query: dict[str, str]) -> None:
    with pytest.raises(InvalidQuery):
        read_search(query)
