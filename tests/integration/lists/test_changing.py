"""Lists as people work with them: what changed, taking it back, bringing in a text."""

from datetime import UTC, datetime, timedelta

import pytest

from mailwarden.access.audit import AuditStore
from mailwarden.database.pool import Database
from mailwarden.errors import ListFull, NotFound
from mailwarden.lists.change_log import State
from mailwarden.lists.expiry import Expiry
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from tests.integration.lists.entries import LIST, SOAR, add

GLOBAL = ListScope()
ADA = Actor("user:ada", "192.0.2.9", "request-9")


async def state(lists: ListService, scope: ListScope) -> dict[str, tuple[str, str | None]]:
    page = await lists.page(scope, LIST)
    assert (await lists.counts(scope)).get(LIST, 0) == len(page.entries)
    return {each.entry: (each.comment, each.expires) for each in page.entries}


async def test_a_change_shows_its_actor_and_the_result_of_each_entry(lists: ListService, acme: ListScope) -> None:
    end = datetime(2031, 1, 1, tzinfo=UTC)
    await add(lists, acme, "a.example", "b.example", comment="first")
    await add(lists, acme, "b.example", "c.example", expires=end)
    await lists.delete_entries(acme, LIST, ["a.example"], ADA)
    deleted, changed, added = await lists.changes(acme, LIST)
    assert (deleted.actor, deleted.address, deleted.request_id) == ("user:ada", "192.0.2.9", "request-9")
    assert [(c.action, c.added, c.updated, c.deleted) for c in (deleted, changed, added)] == [
        ("delete", 0, 0, 1),
        ("add", 1, 1, 0),
        ("add", 2, 0, 0),
    ]
    _, lines = await lists.change(acme, LIST, changed.number)
    stored = "2031-01-01T00:00:00.000Z"
    assert [(line.entry, line.what, line.before, line.after) for line in lines] == [
        ("b.example", "updated", State("first"), State("first", stored)),
        ("c.example", "added", None, State("", stored)),
    ]
    _, lines = await lists.change(acme, LIST, deleted.number)
    assert [(line.entry, line.what, line.before, line.after) for line in lines] == [
        ("a.example", "deleted", State("first"), None)
    ]


async def test_changes_of_another_scope_cannot_be_seen_or_undone(
    lists: ListService, acme: ListScope, other: ListScope
) -> None:
    await add(lists, acme, "a.example")
    number = (await lists.changes(acme, LIST))[0].number
    for scope in (other, GLOBAL):
        assert await lists.changes(scope, LIST) == []
        with pytest.raises(NotFound):
            await lists.change(scope, LIST, number)
        with pytest.raises(NotFound):
            await lists.undo(scope, LIST, number, ADA)
    with pytest.raises(NotFound):
        await lists.undo(acme, "sender-allow", number, ADA)
    assert list(await state(lists, acme)) == ["a.example"]


async def test_undoing_an_addition_deletes_new_and_restores_changed_entries(
    lists: ListService, acme: ListScope, database: Database
) -> None:
    await add(lists, acme, "old.example", comment="kept", expires=datetime(2031, 1, 1, tzinfo=UTC))
    before = await state(lists, acme)
    await add(lists, acme, "new.example", "old.example", comment="wrong", expires=None)
    assert (await state(lists, acme))["old.example"] == ("wrong", None)
    done = await lists.undo(acme, LIST, (await lists.changes(acme, LIST))[0].number, ADA)
    assert (done.restored, done.left) == (2, ())
    assert await state(lists, acme) == before
    newest, undone, _ = await lists.changes(acme, LIST)
    assert (newest.action, newest.actor, newest.undoes, newest.deleted) == ("undo", "user:ada", undone.number, 1)
    assert undone.undone_by == newest.number
    deed = (await AuditStore(database).find(Scope.of(acme.tenant)))[0]  # type: ignore[arg-type]
    assert (deed.action, deed.actor) == ("lists.undo", ADA)
    # An undoing is a change like any other.
    assert (await lists.undo(acme, LIST, newest.number, ADA)).restored == 2
    assert (await state(lists, acme))["new.example"] == ("wrong", None)
    assert (await state(lists, acme))["old.example"] == ("wrong", None)


async def test_undoing_a_deletion_brings_back_all_that_an_entry_was(lists: ListService, acme: ListScope) -> None:
    await add(lists, acme, "a.example", comment='said "so"')
    (first,) = (await lists.page(acme, LIST)).entries
    await lists.delete_entries(acme, LIST, ["a.example"], ADA)
    assert (await lists.undo(acme, LIST, (await lists.changes(acme, LIST))[0].number, ADA)).restored == 1
    (again,) = (await lists.page(acme, LIST)).entries
    assert (again.comment, again.created, again.created_by) == (first.comment, first.created, first.created_by)
    assert again.updated_by == "user:ada"


