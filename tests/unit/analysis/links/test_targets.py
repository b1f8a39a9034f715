"""Where a link leads is told from its address, whatever is wrapped around it, and nothing raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mailwarden.analysis.links.hosts import HostKind, has_cheap_ending, kind_of
from mailwarden.analysis.links.recipient_marks import RecipientMarks
from mailwarden.analysis.links.targets import (
    Parties,
    destination,
    follow,
    is_counted,
    is_random,
    look_at_address,
    look_at_links_of,
    parties_of,
    unwrap,
)
from mailwarden.analysis.view import View
from mailwarden.message.parser import parse_message
from mailwarden.model.place import Place

PARTIES = Parties(frozenset({"north.example", "south.example"}), RecipientMarks(("bob@south.example",)))


def noticed(url: str) -> set[str]:
    return {what for what, _ in look_at_address(url, PARTIES)}


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("bit.ly", HostKind.SHORTENER),
        ("a.b.pages.dev", HostKind.HOSTING),
        ("sites.google.com", HostKind.HOSTING),
        ("www.google.com", HostKind.KNOWN),
        ("x.blob.core.windows.net", HostKind.STORAGE),
        ("eur01.safelinks.protection.outlook.com", HostKind.GATEWAY),
        ("notbit.ly", HostKind.OTHER),
        ("", HostKind.OTHER),
    ],
)
def test_a_host_is_known_by_the_longest_name_above_it(host, kind):
    assert kind_of(host) is kind


def test_cheap_endings_are_those_of_one_or_two_names():
    assert has_cheap_ending("shop.top")
    assert has_cheap_ending("a.sa.com")
    assert not has_cheap_ending("top")
    assert not has_cheap_ending("top.example")


@pytest.mark.parametrize(
    ("url", "inner"),
    [
        ("https://www.google.com/url?q=https%3A%2F%2Fthief.example%2Fa&sa=D", "https://thief.example/a"),
        ("https://www.google.co.uk/amp/s/thief.example/a", "https://thief.example/a"),
        ("https://www.bing.com/ck/a?!&&p=1&u=a1aHR0cHM6Ly90aGllZi5leGFtcGxlL2E&ntb=1", "https://thief.example/a"),
        ("https://track.pstmrk.it/3s/thief.example%2Fa/3TIB/x", "https://thief.example/a/3TIB/x"),
        ("https://far.example/?u=%68%74%74%70://thief.example/", "http://thief.example/"),
        ("https://www.google.com/url?sa=t&url=https%253A%252F%252Fthief.example%252Fa", "https://thief.example/a"),
        ("https://www.google.com/url?q=//thief.example/a&sa=D", "https://thief.example/a"),
        ("https://www.google.co.uk/amp/s/%74hief.example/a", "https://thief.example/a"),
        ("https://www.tiktok.com/link/v2?aid=1&target=thief.example/a", "https://thief.example/a"),
    ],
)
def test_the_address_inside_an_address_is_found(url, inner):
    assert next(follow(url)) == inner


def test_an_address_of_the_same_organisation_inside_is_no_redirection():
    assert list(follow("https://www.north.example/?next=https://shop.north.example/")) == []
    assert list(follow("https://www.google.com/search?q=thief.example")) == []


def test_a_gateway_is_taken_off_and_a_known_organisation_is_passed():
    wrapped = "https://eur01.safelinks.protection.outlook.com/?url=https%3A%2F%2Fwww.north.example%2Fa&data=05"
    assert unwrap(wrapped) == "https://www.north.example/a"
    assert noticed(wrapped) == set()
    assert destination("https://l.facebook.com/l.php?u=https%3A%2F%2Fthief.example%2Fa") == "https://thief.example/a"


@pytest.mark.parametrize(
    ("url", "how"),
    [
        ("https://thief.example/?e=bob@south.example", "plain"),
        ("https://thief.example/?e=BOB%40SOUTH.example", "plain"),
        ("https://thief.example/#Ym9iQHNvdXRoLmV4YW1wbGU", "base64"),
        ("https://thief.example/626f6240736f7574682e6578616d706c65", "hexadecimal"),
        ("https://thief.example/?e=ada@north.example", ""),
    ],
)
def test_a_recipient_is_found_in_every_encoding(url, how):
    assert PARTIES.marks.find(url) == how


@pytest.mark.parametrize(
    "url", ["http://localhost:3000/", "http://10.0.0.1:8888/a", "https://www.north.example/login", "#x"]
)
def test_private_hosts_and_own_domains_are_not_foreign(url):
    assert noticed(url) == set()


def test_words_are_no_tokens_and_pronounceable_names_not_random():
    assert not is_counted("/Getting_Started_with_the_Ferries_2026/index.html")
    assert is_counted("/x/aB3dE5gH7jK9mN1pQ3sT5vW7")
    assert not is_random("northferries")
    assert is_random("zytqxzwrtp")


@pytest.mark.slow
@given(st.text(max_size=300))
def test_no_text_breaks_the_look_at_an_address(text):
    for url in (text, f"http://{text}", f"https://a.example/?u={text}", f"https://www.google.com/url?q=http://{text}"):
        noticed(url)
        destination(url)
        PARTIES.marks.find(url)


def test_each_link_of_a_document_is_reported_once_for_its_host():
    links = [f"https://shop{number}.example:8081/{page}" for number in range(7) for page in ("a", "b")]
    found = [each for each in look_at_links_of(Place(part="2"), links, PARTIES) if each.name == "urls.unusual-port"]
    assert [each.facts["url"] for each in found] == [f"https://shop{number}.example:8081/a" for number in range(7)]


def test_each_tenant_has_the_parties_of_its_own_recipients():
    view = View(parse_message(b"From: ann@north.example\r\nTo: bob@south.example\r\n\r\nhi\r\n"))
    first = parties_of(view)
    view.recipients_read = False
    assert parties_of(view) is first
    assert view.recipients_read  # an analyzer that got them depends on the recipients
    other = view.for_recipients(("eve@west.example",))
    assert parties_of(other).is_recipients("west.example")
    assert not parties_of(other).is_recipients("south.example")
    assert parties_of(view) is first
