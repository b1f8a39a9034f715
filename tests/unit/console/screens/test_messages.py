"""The address of a search holds all of it, and the way back over the pages."""

from datetime import UTC, datetime
from urllib.parse import parse_qsl, urlsplit

import pytest

from mailwarden.console.message_search import ADDRESS, MAX_NEWER, Search, read_back, read_search
from mailwarden.console.screens.messages import HELP, export_order, sorted_by
from mailwarden.errors import InvalidQuery
from mailwarden.history.store import Cursor, Order, Page
from mailwarden.model.ggrid import new_ggrid
from mailwarden.policy.rules import load_policy
from mailwarden.search.query import parse_query


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
        Search(text="x", order=Order.OLDEST, before=Cursor(place)),
        Search(order=Order.POINTS),
        Search(text="x", tail=True, seen=place),
    ):
        assert read(search.address()) == search


def test_older_and_newer_lead_there_and_back() -> None:
    first = Search(text="hello")
    second = read(first.to_next(Cursor(new_ggrid())))
    third = read(second.to_next(Cursor(new_ggrid())))
    assert read(third.to_previous()) == second
    assert read(second.to_previous()) == first


def test_the_way_back_is_bounded() -> None:
    search = Search()
    for _ in range(MAX_NEWER + 30):
        search = read(search.to_next(Cursor(new_ggrid())))
    assert len(search.newer) == MAX_NEWER
    for _ in range(MAX_NEWER):
        search = read(search.to_previous())
    assert search.before is not None
    assert read(search.to_previous()) == Search()


@pytest.mark.parametrize(
    "query",
    [{"before": "x"}, {"newer": "first.x"}, {"range": "x"}, {"order": "x"}, {"tail": "1", "seen": "x"}, {"open": "x"}],
)
def test_a_forged_page_parameter_is_an_error(query: dict[str, str]) -> None:
    with pytest.raises(InvalidQuery):
        read_search(query)


def test_the_open_message_is_read_and_left_out_of_links() -> None:
    place = Cursor(new_ggrid(), new_ggrid())
    search = read_search({"q": "x", "open": str(place)})
    assert search.open == place
    assert str(place.ggrid) not in search.address() + search.to_next(Cursor(new_ggrid()))


def test_a_form_returns_to_a_list_of_messages_only() -> None:
    address = Search(text="a b", before=Cursor(new_ggrid())).address()
    assert read_back(address) == address
    assert read_back(ADDRESS) == ADDRESS
    assert read_back(f"{ADDRESS}?range=nonsense&next=//evil.example") == ADDRESS
    for foreign in ("", "//evil.example", "https://evil.example/console/messages", "/console/messages/../keys"):
        assert read_back(foreign) == ""


def test_a_page_says_what_it_is_sorted_by() -> None:
    assert sorted_by(Order.OLDEST, Page(())) == "Oldest first."
    assert sorted_by(Order.POINTS, Page(())) == "Most points first."
    moment = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)
    part = sorted_by(Order.POINTS, Page((), complete=False, searched_to=moment))
    assert part == (
        "Most points first, of the newest matches only (since 2026-11-15 08:30 UTC). Older matches are not compared."
    )


def test_an_export_is_in_the_order_of_time() -> None:
    assert [export_order(Search(order=order)) for order in Order] == [Order.NEWEST, Order.OLDEST, Order.NEWEST]


def test_a_page_that_follows_is_newest_first() -> None:
    assert read_search({"tail": "1", "order": "oldest"}).order is Order.NEWEST


def test_the_help_shows_searches_that_can_be_made_and_tags_that_there_are() -> None:
    examples = [example for example, _ in HELP if "…" not in example and not example.startswith("tenant:")]
    for example in examples:
        assert len(parse_query(example).conditions) == 1, example
    named = {tag for example in examples if example.startswith("tag:") for tag in example[4:].split(",")}
    assert named
    assert named <= set(load_policy().tags)
