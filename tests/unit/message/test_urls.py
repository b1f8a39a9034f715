"""URLs are found in text, and their hosts are read as a browser reads them."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from publicsuffixlist import PublicSuffixList

from mailwarden.message import urls as reader
from mailwarden.message.coverage import Coverage
from mailwarden.message.limits import Limits
from mailwarden.message.urls import _suffix_rules, find_urls, host_of, is_public_suffix, registrable_domain


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("go to https://a.example/x?y=1.", ("https://a.example/x?y=1",)),
        ("(see http://a.example/b(c))", ("http://a.example/b(c)",)),
        ("www.a.example, and HTTP://B.example!", ("www.a.example", "HTTP://B.example")),
        ("<http://a.example>http://a.example", ("http://a.example",)),
        ("nothing here", ()),
    ],
)
def test_urls_are_found_without_the_punctuation_around_them(text: str, urls: tuple[str, ...]):
    assert find_urls(text) == urls


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://EXAMPLE.com/", "example.com"),
        ("https://user:pw@bad.example:8443/x", "bad.example"),
        ("https://good.example@bad.example/", "bad.example"),
        ("http:\\\\bad.example\\x", "bad.example"),
        ("ht\ntp://bad.example", "bad.example"),
        ("//bad.example/x", "bad.example"),
        ("http://bücher.example/", "xn--bcher-kva.example"),
        ("http://b%61d.example/", "bad.example"),
        ("http://bad.example./", "bad.example"),
        ("http://[2001:db8::1]:80/", "[2001:db8::1]"),
        ("mailto:a@b.example", ""),
        ("javascript:alert(1)", ""),
        ("", ""),
    ],
)
def test_the_host_is_read_as_by_a_browser(url: str, host: str):
    assert host_of(url) == host


def test_the_registrable_domain_knows_public_suffixes():
    assert registrable_domain("a.b.example.co.uk") == "example.co.uk"
    assert registrable_domain("co.uk") == ""
    assert registrable_domain("192.0.2.1") == ""


def test_the_search_is_bounded_and_linear():
    text = "http://" * 200_000 + " http://x.example/ " * 20_000
    started = time.process_time()  # other processes may be busy
    many = " ".join(f"http://{number}.example" for number in range(12_000))
    coverage = Coverage(Limits(urls=10_240))
    assert len(find_urls(many, coverage)) == 10_240
    assert [missed.limit for missed in coverage.missed] == ["urls"]
    find_urls(text)
    assert time.process_time() - started < 2


@given(st.text(max_size=300))
def test_any_text_is_searched(text: str):
    find_urls(text)
    host_of("http://" + text)
    registrable_domain(host_of("http://" + text))


def test_public_suffixes_are_those_of_the_list_with_its_wildcards_and_exceptions():
    known = PublicSuffixList()
    names = {rule.removeprefix("!").removeprefix("*.") for rule in _suffix_rules()}
    for name in names:
        for domain in (name, f"www.{name}", f"a.b.{name}", name.partition(".")[2] or "example"):
            assert is_public_suffix(domain) == known.is_public(domain, accept_unknown=False), domain
    assert [is_public_suffix(name) for name in ("co.uk", "www.ck", "foo.ck", "example", "example.com", "")] == [
        True, False, True, False, False, False,
    ]  # fmt: skip


BITS = (
    *("http://", "HTTPS://", "ftp://", "http\u017f://", "://", "s://", "www.", "WwW.", "wwww.", "xwww.", "-www."),
    *("a", "b1", ".com", "\u3002com", "\uff0enet", ".", " ", "\n", "<", ">", '"', "/path?x=1", ".xn--p1ai"),
    *("1.2.3.4", "10.0.0.1:80", "1.2.3.4/x", "@", "\xe9", "..", "-", "_", "|", "\\", ".co.uk", "\uff11.\uff12", "="),
)
# The same patterns, tried at every character.
LAST_LABEL = re.compile(r"[\w-][.\u3002\uff0e\uff61](xn--[a-z0-9-]{1,59}|[^\W\d_]{2,63})(?![\w@-]|\.\w)", re.IGNORECASE)


@given(st.lists(st.sampled_from(BITS), max_size=14).map("".join))
def test_the_search_at_marks_finds_every_url_and_name(text):
    assert list(reader._written_urls(text)) == [match[0] for match in reader._URL.finditer(text)]
    labels = [match[1] for match in LAST_LABEL.finditer(text)]
    assert [match[1] for match in reader._last_labels(text)] == labels
    assert bool(reader._FOUR_NUMBERS.search(text)) >= bool(reader._BARE_ADDRESS.search(text))


@given(st.lists(st.sampled_from([*"aA1-._:/\\@?#%\t ", "b.com", "%41", "\u200b", "é", ":80", "x" * 130]), max_size=8))
def test_a_plain_host_is_read_as_any_other(pieces):
    url = "https://" + "".join(pieces)
    shouted = "HTTPS" + url.removeprefix("https")  # no plain address, so that it is read step by step
    assert host_of(url) == host_of(shouted)
