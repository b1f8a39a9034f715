"""Entries that are read many at a time get exactly the result of reading each by itself."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailwarden.errors import EntryTooBroad, InvalidEntry
from mailwarden.lists.catalogue import CATALOGUE, find_list
from mailwarden.lists.service import read_entries
from tests.properties import examples

DEFINITION = st.sampled_from(CATALOGUE)
LABEL = st.from_regex(r"[a-z0-9_-]{1,6}", fullmatch=True)
HOST = st.lists(
    st.one_of(LABEL, st.sampled_from(["example", "com", "ck", "co", "uk", "gmail", "0x7f", "xn--p1ai"])),
    min_size=1,
    max_size=4,
).map(".".join)
STEP = st.from_regex(r"[A-Za-z0-9_.~:@()*%-]{0,4}", fullmatch=True)
WRITTEN = st.one_of(
    HOST,
    st.builds("{}@{}".format, st.from_regex(r"[a-zA-Z0-9._+='-]{0,6}", fullmatch=True), HOST),
    st.builds(
        "{}{}/{}".format,
        st.sampled_from(["", "http://", "https://", "HTTP://", "hxxp://"]),
        HOST,
        st.lists(STEP, max_size=3).map("/".join),
    ),
    st.builds("http://{}?{}".format, HOST, STEP),
    st.builds("{}.{}.{}.{}".format, *[st.integers(0, 300)] * 4),
    st.from_regex(r"[0-9a-f]{32}([0-9a-f]{8}([0-9a-f]{24})?)?", fullmatch=True),
    st.sampled_from(
        [
            "co.uk",
            "www.ck",
            "x.ck",
            "x.y.ck",
            "ck",
            "gmail.com",
            "*.example.com",
            "a.example\nb.example",
            "\n",
            "",
            " a.example",
            "A.example",
            "bücher.example",
            "\ud800.example",
            "d41d8cd98f00b204e9800998ecf8427e",
            "a" * 63 + ".example",
            "a" * 64 + ".example",
            ".".join(["a" * 60] * 4) + ".example",
            ".".join(["a" * 60] * 5) + ".example",
            "a@" + "b.example",
            "a" * 257 + "@b.example",
            "http://http://a.example",
            "a.example/http://b.example",
            "a.example/x/",
            "a.example//x",
            "a.example?",
        ]
    ),
    st.text(max_size=12),
)


def one_by_one(definition, texts):
    entries, details, invalid = [], [], False
    for index, text in enumerate(texts):
        try:
            entries.append(definition.normalise(text))
        except (InvalidEntry, EntryTooBroad) as error:
            details.append((index, error.message.encode("utf-8", "replace").decode()))
            invalid = invalid or isinstance(error, InvalidEntry)
    if details:
        return (InvalidEntry if invalid else EntryTooBroad), details
    return entries


def together(definition, texts):
    try:
        return read_entries(definition, texts)
    except (InvalidEntry, EntryTooBroad) as error:
        return type(error), [(each["index"], each["reason"]) for each in error.details]


@examples(1_500)
@given(DEFINITION, st.lists(WRITTEN, min_size=1, max_size=4))
@example(find_list("sender-allow"), ["gmail.com"])
@example(find_list("sender-block"), ["x.ck"])
@example(find_list("sender-block"), ["a.example\nb.example"])
@example(find_list("sender-block"), [".".join(["a" * 60] * 5) + ".example"])
@example(find_list("sender-block"), ["\ud800.example"])
@example(find_list("url-block"), ["https://a.example/x?y=1", "http://b.example"])
@example(find_list("file-hash-block"), ["d41d8cd98f00b204e9800998ecf8427e"])
def test_entries_read_together_equal_those_read_one_by_one(definition, texts):
    assert together(definition, texts) == one_by_one(definition, texts)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sender-block", "joe.smith+x@mail.shop-1.example"),
        ("recipient-exempt", "shop-1.example"),
        ("protected-domains", "shop-1.example"),
        ("simulation-senders", "shop-1.example"),
        ("url-block", "https://shop.example/Login/index.php?id=7"),
        ("url-allow", "shop.example"),
        ("ip-block", "192.0.2.255"),
        ("file-hash-block", "098f6bcd4621d373cade4e832627b4f6"),
        ("file-hash-allow", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
    ],
)
def test_usual_entries_are_read_together(name, text):
    definition = find_list(name)
    assert definition.normalise_plain([text] * 300) == [definition.normalise(text)] * 300


def test_one_entry_in_another_form_leaves_the_others_plain():
    texts = [f"a{number}.example" for number in range(300)]
    texts[150] = "A150.example"
    plain = find_list("sender-block").normalise_plain(texts)
    assert plain[:100] == texts[:100]
    assert plain[200:] == texts[200:]
    assert read_entries(find_list("sender-block"), texts) == [text.lower() for text in texts]