async def test_undo_reports_and_keeps_entries_changed_since(lists: ListService, acme: ListScope) -> None:
    await add(lists, acme, "a.example", "b.example", "c.example")
    number = (await lists.changes(acme, LIST))[0].number
    await add(lists, acme, "b.example", comment="since")
    await lists.delete_entries(acme, LIST, ["c.example"], SOAR)
    done = await lists.undo(acme, LIST, number, ADA)
    assert (done.restored, done.left) == (1, ("b.example", "c.example"))
    assert await state(lists, acme) == {"b.example": ("since", None)}
    again = await lists.undo(acme, LIST, number, ADA)
    assert (again.number, again.restored) == (0, 0)
    await add(lists, acme, "c.example", comment="back")
    deletion = next(each for each in await lists.changes(acme, LIST) if each.action == "delete")
    assert (await lists.undo(acme, LIST, deletion.number, ADA)).left == ("c.example",)


async def test_undoing_an_expiry_leaves_a_day_to_extend_the_entry(
    lists: ListService, acme: ListScope, store: ListStore
) -> None:
    await add(lists, acme, "a.example", expires=datetime.now(UTC) - timedelta(days=3))
    assert await Expiry(store).purge(datetime.now(UTC)) == 1
    (expired, _) = await lists.changes(acme, LIST)
    assert (expired.action, expired.actor) == ("expire", "system:expiry")
    assert (await lists.undo(acme, LIST, expired.number, ADA)).restored == 1
    assert await Expiry(store).purge(datetime.now(UTC)) == 0
    assert list(await state(lists, acme)) == ["a.example"]


async def test_undoing_never_overfills_a_list(lists: ListService) -> None:
    name = "attachment-block"
    every = [ListEntryInput(f".e{number}") for number in range(1_000)]
    await lists.add_entries(GLOBAL, name, every[:500], SOAR)
    await lists.add_entries(GLOBAL, name, every[500:], SOAR)
    await lists.delete_entries(GLOBAL, name, [".e1"], SOAR)
    number = (await lists.changes(GLOBAL, name))[0].number
    await lists.add_entries(GLOBAL, name, [ListEntryInput(".x")], SOAR)
    with pytest.raises(ListFull):
        await lists.undo(GLOBAL, name, number, ADA)
    assert (await lists.counts(GLOBAL))[name] == 1_000


async def test_fifty_thousand_entries_are_one_change_that_can_be_undone(lists: ListService, acme: ListScope) -> None:
    text = "\n".join(f"n{number}.example" for number in range(50_000))
    preview = await lists.preview(acme, LIST, text, "txt", comment="feed", expires=datetime(2031, 1, 1, tzinfo=UTC))
    assert await lists.import_rows(acme, LIST, preview.rows, ADA) == 50_000
    (change,) = await lists.changes(acme, LIST)
    assert (await lists.undo(acme, LIST, change.number, ADA)).restored == 50_000
    assert await state(lists, acme) == {}


async def test_adding_unchanged_entries_leaves_nothing_to_undo(lists: ListService, acme: ListScope) -> None:
    await add(lists, acme, "a.example", comment="same", expires=None)
    await add(lists, acme, "a.example", "b.example", comment="same", expires=None)
    newest = (await lists.changes(acme, LIST))[0]
    _, lines = await lists.change(acme, LIST, newest.number)
    assert [(line.what, line.before, line.after) for line in lines] == [
        ("updated", State("same"), State("same")),
        ("added", None, State("same")),
    ]
    assert (await lists.undo(acme, LIST, newest.number, ADA)).restored == 1
    assert list(await state(lists, acme)) == ["a.example"]


async def test_an_update_that_gives_a_comment_to_some_is_undone_as_well(lists: ListService, acme: ListScope) -> None:
    end = datetime(2031, 1, 1, tzinfo=UTC)
    await add(lists, acme, "a.example", "b.example", comment="first", expires=end)
    before = await state(lists, acme)
    mixed = [ListEntryInput("a.example", "second"), ListEntryInput("b.example", expires=None)]
    await lists.add_entries(acme, LIST, mixed, SOAR)
    newest = (await lists.changes(acme, LIST))[0]
    _, lines = await lists.change(acme, LIST, newest.number)
    stored = "2031-01-01T00:00:00.000Z"
    assert [(line.before, line.after) for line in lines] == [
        (State("first", stored), State("second", stored)),
        (State("first", stored), State("first")),
    ]
    assert (await lists.undo(acme, LIST, newest.number, ADA)).restored == 2
    assert await state(lists, acme) == before
