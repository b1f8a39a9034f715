"""Moves of a tenant between the databases of two cells: nothing is lost, and nothing exists twice."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from mailwarden.access.keys import ApiKeys, KeyScope, KeyStore, NewKey
from mailwarden.access.tenants import TenantDirectory, TenantStore
from mailwarden.access.users import NewUser, Position, Role, UserStore
from mailwarden.cells import move, remainder
from mailwarden.cells.move import TenantMove
from mailwarden.cells.places import LOCKS
from mailwarden.cells.snapshot import Place
from mailwarden.errors import CommandError, DomainTaken, InvalidCredentials, TenantMoving
from mailwarden.history import open_history
from mailwarden.lists.service import Expiry
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.tenant import AssignedBy
from mailwarden.quarantine.digest import DigestStore
from mailwarden.quarantine.model import RetentionDays, State
from mailwarden.quarantine.release import ReleaseStore
from mailwarden.quarantine.retention import RetentionStore
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.wire.lists import ListEntryInput
from rig.engines import Engines
from tests.databases import ReusedDatabases
from tests.integration.cell_pair import ACTOR, ALL, LIST, RING, Pair, interrupted, open_pair
from tests.integration.held_messages import RAW, finished

NEW_PASSKEY = """
INSERT INTO passkeys (credential, person, name, public_key, sign_count) SELECT 'x', uid, 'one', '', 0 FROM people
"""
CUT_WRITERS_LOCK = f"""
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND classid = {LOCKS} AND mode = 'ExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


@pytest.fixture(autouse=True)
def _no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    """No abby runs here that has to learn of a switch."""
    monkeypatch.setattr(move, "SETTLE_SECONDS", 0.0)


