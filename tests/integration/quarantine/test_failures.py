"""The quarantine when something breaks: nothing that was kept is lost, nothing is left behind, nothing goes unsaid."""

import errno
import os
from datetime import timedelta
from pathlib import Path
from typing import NoReturn
from uuid import UUID

import pytest

from mailwarden.access.tenant_store import TenantStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Connection, Database
from mailwarden.errors import GlobalScopeForbidden, NotReleasable, SchemaViolation, StorageUnavailable
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import BY_RECIPIENT, State
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.integration.held_messages import RAW, finished
from tests.integration.quarantine.quarantine_setup import ALL, ANN, QuarantineSetup

NO_GRACE = timedelta(seconds=-60)
AWAY = "451 4.4.1 The next hop does not answer"


async def crash(*_: object, **__: object) -> NoReturn:
    raise RuntimeError("killed here")


async def test_orphaned_blobs_are_removed_after_the_grace_period(
    setup: QuarantineSetup, monkeypatch: pytest.MonkeyPatch
):
    kept = await setup.keep(raw=b"kept")
    monkeypatch.setattr(QuarantineStore, "add", crash)
    with pytest.raises(RuntimeError):
        await setup.keep(raw=b"lost its row")
    monkeypatch.undo()
    assert len(setup.bodies()) == 2
    assert await setup.retention.find_orphans() == 0, "it may be on its way still"
    assert await setup.retention.find_orphans(NO_GRACE) == 1
    assert await setup.retention.clear() == 1
    assert await setup.retention.find_missing() == 0
    assert (await setup.store.find(ALL, kept)).is_kept
    assert len(setup.bodies()) == 1


async def test_a_row_without_bytes_is_reported_and_not_released(setup: QuarantineSetup):
    uid = await setup.keep()
    asked = await setup.keep(raw=b"other")
    await setup.store.request_release(ALL, asked, None, ANN)
    for body in setup.bodies():
        body.unlink()
    assert await setup.retention.find_missing() == 2
    assert (await setup.store.find(ALL, uid)).missing
    with pytest.raises(NotReleasable, match="no longer stored"):
        await setup.store.request_release(ALL, uid, None, ANN)
    assert await setup.releasing.look() == 0
    (recipient,) = (await setup.store.find(ALL, asked)).recipients
    assert (recipient.state, recipient.failure) == (State.HELD, "The stored message is missing or damaged.")
    assert setup.sink.taken == []


async def test_bytes_that_were_changed_are_not_released(setup: QuarantineSetup):
    uid = await setup.keep()
    (body,) = setup.bodies()
    body.write_bytes(body.read_bytes()[:-1] + b"!")
    await setup.store.request_release(ALL, uid, None, ANN)
    assert await setup.releasing.look() == 0
    held = await setup.store.find(ALL, uid)
    assert (held.missing, held.in_state(State.HELD)) == (True, ("ann@north.example",))


async def test_bytes_that_were_changed_are_not_shown_as_kept_again_by_the_daily_look(setup: QuarantineSetup):
    uid, other = await setup.keep(), await setup.keep(raw=b"other")
    body = next(each for each in setup.bodies() if each.stat().st_size > 1_000)
    sound = body.read_bytes()
    body.write_bytes(sound[:-1] + b"!")
    await setup.store.request_release(ALL, uid, None, ANN)
    await setup.releasing.look()
    assert await setup.retention.find_missing() == 1, "the file is there, and is not the message"
    assert (await setup.store.find(ALL, uid)).missing
    assert (await setup.store.find(ALL, other)).is_kept
    body.write_bytes(sound)
    assert await setup.retention.find_missing() == 0
    assert (await setup.store.find(ALL, uid)).is_kept


async def test_bytes_that_come_back_from_a_backup_can_be_released(setup: QuarantineSetup):
    uid = await setup.keep()
    (body,) = setup.bodies()
    body.rename(setup.folder.parent / "backup")
    await setup.retention.find_missing()
    (setup.folder.parent / "backup").rename(body)
    assert await setup.retention.find_missing() == 0
    await setup.store.request_release(ALL, uid, None, ANN)
    assert await setup.releasing.look() == 1


