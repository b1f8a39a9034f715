"""The records of the List API: what is read and what is refused."""

import json

import pytest

from mailwarden.errors import InvalidJson, SchemaViolation
from mailwarden.lists.requests import AddEntries, GetLists, PublicListsEntry, read_request

LINE = {
    "entry": "a.example", "comment": "", "created": "2026-11-15T03:20:00.123Z", "createdBy": "key:soar",
    "updated": "2026-11-15T03:20:00.123Z", "updatedBy": "key:soar", "expires": None, "hits": 3, "lastHit": None,
}  # fmt: skip


def body(**fields: object) -> bytes:
    return json.dumps(fields).encode()


def test_a_line_of_a_stream_can_be_given_back():
    assert set(PublicListsEntry.__struct_encode_fields__) == set(LINE)
    (entry,) = read_request(body(listName="sender-block", entries=[LINE]), AddEntries).entries
    assert (entry.entry, entry.comment, entry.expires) == ("a.example", "", None)


def test_the_global_scope_is_absent_or_null():
    assert read_request(b"{}", GetLists).tenant_uid is None
    assert read_request(b'{"tenantUid": null}', GetLists).tenant_uid is None


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"entries": []}, ""),
        ({"listName": "x"}, ""),
        ({"listName": "X", "entries": []}, "/listName"),
        ({"listName": "a--b", "entries": []}, "/listName"),
        ({"listName": "x\n", "entries": []}, "/listName"),
        ({"listName": "x" * 65, "entries": []}, "/listName"),
        ({"listName": "x", "entries": {}}, "/entries"),
        ({"listName": "x", "entries": ["a"]}, "/entries/0"),
        ({"listName": "x", "entries": [{"entry": "a"}, {}]}, "/entries/1"),
        ({"listName": "x", "entries": [{"entry": 1}]}, "/entries/0/entry"),
        ({"listName": "x", "entries": [{"entry": "a", "comment": None}]}, "/entries/0/comment"),
        ({"listName": "x", "entries": [{"entry": "a", "comment": "c" * 1_025}]}, "/entries/0/comment"),
        ({"listName": "x", "entries": [{"entry": "a", "expires": "tomorrow"}]}, "/entries/0/expires"),
        ({"listName": "x", "entries": [{"entry": "a", "expires": "2030-01-01T00:00:00"}]}, "/entries/0/expires"),
        ({"listName": "x", "entries": [{"entry": "a", "note": "b"}]}, "/entries/0"),
        ({"listName": "x", "entries": [], "tenantUID": None}, ""),
    ],
)
def test_a_wrong_type_is_reported_with_its_place(fields, pointer):
    with pytest.raises(SchemaViolation) as caught:
        read_request(body(**fields), AddEntries)
    assert caught.value.details[0]["pointer"] == pointer


def test_an_invalid_list_name_is_reported_in_words():
    with pytest.raises(SchemaViolation) as caught:
        read_request(body(listName="Sender_Block", entries=[]), AddEntries)
    assert str(caught.value.details[0]["problem"]).startswith("Must be the name of a list")


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b'{"a":1,"a":1}', b'{"tenantUid":NaN}', b"\xff", b"{}{}", b'{"x":"\\u0000"}']
)
def test_a_body_that_is_no_json_object_is_rejected(raw):
    with pytest.raises(InvalidJson):
        read_request(raw, GetLists)