@pytest.fixture
async def pair(engines: Engines, reused_databases: ReusedDatabases, tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(engines, reused_databases, tmp_path) as opened:
        yield opened


async def test_a_moved_tenant_has_everything_in_the_new_cell_alone(pair: Pair) -> None:
    await pair.a.add(pair.uid, "one.example", "two.example")
    uid = await pair.a.hold(pair.uid)
    await open_history(pair.a.database).save(ALL, [finished(pair.uid)])
    keys = [ApiKeys(KeyStore(each.database), RING) for each in (pair.a, pair.b)]
    key, text = await keys[0].create(ALL, NewKey("north", frozenset({KeyScope.READ}), frozenset({pair.uid})), ACTOR)

    moved = await pair.move().run(ACTOR)
    assert moved.pause is not None
    assert (moved.held, moved.history) == (1, 1)
    assert await pair.b.entries(pair.uid) == {"one.example", "two.example"}
    assert (await pair.b.held(pair.uid), await pair.a.held(pair.uid)) == ({uid}, set())
    assert (await keys[1].authenticate(text, None)).key_id == key.key_id
    with pytest.raises(InvalidCredentials):
        await ApiKeys(KeyStore(pair.a.database), RING).authenticate(text, None)
    assert await pair.directory.place(pair.uid) == Place("b", 1)
    (found,) = [each for each in await TenantStore(pair.b.database).list(ALL) if each.uid == pair.uid]
    assert (found.name, found.domains, found.is_here) == ("north", ("north.example",), True)

    message = await QuarantineStore(pair.b.database).find(ALL, uid)
    assert message.address is not None
    raw = await pair.b.access.vault.get(pair.uid, message.address, pair.b.access.spool)
    assert b"".join(raw.chunks()) == RAW
    assert message.vault == await pair.b.access.vault.uid()


async def test_the_old_cell_accepts_no_change_after_the_move(pair: Pair) -> None:
    """Also by a process that does not know of the move yet: its database does."""
    await pair.a.add(pair.uid, "one.example")
    stale = pair.a.lists
    await pair.move().run(ACTOR)
    with pytest.raises(TenantMoving):
        await stale.add_entries(ListScope(pair.uid), LIST, [ListEntryInput("late.example")], ACTOR)
    with pytest.raises(TenantMoving):
        await pair.a.hold(pair.uid)
    with pytest.raises(TenantMoving):
        await TenantStore(pair.a.database).hold(ALL, pair.uid, {"spam": 3}, ACTOR)
    directory = TenantDirectory(TenantStore(pair.a.database))
    await directory.refresh()
    with pytest.raises(TenantMoving):
        directory.assign("ann@north.example")
    await pair.b.add(pair.uid, "two.example")
    assert await pair.b.entries(pair.uid) == {"one.example", "two.example"}


async def test_changes_during_the_move_are_in_the_new_cell_or_refused(pair: Pair) -> None:
    accepted: set[str] = set()
    held: set[UUID] = set()
    ended = asyncio.Event()

    async def change(number: int) -> None:
        count = 0
        while not ended.is_set():
            count += 1
            entry = f"{number}-{count}.example"
            for cell in (pair.a, pair.b):
                try:
                    await cell.add(pair.uid, entry)
                    if count % 5 == 0:
                        held.add(await cell.hold(pair.uid, f"Subject: {entry}\r\n\r\nText\r\n".encode()))
                except Exception as error:
                    if type(error).__name__ not in ("TenantMoving", "TenantNotFound", "ForeignKeyViolationError"):
                        raise
                else:
                    accepted.add(entry)
                    break

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(change(number))
        await asyncio.sleep(0.3)
        moved = await pair.move().run(ACTOR)
        await asyncio.sleep(0.3)
        ended.set()
    assert moved.pause is not None
    assert moved.pause < 5
    assert accepted <= await pair.b.entries(pair.uid), "0 lost"
    found = set()
    for each in (pair.b, pair.a):
        found |= await each.held(pair.uid)
    assert held <= await pair.b.held(pair.uid), "0 lost"
    assert await pair.a.held(pair.uid) == set()


async def test_a_move_that_was_killed_at_any_step_is_continued(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step fails once; until the last ones the old cell accepts changes, and nothing of them is lost."""
    steps = ["_announce", "_copy_in_advance", "_drain", "_copy_rest", "_switch", "_arrive", "_clean"]
    wanted = set()
    for number, step in enumerate(steps):
        original = getattr(TenantMove, step)

        async def killed(*values: object, step: str = step, original=original, **named: object) -> object:
            await original(*values, **named)
            raise RuntimeError(step)

        with monkeypatch.context() as patched:
            patched.setattr(TenantMove, step, killed)
            with pytest.raises(RuntimeError, match=step):
                await pair.move().run(ACTOR)
        if step not in ("_switch", "_arrive", "_clean"):
            entry = f"{number}.example"
            await pair.a.add(pair.uid, entry)
            wanted.add(entry)
    await pair.move().run(ACTOR)
    assert await pair.b.entries(pair.uid) == wanted
    assert await pair.directory.place(pair.uid) == Place("b", 1)


async def test_a_restored_directory_makes_no_move_overwrite_newer_data(pair: Pair) -> None:
    await pair.a.add(pair.uid, "one.example")
    await pair.move().run(ACTOR)
    await pair.b.add(pair.uid, "two.example")
    # The backup of the directory is older than the move.
    assert await pair.directory.switch(pair.uid, Place("b", 1), Place("a", 0), domains=[], keys=[])
    again = await pair.move().run(ACTOR)
    assert again.pause is None
    assert await pair.b.entries(pair.uid) == {"one.example", "two.example"}
    assert await pair.directory.place(pair.uid) == Place("b", 1), "the directory is right again"


async def test_a_cell_with_newer_data_is_never_overwritten(pair: Pair) -> None:
    """The old cell was restored from a backup of before the move, and so was the directory."""
    await pair.a.add(pair.uid, "one.example")
    await pair.move().run(ACTOR)
    await pair.b.add(pair.uid, "two.example")
    async with pair.a.database.connection() as connection:
        await connection.execute("DELETE FROM tenant_places")
    with pytest.raises(CommandError, match="directory has the tenant in the cell `b`"):
        await pair.move().run(ACTOR)
    assert await pair.directory.switch(pair.uid, Place("b", 1), Place("a", 0), domains=[], keys=[])
    with pytest.raises(CommandError, match="newer than version 0"):
        await pair.move().run(ACTOR)
    assert await pair.b.entries(pair.uid) == {"one.example", "two.example"}


async def test_a_tenant_moves_back_with_what_it_has_since(pair: Pair) -> None:
    await pair.a.add(pair.uid, "one.example")
    uid = await pair.a.hold(pair.uid)
    await pair.move().run(ACTOR)
    await pair.b.add(pair.uid, "two.example")
    await pair.move(back=True).run(ACTOR)
    assert await pair.a.entries(pair.uid) == {"one.example", "two.example"}
    assert await pair.a.held(pair.uid) == {uid}
    assert await pair.directory.place(pair.uid) == Place("a", 2)
    await pair.a.add(pair.uid, "three.example")


async def test_no_release_is_begun_while_a_tenant_is_on_its_way(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    uid = await pair.a.hold(pair.uid)
    await QuarantineStore(pair.a.database).request_release(ALL, uid, None, ACTOR)
    original = TenantMove._copy_rest
    claimed = []

    async def watched(*values: object) -> None:
        await original(*values)  # type: ignore[arg-type]
        for cell in (pair.a, pair.b):
            claimed.append(await ReleaseStore(cell.database).claim(ALL, await cell.access.vault.uid(), 60.0))

    monkeypatch.setattr(TenantMove, "_copy_rest", watched)
    await pair.move().run(ACTOR)
    assert claimed == [None, None]
    assert await ReleaseStore(pair.a.database).claim(ALL, await pair.a.access.vault.uid(), 60.0) is None
    release = await ReleaseStore(pair.b.database).claim(ALL, await pair.b.access.vault.uid(), 60.0)
    assert release is not None
    assert release.message.uid == uid
    assert await ReleaseStore(pair.b.database).record_result(ALL, release, {})
    assert (await QuarantineStore(pair.b.database).find(ALL, uid)).in_state(State.RELEASED)


async def test_rows_of_an_old_guards_journal_follow_when_the_move_is_finished(pair: Pair) -> None:
    await pair.move().run(ACTOR)
    late = finished(pair.uid)
    assert (await open_history(pair.a.database).save(ALL, [late])).stored == 1
    assert await pair.move().finish() == 1
    found = await open_history(pair.b.database).tenants_of(ALL, late.ggrid)
    assert list(found) == [pair.uid]
    assert await open_history(pair.a.database).tenants_of(ALL, late.ggrid) == []
    assert await pair.move().finish() == 0


async def test_a_move_that_is_aborted_leaves_the_tenant_in_use(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(TenantMove, "_switch", fails)
        with pytest.raises(RuntimeError):
            await pair.move().run(ACTOR)
    with pytest.raises(TenantMoving):
        await pair.a.add(pair.uid, "one.example")
    await pair.move().abort()
    await pair.a.add(pair.uid, "one.example")
    await pair.move().run(ACTOR)
    assert await pair.b.entries(pair.uid) == {"one.example"}
    assert await pair.directory.place(pair.uid) == Place("b", 3)


async def test_the_default_tenant_and_a_taken_domain_stay(pair: Pair) -> None:
    (default,) = [each for each in await TenantStore(pair.a.database).list(ALL) if each.is_default]
    move = TenantMove(pair.a.access, pair.b.access, pair.directory, default.uid, lambda _: None)
    with pytest.raises(CommandError, match="default tenant"):
        await move.run(ACTOR)
    await TenantStore(pair.b.database).create(ALL, "other", ["north.example"])
    with pytest.raises(CommandError, match=r"north\.example"):
        await pair.move().run(ACTOR)
    unknown = TenantMove(pair.a.access, pair.b.access, pair.directory, uuid4(), lambda _: None)
    with pytest.raises(CommandError, match="has no tenant"):
        await unknown.run(ACTOR)


async def test_a_write_after_a_lost_lock_is_moved_too(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection that rejects writers is cut after the last copy: what is written then must not be lost."""
    original = TenantMove._copy_rest
    late: list[UUID] = []

    async def cut_off(*values: object) -> None:
        await original(*values)  # type: ignore[arg-type]
        if late:
            return
        async with pair.a.database.connection() as connection:
            await connection.execute(CUT_WRITERS_LOCK)
        async with asyncio.timeout(10):
            while not late:
                with contextlib.suppress(TenantMoving):
                    await pair.a.add(pair.uid, "late.example")
                    late.append(await pair.a.hold(pair.uid))

    monkeypatch.setattr(TenantMove, "_copy_rest", cut_off)
    await pair.move().run(ACTOR)
    assert await pair.b.entries(pair.uid) == {"late.example"}
    assert await pair.b.held(pair.uid) == set(late)


async def test_what_one_cell_has_revoked_stays_so_when_a_second_tenant_follows(pair: Pair) -> None:
    south = await TenantStore(pair.a.database).create(ALL, "south", ["south.example"])
    both = frozenset({pair.uid, south.uid})
    keys = [ApiKeys(KeyStore(each.database), RING) for each in (pair.a, pair.b)]
    scopes = frozenset({KeyScope.READ, KeyScope.WRITE})
    made = [
        await keys[0].create(ALL, NewKey(name, scopes, both, networks), ACTOR)
        for name, networks in (("revoked", ()), ("narrow", (ip_network("10.0.0.0/8"),)), ("kept", ()))
    ]
    users = UserStore(pair.a.database), UserStore(pair.b.database)
    user = await users[0].create(ALL, NewUser("ann", Position(Role.ANALYST, both)), ACTOR)
    await pair.move().run(ACTOR)
    assert await keys[1].revoke(ALL, made[0][0].key_id, ACTOR)
    await users[1].disable(ALL, user.uid, ACTOR)
    async with pair.b.database.connection() as connection:
        narrower = "UPDATE api_keys SET networks = '{10.1.0.0/16}', scopes = '{lists:read}' WHERE name = 'narrow'"
        await connection.execute(narrower)

    second = TenantMove(pair.a.access, pair.b.access, pair.directory, south.uid, lambda _: None)
    await second.run(ACTOR)
    found = {key.name: key for key in await KeyStore(pair.b.database).list(ALL)}
    assert {key.tenants for key in found.values()} == {both}
    assert found["revoked"].revoked is not None
    assert (found["narrow"].networks, set(found["narrow"].scopes)) == ((ip_network("10.1.0.0/16"),), {"lists:read"})
    assert (found["kept"].networks, found["kept"].scopes, found["kept"].revoked) == ((), scopes, None)
    moved = await users[1].find(ALL, user.uid)
    assert moved is not None
    assert (moved.tenants, moved.disabled) == (both, True)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE people SET password = 'other'", "ann.*another password"),
        ("UPDATE people SET role = 'auditor'", "ann.*another role"),
        (NEW_PASSKEY, "ann.*another passkeys"),
        ("UPDATE api_keys SET networks = '{192.0.2.0/24}'", "no address is allowed in both"),
    ],
)
async def test_a_user_or_key_with_other_credentials_stops_the_move(pair: Pair, change: str, named: str) -> None:
    south = await TenantStore(pair.a.database).create(ALL, "south", ["south.example"])
    both = frozenset({pair.uid, south.uid})
    wanted = NewKey("both", frozenset({KeyScope.READ}), both, (ip_network("10.0.0.0/8"),))
    await ApiKeys(KeyStore(pair.a.database), RING).create(ALL, wanted, ACTOR)
    await UserStore(pair.a.database).create(ALL, NewUser("ann", Position(Role.ANALYST, both)), ACTOR)
    await pair.move().run(ACTOR)
    async with pair.b.database.connection() as connection:
        await connection.execute(change)
    second = TenantMove(pair.a.access, pair.b.access, pair.directory, south.uid, lambda _: None)
    with pytest.raises(CommandError, match=named):
        await second.run(ACTOR)


