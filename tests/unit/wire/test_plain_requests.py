"""The fast way to read a request of the List API or a scan gives exactly the result of the strict one."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mailwarden.errors import MailwardenError
from mailwarden.lists.requests import AddEntries, DeleteEntries, GetLists, ListEntries
from mailwarden.wire.scanning import MessageAnalysisRequest
from mailwarden.wire.strict_json import convert, read_object, read_plain
from tests.properties import examples

KINDS = (AddEntries, DeleteEntries, GetLists, ListEntries, MessageAnalysisRequest)
TEXT = st.one_of(
    st.text(max_size=8), st.sampled_from(["a.example", '"', "\\", "entry", "comment", "é", "\x7f", "\x00"])
)
TIMES = st.sampled_from(
    ["2026-12-31T23:59:59Z", "2026-12-31T23:59:59", "2026-02-30T00:00:00Z", "0001-01-01T00:00:00+23:00"]
)
VALUE = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT, TIMES, st.lists(TEXT, max_size=2))
FIELDS = ("entry", "comment", "expires", "created", "createdBy", "updated", "updatedBy", "hits", "lastHit", "Entry")
ENTRY = st.lists(
    st.one_of(
        st.tuples(st.just("entry"), TEXT),
        st.tuples(st.just("comment"), TEXT),
        st.tuples(st.just("expires"), TIMES),
        st.tuples(st.sampled_from(FIELDS), VALUE),
    ),
    max_size=4,
)
UIDS = st.sampled_from(["01890000-0000-7000-8000-000000000001", "x", None])
LIST_NAME = st.one_of(st.sampled_from(["sender-block", "a--b", "X"]), TEXT)
MEMBERS = st.lists(
    st.one_of(
        st.tuples(st.just("listName"), st.just("sender-block")),
        st.tuples(st.just("entries"), st.lists(st.one_of(ENTRY, TEXT), max_size=3)),
        st.tuples(st.sampled_from(["listName", "entries", "tenantUid"]), st.one_of(UIDS, LIST_NAME, VALUE)),
    ),
    max_size=4,
)
SPACE = st.sampled_from(["", " ", "\n", "\t"])


def written(value: object, space: str, escaped: bool) -> str:
    """Return JSON in which a list of pairs is an object, so that a key can occur twice."""
    if isinstance(value, list) and all(isinstance(each, tuple) for each in value) and value:
        pairs = (f"{json.dumps(key)}{space}:{space}{written(each, space, escaped)}" for key, each in value)
        return "{" + f",{space}".join(pairs) + space + "}"
    if isinstance(value, list):
        return "[" + f"{space},".join(written(each, space, escaped) for each in value) + "]"
    return json.dumps(value, ensure_ascii=escaped)


DOCUMENT = st.builds(
    lambda members, space, escaped: (written(members, space, escaped) + space).encode("utf-8", "surrogatepass"),
    MEMBERS, SPACE, st.booleans(),
)  # fmt: skip
PIECES = [
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b'"',
    b"\\",
    b"\x00",
    b"\xff",
    b"null",
    b"1",
    b'"entry":"a"',
    b"\xef\xbb\xbf",
]


@st.composite
def damaged(draw):
    """Return a document with a piece put in place of some of its bytes."""
    raw = draw(DOCUMENT)
    start = draw(st.integers(0, len(raw)))
    return raw[:start] + draw(st.sampled_from(PIECES)) + raw[start + draw(st.integers(0, 3)) :]


def outcome(read: Callable[[], object]) -> object:
    try:
        return repr(read())
    except MailwardenError as error:
        return type(error), error.message, error.details


def strictly(raw: bytes, kind: type[Any]) -> object:
    return outcome(lambda: convert(read_object(raw), kind))


@examples(1_500)
@given(st.one_of(DOCUMENT, damaged()), st.sampled_from(KINDS))
@example(b'{"listName":"x","entries":[{"entry":"a","entry":"b"}]}', AddEntries)
@example(b'{"listName":"x","entries":[{"entry":"a"}],"entries":[{"entry":"a","comment":"b"}]}', AddEntries)
@example(b'{"listName":"x","listName":"y","entries":[{"entry":"a","created":null}]}', AddEntries)
@example(b'{"listName":"x","entries":[{"entry":"a","hits":1,"hits":2}]}', AddEntries)
@example(b'{"tenantUid":null,"tenantUid":null}', GetLists)
@example(b'{"tenantUid":null,"tenantUid":"01890000-0000-7000-8000-000000000001"}', GetLists)
@example(b'{"listName":"x","entries":["a","\xed\xa0\x80"]}', DeleteEntries)
@example(b'{"listName":"x","entries":["a\\u0000"]}', DeleteEntries)
@example(b'{"borderMtaData":{"envelopeFrom":"","envelopeFrom":"","envelopeRecipients":["a"]}}', MessageAnalysisRequest)
@example(
    b'{"borderMtaData":{"envelopeFrom":"\n","envelopeRecipients":["a"],"senderHelo":null}}', MessageAnalysisRequest
)
def test_a_plain_request_is_read_as_the_strict_parser_does(raw, kind):
    found = read_plain(raw, kind)
    assert found is None or repr(found) == strictly(raw, kind)


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b'{"listName":"x","entries":[{"entry":"a"},{"entry":"b","comment":"c","expires":null}]}', AddEntries),
        (b'{ "listName": "x", "entries": [{"entry" : "\xc3\xa9", "hits": 3, "createdBy": "key:soar"}]}', AddEntries),
        (b'{"listName":"x","entries":["a","b"],"tenantUid":"01890000-0000-7000-8000-000000000001"}', DeleteEntries),
        (b"{}", GetLists),
        (b'{"listName":"x"}', ListEntries),
        (b'{"borderMtaData":{"envelopeFrom":"","envelopeRecipients":["a@b.example"]}}', MessageAnalysisRequest),
    ],
)
def test_usual_requests_take_the_fast_way(raw, kind):
    assert repr(read_plain(raw, kind)) == strictly(raw, kind)
