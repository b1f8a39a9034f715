"""The address of a search holds all of it, and the way back over the pages."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from mailwarden.console.screens.messages import HELP, MAX_NEWER, Search, read_search
from mailwarden.errors import InvalidQuery
from mailwarden.history.query import parse_query
from mailwarden.history.store import Cursor
from mailwarden.model.ggrid import new_ggrid
from mailwarden.policy.rules import load_policy


def read(address: str) -> Search:
    return read_search(dict(parse_qsl(urlsplit(address).query)))


def test_an_address_is_read_as_the_search_it_was_made_from() -> None:
    place = new_ggrid()
    between = Cursor(place, new_ggrid())
    for search in (
        Search(),
        Search(text='from:"Jane & Döe" -tag:url.mismatch', range="24h"),
        Search(text="x", range="between", since="2026-11-15T08:30", until="2026-11-15T09:30"),
        Search(text="x", before=Cursor(place), newer=("first", str(new_ggrid()))),
        Search(text="x", before=between, newer=("first", str(Cursor(new_ggrid(), new_ggrid())))),
        Search(text="x", tail=True, seen=place),
    ):
        assert read(search.address()) == search


def test_older_and_newer_lead_there_and_back() -> None:
    first = Search(text="hello")
    second = read(first.to_older(Cursor(new_ggrid())))
    third = read(second.to_older(Cursor(new_ggrid())))
    assert read(third.to_newer()) == second
    assert read(second.to_newer()) == first


def test_the_way_back_is_bounded() -> None:
    search = Search()
    for _ in range(MAX_NEWER + 30):
        search = read(search.to_older(Cursor(new_ggrid())))
    assert len(search.newer) == MAX_NEWER
    for _ in range(MAX_NEWER):
        search = read(search.to_newer())
    assert search.before is not None
    assert read(search.to_newer()) == Search()


@pytest.mark.parametrize("query", [{"before": "x"}, {"newer": "first.x"}, {"range": "x"}, {"tail": "1", "seen": "x"}])
def test_a_forged_page_parameter_is_an_error(query: dict[str, str]) -> None:
    with pytest.raises(InvalidQuery):
        read_search(query)


def test_the_help_shows_searches_that_can_be_made_and_tags_that_there_are() -> None:
    examples = [example for example, _ in HELP if "…" not in example and not example.startswith("tenant:")]
    for example in examples:
        assert len(parse_query(example).conditions) == 1, example
    named = {tag for example in examples if example.startswith("tag:") for tag in example[4:].split(",")}
    assert named
    assert named <= set(load_policy().tags)