async def test_recipient_releases_wait_for_the_next_hop_and_others_fail(setup: QuarantineSetup):
    mine, theirs = await setup.keep(), await setup.keep(raw=b"other")
    setup.sink.refused = {"ann@north.example": AWAY}
    await setup.store.request_release(ALL, mine, None, Actor(f"{BY_RECIPIENT}ann@north.example"))
    await setup.store.request_release(ALL, theirs, None, ANN)
    assert await setup.releasing.look() == 0
    (waiting,), (reported,) = [(await setup.store.find(ALL, each)).recipients for each in (mine, theirs)]
    assert (waiting.state, waiting.failure) == (State.RELEASING, "")
    assert (reported.state, reported.failure) == (State.HELD, AWAY)

    setup.sink.refused = {}
    assert await setup.releasing.look() == 0, "not at once"
    async with setup.database.connection() as connection:
        await connection.execute(
            "UPDATE quarantine_recipients SET claimed_until = claimed_until - interval '15 minutes'"
        )
    assert await setup.releasing.look() == 1
    assert (await setup.store.find(ALL, mine)).in_state(State.RELEASED) == ("ann@north.example",)


async def test_a_message_rejected_by_the_next_hop_is_held_again(setup: QuarantineSetup):
    uid = await setup.keep()
    setup.sink.refused = {"ann@north.example": "550 5.1.1 No such user"}
    await setup.store.request_release(ALL, uid, None, Actor(f"{BY_RECIPIENT}ann@north.example"))
    assert await setup.releasing.look() == 0
    assert (await setup.store.find(ALL, uid)).in_state(State.HELD) == ("ann@north.example",)


async def test_a_full_disk_is_reported_and_leaves_no_files(setup: QuarantineSetup, monkeypatch: pytest.MonkeyPatch):
    await setup.vault.uid()
    room, write = 1_000_000, os.write

    def write_while_there_is_room(file: int, data: memoryview) -> int:
        nonlocal room
        if room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(file, data[:room])
        room -= written
        return written

    monkeypatch.setattr(os, "write", write_while_there_is_room)
    with pytest.raises(StorageUnavailable, match="No space left"):
        await setup.keep(raw=b"x" * 5_000_000)
    monkeypatch.undo()
    assert setup.bodies() == []
    assert await setup.store.page(ALL) == []
    assert await setup.keep(raw=b"x" * 5_000_000)


async def test_a_database_that_is_down_is_reported_and_the_caller_keeps_the_message(tmp_path: Path):
    away = Database("postgresql://nobody@127.0.0.1:1/none")
    writer = QuarantineWriter(
        Vault(FilesystemStore(tmp_path), KeyRing.of(b"k" * 64)), QuarantineStore(away), QuarantineSetup.DAYS
    )
    with pytest.raises(StorageUnavailable):
        await writer.hold(finished(UUID(int=1)), Spooled.of(RAW))
    await away.close()


