"""Lists as people read them: pages, search, and which lists a value meets."""

from datetime import UTC, datetime

import pytest

from mailwarden.database.pool import Database
from mailwarden.lists import entry_store
from mailwarden.lists.catalogue import find_list
from mailwarden.lists.checking import Checker
from mailwarden.lists.entry_store import EntryStore
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope
from mailwarden.model.scope import Actor
from tests.integration.lists.entries import LIST, SOAR, add

GLOBAL = ListScope()
ADA = Actor("user:ada", "192.0.2.9", "request-9")


async def test_a_page_of_a_list_goes_on_where_the_last_one_ended(database: Database, lists: ListService) -> None:
    await add(lists, GLOBAL, *(f"n{number:03}.example" for number in range(5)))
    entries = EntryStore(database)
    first = await entries.page(GLOBAL, find_list(LIST), limit=3)
    assert [each.entry for each in first.entries] == ["n000.example", "n001.example", "n002.example"]
    second = await entries.page(GLOBAL, find_list(LIST), after=first.after, limit=3)
    assert [each.entry for each in second.entries] == ["n003.example", "n004.example"]
    assert second.after == ""
    assert second.entries[0].created_by == "key:soar"


async def test_a_search_ignores_case_in_entries_and_comments(lists: ListService, acme: ListScope) -> None:
    await add(lists, acme, "evil.example", "mail.evil.example", comment='Ticket "7" of Ada')
    await add(lists, acme, "plain.example")
    for search, found in (
        ("EVIL", ["evil.example", "mail.evil.example"]),
        ('ticket "7"', ["evil.example", "mail.evil.example"]),
        ("plain", ["plain.example"]),
        ("hxxp-is-none", []),
        ("plain[.]example", ["plain.example"]),
        ("%", []),
        ("\x00", []),
    ):
        assert [each.entry for each in (await lists.page(acme, LIST, search)).entries] == found
    assert (await lists.page(GLOBAL, LIST, "evil")).entries == ()


async def test_a_slow_search_falls_back_to_prefixes_and_reports_it(
    lists: ListService, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    await add(lists, GLOBAL, "evil.example", "mail.evil.example")
    slow = entry_store._SEARCH.replace("AND entry > $3", "AND entry > $3 AND pg_sleep(1) IS NOT NULL")
    monkeypatch.setattr(entry_store, "_SEARCH", slow)
    monkeypatch.setattr(entry_store, "SEARCH_MS", 50)
    page = await lists.page(GLOBAL, LIST, "evil")
    assert page.prefix_only
    assert [each.entry for each in page.entries] == ["evil.example"]
    assert database.up


async def test_a_value_is_checked_in_the_lists_of_the_tenant_and_of_the_deployment(
    database: Database, lists: ListService, acme: ListScope, other: ListScope
) -> None:
    checker = Checker(EntryStore(database))
    await add(lists, GLOBAL, "*.evil.example", comment="feed")
    await add(lists, other, "mail.evil.example")
    await lists.add_entries(acme, "sender-allow", [ListEntryInput("a@mail.evil.example")], SOAR)
    await add(lists, acme, "mail.evil.example", expires=datetime(2020, 1, 1, tzinfo=UTC))
    checked = await checker.check(acme, "A@mail[.]evil.example")
    found = {
        (each.match.list_name, each.match.entry, each.match.tenant): each.expired for each in checked.found_entries
    }
    assert found == {
        (LIST, "mail.evil.example", acme.tenant): True,
        ("sender-allow", "a@mail.evil.example", acme.tenant): False,
        (LIST, "*.evil.example", None): False,
    }
    assert [match.list_name for match in checked.acting] == ["sender-allow"]
    assert [match.entry for match in (await checker.check(GLOBAL, "A@mail.evil.example")).acting] == ["*.evil.example"]


@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [
        ("ip-block", "198.51.100.0/24", "198.51.100.9"),
        ("subject-block", "/final notice [0-9]+/i", "Final Notice 77 of you"),
        ("protected-people", "Ada Byron <ada@acme.example>", "byron, ada <x@evil.example>"),
        ("url-block", "evil.example/login/*", "hxxps://evil[.]example/login/now?x=1"),
        ("file-hash-block", "a" * 64, "A" * 64),
        ("attachment-block", ".exe", "x.exe"),
    ],
)
async def test_every_kind_of_value_is_matched(
    database: Database, lists: ListService, name: str, entry: str, value: str
) -> None:
    await lists.add_entries(GLOBAL, name, [ListEntryInput(entry)], SOAR)
    checked = await Checker(EntryStore(database)).check(GLOBAL, value)
    assert [(match.list_name, match.entry) for match in checked.acting] == [(name, entry)]


async def test_a_long_list_answers_with_beginnings_first(lists: ListService, monkeypatch: pytest.MonkeyPatch) -> None:
    await add(lists, GLOBAL, "evil.example", "mail.evil.example", "other.example")
    monkeypatch.setattr(entry_store, "LONG", 2)
    page = await lists.page(GLOBAL, LIST, "evil")
    assert ([each.entry for each in page.entries], page.prefix_only) == (["evil.example"], True)
    page = await lists.page(GLOBAL, LIST, "l.evil")
    assert ([each.entry for each in page.entries], page.prefix_only) == (["mail.evil.example"], False)
