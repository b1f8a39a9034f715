"""Any number of entries becomes calls that the API takes."""

from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest

from mailwarden.lists.requests import AddEntries, DeleteEntries, GetLists, ListEntries, read_request
from mailwarden_client import NewEntry
from mailwarden_client.requests import add_entries, delete_entries, entries, lists

TENANT = UUID("01890000-0000-7000-8000-000000000001")


@pytest.mark.parametrize(
    ("number", "calls"), [(0, []), (1, [1]), (500, [500]), (501, [500, 1]), (1200, [500, 500, 200])]
)
def test_entries_are_split_into_calls_of_500(number, calls):
    requests = list(add_entries("sender-block", (f"a{index}@spam.example" for index in range(number)), None))

    bodies = [read_request(request.body, AddEntries) for request in requests]

    assert [request.entries for request in requests] == calls
    assert [each.entry for body in bodies for each in body.entries] == [f"a{i}@spam.example" for i in range(number)]


def test_a_call_is_never_larger_than_the_api_takes():
    entries = [NewEntry("\U0001f4a3" * 2000, "\U0001f4a3" * 1024)] * 500

    requests = list(add_entries("subject-block", entries, TENANT))

    assert len(requests) > 1
    assert sum(request.entries for request in requests) == 500
    assert all(len(request.body) <= 4_194_304 for request in requests)


def test_absent_fields_of_an_entry_are_not_sent():
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    given = [
        NewEntry("a.example"),
        NewEntry("b.example", ""),
        NewEntry("c.example", "why", None),
        NewEntry("d.example", expires=moment),
    ]

    (request,) = add_entries("sender-block", given, None)

    assert msgspec.json.decode(request.body) == {
        "listName": "sender-block",
        "entries": [
            {"entry": "a.example"},
            {"entry": "b.example", "comment": ""},
            {"entry": "c.example", "comment": "why", "expires": None},
            {"entry": "d.example", "expires": "2030-01-01T00:00:00Z"},
        ],
    }


def test_the_tenant_is_named_in_every_call():
    requests = list(delete_entries("ip-block", ["192.0.2.1"] * 501, TENANT))
    assert [read_request(each.body, DeleteEntries).tenant_uid for each in requests] == [TENANT, TENANT]
    assert read_request(lists(str(TENANT)).body, GetLists).tenant_uid == TENANT
    assert read_request(entries("ip-block", None).body, ListEntries) == ListEntries("ip-block")


def test_an_empty_tenant_is_not_the_global_scope():
    assert b'"tenantUid":""' in lists("").body