@pytest.mark.parametrize(("server", "row"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
async def test_the_row_is_on_the_disk_even_where_the_server_does_not_wait_for_it(
    setup: QuarantineSetup, database_url: str, server: str, row: str
):
    async with setup.database.connection() as connection:
        name = await connection.fetchval("SELECT current_database()")
        await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = {server}')
        await connection.execute("CREATE TABLE seen (setting text)")
        await connection.execute(
            "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$"
        )
        await connection.execute("CREATE TRIGGER look AFTER INSERT ON quarantine EXECUTE FUNCTION look()")
    anew = Database(database_url)
    await QuarantineSetup(anew, setup.folder.parent, [setup.north, setup.south]).keep()
    async with anew.connection() as connection:
        assert await connection.fetchval("SELECT setting FROM seen") == row
    await anew.close()


async def test_a_message_that_is_held_again_while_its_bytes_are_removed_keeps_them(
    setup: QuarantineSetup, monkeypatch: pytest.MonkeyPatch
):
    first = await setup.keep()
    await setup.store.delete(ALL, first, None, ANN)
    put = Vault.put

    async def put_and_lose(vault: Vault, tenant: UUID, raw: Spooled) -> bytes:
        address = await put(vault, tenant, raw)
        monkeypatch.setattr(Vault, "put", put)
        await setup.retention.clear()  # between the bytes and the row of the second
        return address

    monkeypatch.setattr(Vault, "put", put_and_lose)
    second = await setup.keep()
    assert len(setup.bodies()) == 1
    await setup.retention.clear()
    await setup.store.request_release(ALL, second, None, ANN)
    assert await setup.releasing.look() == 1


async def test_one_body_of_two_rows_stays_until_the_last_is_done_with_it(setup: QuarantineSetup):
    first, second = await setup.keep(), await setup.keep()
    assert len(setup.bodies()) == 1
    await setup.store.delete(ALL, first, None, ANN)
    assert await setup.retention.clear() == 0
    assert len(setup.bodies()) == 1
    await setup.store.delete(ALL, second, None, ANN)
    assert await setup.retention.clear() == 1
    assert setup.bodies() == []


async def _age(connection: Connection, days: float) -> None:
    await connection.execute(
        "UPDATE quarantine SET received = received - make_interval(secs => $1), "
        "expires = expires - make_interval(secs => $1)",
        days * 86_400,
    )


async def test_messages_go_by_the_days_of_their_tenant_and_verdict_and_their_bytes_with_them(setup: QuarantineSetup):
    tenants = TenantStore(setup.database)
    spam, malware = await setup.keep(raw=b"1"), await setup.keep(raw=b"2", verdict=Verdict.MALWARE)
    brief = await setup.keep(setup.south, raw=b"3", recipients=("carl@south.example",))
    await tenants.hold(ALL, setup.south, {"default": 5}, Actor("ann"))
    newer = await setup.keep(setup.south, raw=b"4", recipients=("carl@south.example",))
    held = await setup.store.find(ALL, newer)
    assert held.expires - held.received == timedelta(days=5)

    async def left() -> set[UUID]:
        await setup.retention.redate()
        await setup.retention.expire()
        await setup.retention.clear()
        return {each.uid for each in await setup.store.page(ALL)}

    async with setup.database.connection() as connection:
        await _age(connection, 4.9)
    assert await left() == {spam, malware, brief, newer}
    async with setup.database.connection() as connection:
        await _age(connection, 0.2)
    assert await left() == {spam, malware}, "what a tenant changes acts on what is held already"
    async with setup.database.connection() as connection:
        await _age(connection, 9)
    assert await left() == {spam}
    assert len(setup.bodies()) == 1
    async with setup.database.connection() as connection:
        await _age(connection, 16)
    assert await left() == set()
    assert setup.bodies() == []


async def test_a_message_in_release_does_not_expire(setup: QuarantineSetup):
    uid = await setup.keep()
    await setup.store.request_release(ALL, uid, None, ANN)
    async with setup.database.connection() as connection:
        await _age(connection, 31)
    assert await setup.retention.expire() == 0
    assert await setup.releasing.look() == 1
    assert await setup.retention.expire() == 1


async def test_an_unreleased_message_expires(setup: QuarantineSetup):
    uid = await setup.keep()
    await setup.store.request_release(ALL, uid, None, ANN)
    async with setup.database.connection() as connection:
        await _age(connection, 31)
        await connection.execute("UPDATE quarantine_recipients SET changed_at = now() - interval '8 days'")
    assert await setup.retention.expire() == 1


async def test_days_of_a_tenant_are_the_deployments_to_give_and_within_bounds(setup: QuarantineSetup):
    tenants = TenantStore(setup.database)
    with pytest.raises(GlobalScopeForbidden):
        await tenants.hold(Scope.of(setup.north), setup.north, {"spam": 1}, ANN)
    for wrong in ({"spam": 0}, {"nonsense": 1}):
        with pytest.raises(SchemaViolation):
            await tenants.hold(ALL, setup.north, wrong, ANN)
    changed = await tenants.hold(ALL, setup.north, {"spam": 7}, ANN)
    assert changed.quarantine_days == {"spam": 7}