async def test_an_incomplete_move_stops_no_job_of_other_tenants(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [ApiKeys(KeyStore(each.database), RING) for each in (pair.a, pair.b)]
    new = NewKey("north", frozenset({KeyScope.READ}), frozenset({pair.uid}))
    _, text = await keys[0].create(ALL, new, ACTOR)
    user = NewUser("ann", Position(Role.ANALYST, frozenset({pair.uid})))
    await UserStore(pair.a.database).create(ALL, user, ACTOR)
    await pair.a.hold(pair.uid)
    await pair.a.add(pair.uid, "one.example")
    await interrupted(pair, monkeypatch)

    for cell in (pair.a, pair.b):
        other = await TenantStore(cell.database).create(ALL, "other", [f"{cell.name}.example"])
        kept = await cell.hold(other.uid)
        async with cell.database.connection() as connection:
            await connection.execute("UPDATE tenants SET quarantine_digest = true WHERE uid = $1", other.uid)
            await connection.execute("SELECT set_config('mailwarden.mover', $1, false)", str(pair.uid))
            await connection.execute("UPDATE tenants SET quarantine_digest = true WHERE uid = $1", pair.uid)
            await connection.execute("UPDATE quarantine SET expires = now() - interval '1 day'")
            await connection.execute("SELECT set_config('mailwarden.mover', '', false)")
        assert await RetentionStore(cell.database).redate(ALL, RetentionDays()) == 1
        digests = DigestStore(cell.database)
        await digests.prepare(ALL, date(2026, 1, 1), datetime.now(UTC) + timedelta(minutes=1))
        job = await digests.take(ALL, date(2026, 1, 1))
        assert job is not None
        assert job.tenant == other.uid
        assert await digests.take(ALL, date(2026, 1, 1), job) is None
        async with cell.database.connection() as connection:
            await connection.execute("UPDATE quarantine SET expires = now() - interval '1 day' WHERE uid = $1", kept)
        assert await RetentionStore(cell.database).expire(ALL) == 1
        assert await cell.held(other.uid) == set()
        await cell.add(other.uid, "old.example")
        async with cell.database.connection() as connection, connection.transaction():
            await connection.execute("SET LOCAL mailwarden.scope = 'all'")
            await connection.execute("UPDATE list_entries SET expires = '2020-01-01T00:00:00Z'")
        assert await Expiry(ListStore(cell.database, cell.database)).purge(datetime.now(UTC)) == 1

    with pytest.raises(InvalidCredentials):
        await keys[1].authenticate(text, None)
    found = await UserStore(pair.b.database).find_name(ALL, "ann")
    assert found is not None
    assert found[0].disabled, "not yet here"


async def test_an_aborted_move_leaves_no_copy(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.a.add(pair.uid, "one.example")
    await pair.a.hold(pair.uid)
    keys = ApiKeys(KeyStore(pair.a.database), RING)
    await keys.create(ALL, NewKey("north", frozenset({KeyScope.READ}), frozenset({pair.uid})), ACTOR)
    await interrupted(pair, monkeypatch)
    assert await pair.b.held(pair.uid)
    await pair.move().abort()
    await pair.move().abort()
    assert await pair.b.held(pair.uid) == set()
    assert await pair.b.entries(pair.uid) == set()
    assert await KeyStore(pair.b.database).list(ALL) == []
    async with pair.b.database.connection() as connection:
        assert await connection.fetchval("SELECT count(*) FROM tenant_domains WHERE tenant = $1", pair.uid) == 0


async def test_finishing_an_old_move_removes_nothing_of_a_tenant_that_is_back(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pair.a.add(pair.uid, "one.example")
    await pair.move().run(ACTOR)
    original = TenantMove._confirm

    async def slow(*values: object) -> None:
        """The old row is known; meanwhile the tenant moves back, as if this command had no lock."""
        await original(*values)  # type: ignore[arg-type]
        async with pair.a.database.connection() as connection:
            await connection.execute("UPDATE tenant_places SET state = 'here', version = 2 WHERE tenant = $1", pair.uid)

    with monkeypatch.context() as patched:
        patched.setattr(TenantMove, "_confirm", slow)
        for command in (pair.move().finish, lambda: pair.move().run(ACTOR)):
            with pytest.raises(CommandError, match="Nothing was removed"):
                await command()
            async with pair.a.database.connection() as connection:
                back = "UPDATE tenant_places SET state = 'moved', version = 1 WHERE tenant = $1"
                await connection.execute(back, pair.uid)
            assert await pair.a.entries(pair.uid) == {"one.example"}


async def test_two_commands_never_move_a_tenant_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = []
    original = TenantMove._announce

    async def watched(*values: object) -> object:
        for command in (pair.move().finish, pair.move().abort, pair.move(back=True).finish):
            with pytest.raises(CommandError, match="Another move"):
                await command()
            refused.append(command)
        return await original(*values)  # type: ignore[arg-type]

    monkeypatch.setattr(TenantMove, "_announce", watched)
    await pair.move().run(ACTOR)
    assert len(refused) == 3


async def test_a_row_that_arrives_while_a_day_is_moved_stays(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    await pair.move().run(ACTOR)
    history = open_history(pair.a.database)
    await history.save(ALL, [finished(pair.uid)])
    late = finished(pair.uid)
    original = remainder._copy_day

    async def watched(*values: object) -> int:
        number = await original(*values)  # type: ignore[arg-type]
        await history.save(ALL, [late])
        return number

    with monkeypatch.context() as patched:
        patched.setattr(remainder, "_copy_day", watched)
        assert await pair.move().finish() == 1
    assert await pair.move().finish() == 1
    assert list(await open_history(pair.b.database).tenants_of(ALL, late.ggrid)) == [pair.uid]


async def test_a_restored_cell_accepts_no_change_of_a_tenant_that_is_elsewhere(pair: Pair) -> None:
    """Its backup is of before the move; abby finds the newer place in the directory and stores it."""
    await pair.move().run(ACTOR)
    async with pair.a.database.connection() as connection:
        await connection.execute("DELETE FROM tenant_places")
    directory = TenantDirectory(TenantStore(pair.a.database))
    await directory.refresh()
    await directory.mark_moved(pair.uid, 1, "b")
    with pytest.raises(TenantMoving):
        await pair.a.add(pair.uid, "late.example")
    await directory.mark_moved(pair.uid, 1, "c")
    assert [each.other_cell for each in directory.stored() if each.uid == pair.uid] == ["b"]


async def test_a_domain_that_the_tenant_gave_up_is_free_in_its_old_cell(pair: Pair) -> None:
    tenants = [TenantStore(each.database) for each in (pair.a, pair.b)]
    await pair.move().run(ACTOR)
    directory = TenantDirectory(tenants[0])
    await directory.refresh()
    with pytest.raises(DomainTaken):
        await tenants[0].create(ALL, "other", ["north.example"])
    await directory.give_up_domains(pair.uid, 0, ["north.example"])
    with pytest.raises(TenantMoving):  # the version is that of another move
        directory.assign("ann@north.example")
    await directory.give_up_domains(pair.uid, 1, ["north.example"])
    assert directory.assign("ann@north.example").by is AssignedBy.DEFAULT
    other = await tenants[0].create(ALL, "other", ["north.example"])
    assert other.domains == ("north.example",)


async def test_cells_with_one_vault_move_no_tenant(pair: Pair) -> None:
    await pair.a.hold(pair.uid)
    target = replace(pair.b.access, vault=pair.a.access.vault)
    with pytest.raises(CommandError, match="Both cells use the vault"):
        await TenantMove(pair.a.access, target, pair.directory, pair.uid, lambda _: None).run(ACTOR)


@pytest.mark.parametrize("cell", ["a", "b"])
async def test_a_vault_of_another_deployment_moves_no_tenant(pair: Pair, cell: str) -> None:
    vault = (pair.a if cell == "a" else pair.b).access.vault
    await vault.claim(uuid4())
    with pytest.raises(CommandError, match="belongs to the deployment"):
        await pair.move().run(ACTOR)
