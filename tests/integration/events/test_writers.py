"""Every change writes exactly one event, in its transaction: messages, quarantine, reports, lists, keys, users."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import jsonschema_rs
import pytest

from mailwarden.access.keys import ApiKeys, KeyStore, NewKey
from mailwarden.access.permissions import KeyScope
from mailwarden.access.tenant_store import TenantSettings, TenantStore
from mailwarden.access.users import NewUser, Position, Role, UserStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import ListFull, MessageNotFound
from mailwarden.events.catalogue import Event, encode, schemas
from mailwarden.events.reader import EventReader, Filter
from mailwarden.events.scanned import ScannedEvents
from mailwarden.guard.engine_watch import EngineEvents
from mailwarden.history.opening import open_history
from mailwarden.hop.records import EngineState
from mailwarden.lists import catalogue as list_catalogue
from mailwarden.lists.expiry import Expiry
from mailwarden.lists.requests import ListEntryInput
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.user_reports.reports import Kind, NewReport
from mailwarden.user_reports.store import ReportStore
from tests.integration.quarantine.quarantine_setup import QuarantineSetup
from tests.samples.finished import finished_request

ALL = Scope.deployment()
ANN = Actor("user:ann", "192.0.2.1", "r1")
LIST = "sender-block"


class Outbox:
    """Reads the events since the last look, and validates each by its schema."""

    def __init__(self, database: Database) -> None:
        self._reader = EventReader(database)
        self._cursor: str | None = None

    async def new(self) -> list[Event]:
        page = await self._reader.read_after(Filter(ALL, deployment=True), self._cursor, 1_000)
        self._cursor = page.next
        for event in page.events:
            jsonschema_rs.validator_for(schemas()[event.type]).validate(json.loads(encode(event)))
        return list(page.events)

    async def only(self, kind: str) -> Event:
        (event,) = await self.new()
        assert event.type == kind
        return event


@pytest.fixture
async def tenant(database: Database) -> UUID:
    return (await TenantStore(database).create(ALL, "North", actor=ANN)).uid


@pytest.fixture
async def outbox(database: Database, tenant: UUID) -> Outbox:
    outbox = Outbox(database)
    await outbox.only("tenant.created")
    return outbox


async def test_a_stored_message_has_one_event_however_often_it_is_written(database: Database, outbox: Outbox) -> None:
    store = open_history(database, ScannedEvents())
    requests = [finished_request() for _ in range(50)]
    await store.save(ALL, requests[:30])
    await store.save(ALL, [*requests, requests[0]])  # a retry of an unknown result, and another guard
    events = await outbox.new()
    assert sorted(event.subject for event in events) == sorted(str(each.ggrid) for each in requests)
    by_ggrid = {event.subject: event for event in events}
    for request in requests:
        event = by_ggrid[str(request.ggrid)]
        assert (event.type, event.tenant, event.data["subject"]) == ("message.scanned", request.tenant, "Grüße 🎁")
        assert event.data["verdict"] == request.judgement.verdict
    await open_history(database).save(ALL, [finished_request()])
    assert await outbox.new() == [], "a store without a selection writes none"


async def test_a_rejected_row_has_no_event_and_stops_no_other(database: Database, outbox: Outbox) -> None:
    store = open_history(database, ScannedEvents())
    good, bad = finished_request(), finished_request(completed=datetime(1, 1, 1, tzinfo=UTC))
    old = finished_request(ggrid=uuid4())
    await store.save(ALL, [bad, good, old])
    stored = [each for each in (good, bad, old) if await store.find(ALL, each.ggrid)]
    assert good in stored
    assert {event.subject for event in await outbox.new()} == {str(each.ggrid) for each in stored}


async def test_a_held_message_has_an_event_for_each_step(
    database: Database, outbox: Outbox, tenant: UUID, tmp_path: Path
) -> None:
    setup = QuarantineSetup(database, tmp_path, [tenant, tenant])
    both = ("ann@north.example", "bob@north.example")
    uid = await setup.keep(recipients=both)
    held = await outbox.only("message.held")
    message = await setup.store.find(ALL, uid)
    assert (held.subject, held.tenant, held.data["uid"]) == (str(message.ggrid), tenant, str(uid))
    assert held.data["recipients"] == list(both)

    setup.sink.refused = {both[1]: "550 no"}
    await setup.store.request_release(ALL, uid, None, ANN)
    assert await outbox.new() == [], "requested is not released"
    await setup.releasing.look()
    released = await outbox.only("message.released")
    assert (released.data["recipients"], released.data["by"]) == ([both[0]], "user:ann")

    await setup.store.delete(ALL, uid, [both[1]], ANN)
    deleted = await outbox.only("message.deleted")
    assert (deleted.data["recipients"], deleted.data["reason"]) == ([both[1]], "request")
    assert {event.subject for event in (held, released, deleted)} == {str(message.ggrid)}
    assert held.time < released.time < deleted.time
    with pytest.raises(MessageNotFound):
        await setup.store.delete(ALL, uuid4(), None, ANN)
    assert await outbox.new() == []


async def test_an_expired_message_has_an_event(
    database: Database, outbox: Outbox, tenant: UUID, tmp_path: Path
) -> None:
    setup = QuarantineSetup(database, tmp_path, [tenant, tenant])
    uids = {str(await setup.keep(subject=str(number))) for number in range(3)}
    await outbox.new()
    async with database.connection() as connection:
        await connection.execute("UPDATE quarantine SET expires = now() - interval '1 second'")
    assert await setup.retention.expire() == 3
    events = await outbox.new()
    assert {event.data["uid"] for event in events} == uids
    assert {(event.type, event.data["reason"]) for event in events} == {("message.deleted", "retention")}
    assert {event.data["recipientCount"] for event in events} == {1}


async def test_a_message_held_twice_has_one_event(
    database: Database, outbox: Outbox, tenant: UUID, tmp_path: Path
) -> None:
    from mailwarden.serving.spool import Spooled
    from tests.integration.held_messages import RAW, finished

    setup, request = QuarantineSetup(database, tmp_path, [tenant, tenant]), finished(tenant)
    first = await setup.writer.hold(request, Spooled.of(RAW))
    assert await setup.writer.hold(request, Spooled.of(RAW)) == first
    await outbox.only("message.held")


async def test_a_report_has_an_event(database: Database, outbox: Outbox, tenant: UUID) -> None:
    ggrid = uuid4()
    report = NewReport(uuid4(), tenant, Kind.PHISHING, b"d" * 32, 100, None, ggrid, "Hello")
    await ReportStore(database).add(ALL, report, ANN)
    event = await outbox.only("message.reported")
    assert (event.subject, event.data["kind"], event.data["by"]) == (str(ggrid), "phishing", "user:ann")


async def test_each_change_of_a_list_has_one_event(
    database: Database, outbox: Outbox, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, scope = ListStore(database, database), ListScope(tenant)
    lists = ListService(store)

    async def changed(action: str, added: int, updated: int, deleted: int, *entries: str) -> None:
        event = await outbox.only("list.changed")
        data = event.data
        assert (event.subject, event.tenant, data["action"]) == (f"{tenant}/{LIST}", tenant, action)
        assert (data["added"], data["updated"], data["deleted"]) == (added, updated, deleted)
        assert data["entries"] == list(entries)

    one, two, three = "a@evil.example", "b@evil.example", "c@evil.example"
    await lists.add_entries(scope, LIST, [ListEntryInput(one), ListEntryInput(two)], ANN)
    await changed("add", 2, 0, 0, one, two)
    await lists.add_entries(scope, LIST, [ListEntryInput(two), ListEntryInput(three)], ANN)
    await changed("add", 1, 1, 0, two, three)
    await lists.delete_entries(scope, LIST, [one, "none@evil.example"], ANN)
    await changed("delete", 0, 0, 1, one)
    await lists.delete_entries(scope, LIST, ["none@evil.example"], ANN)
    assert await outbox.new() == [], "nothing has changed"
    (newest, *_) = await lists.changes(scope, LIST)
    await lists.undo(scope, LIST, newest.number, ANN)
    await changed("undo", 1, 0, 0, one)
    preview = await lists.preview(scope, LIST, "d@evil.example\n", "txt")
    await lists.import_rows(scope, LIST, preview.rows, ANN)
    await changed("import", 1, 0, 0, "d@evil.example")
    soon = datetime.now(UTC) + timedelta(seconds=1)
    await lists.add_entries(scope, LIST, [ListEntryInput("e@evil.example", expires=soon)], ANN)
    await changed("add", 1, 0, 0, "e@evil.example")
    await Expiry(store).purge(soon + timedelta(days=2))
    await changed("expire", 0, 0, 1, "e@evil.example")

    definition = list_catalogue.find_list(LIST)
    monkeypatch.setattr(type(definition), "max_size", lambda *_, **__: 1)
    with pytest.raises(ListFull):
        await lists.add_entries(scope, LIST, [ListEntryInput("f@evil.example")], ANN)
    assert await outbox.new() == [], "a change that was rolled back has no event"


async def test_keys_tenants_users_and_engines_have_events(database: Database, outbox: Outbox, tenant: UUID) -> None:
    keys = ApiKeys(KeyStore(database), KeyRing.of(b"p" * 32))
    made, text = await keys.create(ALL, NewKey("soar", frozenset({KeyScope.EVENTS}), frozenset({tenant})), ANN)
    created = await outbox.only("key.created")
    assert (created.subject, created.tenant, created.data["scopes"]) == (made.key_id, tenant, ["events:read"])
    assert text.rpartition("_")[2] not in encode(created).decode()
    rotated, _ = await keys.rotate(ALL, made.key_id, timedelta(0), ANN)
    assert (await outbox.only("key.created")).data["replaces"] == made.key_id
    await keys.revoke(ALL, rotated.key_id, ANN)
    assert (await outbox.only("key.revoked")).subject == rotated.key_id
    assert not await keys.revoke(ALL, rotated.key_id, ANN)
    await keys.create(ALL, NewKey("everything", frozenset({KeyScope.EVENTS})), ANN)
    assert (await outbox.only("key.created")).tenant is None

    tenants = TenantStore(database)
    await tenants.change(ALL, tenant, TenantSettings("South", ["south.example"]), ANN)
    assert (await outbox.only("tenant.changed")).data["changed"] == ["name", "domains"]
    await tenants.set_weights(ALL, tenant, {"x": 1}, ANN)
    assert (await outbox.only("tenant.changed")).data["changed"] == ["weights"]
    await tenants.hold(ALL, tenant, {"spam": 3}, ANN)
    assert (await outbox.only("tenant.changed")).data["changed"] == ["quarantineDays"]

    users = UserStore(database)
    position = Position(Role.ANALYST, frozenset({tenant}))
    user = await users.create(ALL, NewUser("ann", position), ANN)
    await outbox.new()
    await users.note_login(ALL, user.uid, ANN, "passkey")
    login = await outbox.only("user.login")
    assert (login.subject, login.tenant, login.data["address"]) == (str(user.uid), tenant, "192.0.2.1")
    await users.note_failed_login(ALL, "password", None, "192.0.2.66")
    failed = await outbox.only("user.login-failed")
    assert (failed.tenant, failed.subject) == (None, "192.0.2.66")


async def test_engine_states_are_recorded_in_order(database: Database, outbox: Outbox) -> None:
    import asyncio

    events = EngineEvents(database, "mta-1")
    events.start()
    for up in (False, True):
        events.changed(EngineState(name="rspamd", up=up, required=True, detail="x"))
    async with asyncio.timeout(60):
        found: list[Event] = []
        while len(found) < 2:
            found += await outbox.new()
            await asyncio.sleep(0.02)
    await events.stop()
    assert [event.type for event in found] == ["engine.down", "engine.up"]
    assert {(event.subject, event.tenant) for event in found} == {("mta-1/rspamd", None)}
