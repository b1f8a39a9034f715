"""The quarantine with PostgreSQL and a folder: what is kept is kept, found, released, deleted and forgotten."""

import asyncio
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mailwarden.access.audit import AuditStore
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import MessageNotFound, NotReleasable
from mailwarden.model.outcome import Verdict
from mailwarden.model.scope import Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import HeldFilter, State
from mailwarden.quarantine.release import ReleaseJob
from mailwarden.quarantine.release_token import (
    ClaimedToken,
    ReleaseToken,
    ReleaseTokens,
    ReleaseTokenSigner,
    ReleaseTokenStore,
    TokenInUse,
)
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.integration.held_messages import RAW, finished
from tests.integration.quarantine.quarantine_setup import ALL, ANN, QuarantineSetup
from tests.waiting import eventually


async def test_a_message_is_stored_byte_for_byte_with_its_search_fields(setup: QuarantineSetup, tmp_path: Path):
    uid = await setup.keep(subject="Your invoice\0", recipients=("ann@north.example", "Bob@north.example"))
    held = await setup.store.find(ALL, uid)
    assert (held.subject, held.verdict, held.sender) == ("Your invoice\ufffd", Verdict.SPAM, "eve@evil.example")
    assert held.in_state(State.HELD) == ("ann@north.example", "Bob@north.example")
    assert held.expires - held.received == timedelta(days=30)
    assert held.address is not None
    found = await setup.vault.get(setup.north, held.address, tmp_path)
    assert found.data() == RAW


async def test_the_same_guard_request_is_kept_once(setup: QuarantineSetup):
    request = finished(setup.north)
    first, second = [await setup.writer.hold(request, Spooled.of(RAW)) for _ in range(2)]
    assert first == second
    assert len(await setup.store.page(ALL)) == 1


async def test_two_tenants_hold_a_message_of_the_same_ggrid(setup: QuarantineSetup):
    north, south = finished(setup.north, recipients=("ann@north.example",)), finished(setup.south)
    south = replace(south, ggrid=north.ggrid, envelope=replace(south.envelope, recipients=("kim@south.example",)))
    ours, theirs = [await setup.writer.hold(each, Spooled.of(RAW)) for each in (north, south)]
    assert ours != theirs
    assert await setup.writer.hold(south, Spooled.of(RAW)) == theirs
    places = [(north.ggrid, setup.north), (north.ggrid, setup.south)]
    held = sorted((await setup.store.of_rows(ALL, places)).values(), key=lambda each: each.uid == theirs)
    assert [each.uid for each in held] == [ours, theirs]
    assert [each.in_state(State.HELD) for each in held] == [("ann@north.example",), ("kim@south.example",)]
    await setup.store.delete(ALL, ours, None, ANN)
    assert (await setup.store.find(ALL, theirs)).is_kept
    states = await setup.store.states(ALL, places)
    assert states == {(north.ggrid, setup.north): State.DELETED, (north.ggrid, setup.south): State.HELD}
    assert await setup.store.states(Scope.of(setup.south), places) == {(north.ggrid, setup.south): State.HELD}


async def test_no_call_reaches_over_the_wall_of_a_tenant(setup: QuarantineSetup):
    uid = await setup.keep()
    held, foreign = await setup.store.find(ALL, uid), Scope.of(setup.south)
    for call in (
        setup.store.find(foreign, uid),
        setup.store.request_release(foreign, uid, None, ANN),
        setup.store.delete(foreign, uid, None, ANN),
        setup.store.record_export(foreign, uid, ANN),
    ):
        with pytest.raises(MessageNotFound):
            await call
    for nobody in (foreign, Scope.of()):
        assert await setup.store.of_rows(nobody, [(held.ggrid, held.tenant)]) == {}
        assert await setup.store.page(nobody) == []
        assert await setup.store.page(nobody, HeldFilter(tenant=setup.north)) == []
        assert await setup.store.counts(nobody) == {}
    retention = RetentionStore(setup.database)
    assert await retention.kept(foreign, held.vault) == []
    await setup.releases.set_missing(foreign, held, missing=True)
    await setup.store.request_release(Scope.of(setup.north), uid, None, ANN)
    assert await setup.releases.claim(foreign, held.vault, 60.0) is None
    assert (await setup.store.find(ALL, uid)).in_state(State.RELEASING) == held.in_state(State.HELD)
    assert not (await setup.store.find(ALL, uid)).missing


async def test_a_release_is_handed_on_whole_noted_audited_and_learned_from(setup: QuarantineSetup):
    uid = await setup.keep(recipients=("ann@north.example", "bob@north.example"))
    asked = await setup.store.request_release(Scope.of(setup.north), uid, None, ANN, train=True)
    assert asked.in_state(State.RELEASING) == ("ann@north.example", "bob@north.example")

    assert await setup.releasing.look() == 2

    held = await setup.store.find(ALL, uid)
    assert setup.sink.taken == [(("ann@north.example", "bob@north.example"), RAW)]
    assert setup.sink.heard == [(held.ggrid, RAW, "person:ann")]
    assert [each.state for each in held.recipients] == [State.RELEASED] * 2
    deeds = await AuditStore(setup.database).find(Scope.of(setup.north))
    assert [deed.action for deed in deeds if deed.action.startswith("quarantine")] == [
        "quarantine.released",
        "quarantine.release",
    ]
    assert await setup.releasing.look() == 0


async def test_a_release_teaches_only_if_it_is_asked_to(setup: QuarantineSetup):
    uid = await setup.keep(recipients=("ann@north.example", "bob@north.example"))
    setup.sink.refused = {"ann@north.example": "550 5.1.1 No such user"}
    await setup.store.request_release(ALL, uid, ["ann@north.example"], ANN, train=True)
    await setup.releasing.look()
    setup.sink.refused = {}
    await setup.store.request_release(ALL, uid, None, ANN)
    assert await setup.releasing.look() == 2
    assert setup.sink.heard == [], "the wish of the failed release does not outlive it"


async def test_the_audit_records_no_download_of_a_deleted_message(setup: QuarantineSetup):
    uid = await setup.keep()
    await setup.store.record_export(ALL, uid, ANN)
    await setup.store.delete(ALL, uid, None, ANN)
    with pytest.raises(NotReleasable):
        await setup.store.record_export(ALL, uid, ANN, "preview")
    with pytest.raises(NotReleasable):
        await setup.store.record_export(ALL, uid, ANN)
    deeds = await AuditStore(setup.database).find(Scope.of(setup.north))
    reported = [deed.action for deed in deeds if deed.action.startswith("quarantine")]
    assert reported == ["quarantine.delete", "quarantine.export"]


async def test_a_release_to_some_leaves_the_others_waiting(setup: QuarantineSetup):
    uid = await setup.keep(recipients=("ann@north.example", "bob@north.example"))
    await setup.store.request_release(ALL, uid, ["BOB@north.example"], ANN)
    await setup.releasing.look()
    held = await setup.store.find(ALL, uid)
    assert [each.state for each in held.recipients] == [State.HELD, State.RELEASED]
    with pytest.raises(NotReleasable):
        await setup.store.request_release(ALL, uid, ["eve@north.example"], ANN)
    await setup.store.request_release(ALL, uid, ["bob@north.example"], ANN)  # the next hop lost it
    assert await setup.releasing.look() == 1


async def test_an_unfinished_release_is_claimed_again(setup: QuarantineSetup):
    uid = await setup.keep()
    vault = (await setup.store.find(ALL, uid)).vault
    await setup.store.request_release(ALL, uid, None, ANN)
    assert await setup.releases.claim(ALL, vault, 900.0) is not None
    assert await setup.releasing.look() == 0, "another guard has it in hand"
    async with setup.database.connection() as connection:
        await connection.execute("UPDATE quarantine_recipients SET claimed_until = now() - interval '1 second'")
    assert await setup.releasing.look() == 1


async def test_a_release_from_another_vault_is_left_to_its_guards(setup: QuarantineSetup, tmp_path: Path):
    uid = await setup.keep()
    await setup.store.request_release(ALL, uid, None, ANN)
    elsewhere = Vault(FilesystemStore(tmp_path / "elsewhere"), KeyRing.of(b"k" * 64))
    assert await ReleaseJob(elsewhere, setup.releases, setup.sink, spool=tmp_path).look() == 0
    assert await setup.releasing.look() == 1


@pytest.mark.parametrize("recipients", [None, ["ann@north.example"]])
async def test_malware_is_not_released(setup: QuarantineSetup, recipients: list[str] | None):
    uid = await setup.keep(verdict=Verdict.MALWARE, recipients=("ann@north.example",))
    with pytest.raises(NotReleasable, match="file-hash-allow"):
        await setup.store.request_release(ALL, uid, recipients, ANN)


async def test_a_message_is_deleted_for_one_and_then_for_all_and_its_bytes_go(setup: QuarantineSetup):
    uid = await setup.keep(recipients=("ann@north.example", "bob@north.example"))
    await setup.store.delete(ALL, uid, ["ann@north.example"], ANN)
    await setup.retention.clear()
    assert len(setup.bodies()) == 1
    held = await setup.store.delete(ALL, uid, None, ANN)
    assert ([each.state for each in held.recipients], held.is_kept) == ([State.DELETED] * 2, False)
    assert await setup.retention.clear() == 1
    assert setup.bodies() == []
    for again in (setup.store.delete, setup.store.request_release):
        with pytest.raises(NotReleasable):
            await again(ALL, uid, None, ANN)


async def test_a_release_can_be_taken_back_until_a_guard_takes_it_on(setup: QuarantineSetup):
    early, late = await setup.keep(), await setup.keep(raw=b"other")
    for uid in (early, late):
        await setup.store.request_release(ALL, uid, None, ANN)
    await setup.store.delete(ALL, early, None, ANN)
    release = await setup.releases.claim(ALL, (await setup.store.find(ALL, late)).vault, 60.0)
    assert release is not None
    assert release.message.uid == late
    with pytest.raises(NotReleasable, match="is releasing"):
        await setup.store.delete(ALL, late, None, ANN)
    assert (await setup.store.find(ALL, early)).in_state(State.DELETED) == ("ann@north.example",)


async def test_guards_that_release_at_once_do_each_release_once(setup: QuarantineSetup, tmp_path: Path):
    recipients = tuple(f"r{number}@north.example" for number in range(5))
    for number in range(12):
        uid = await setup.keep(raw=bytes([number]), recipients=recipients)
        await setup.store.request_release(ALL, uid, None, ANN)
    guards = [ReleaseJob(setup.vault, setup.releases, setup.sink, spool=tmp_path) for _ in range(4)]
    served = 0
    while sum(len(taken) for taken, _ in setup.sink.taken) < 60:
        served += sum(await asyncio.gather(*(guard.look() for guard in guards)))
    assert served == 60
    assert sorted(raw for _, raw in setup.sink.taken) == [bytes([number]) for number in range(12)]


async def test_a_release_token_is_spent_once(setup: QuarantineSetup):
    tokens = ReleaseTokenStore(setup.database)
    one, until = uuid4(), datetime.now(UTC) + timedelta(hours=1)
    claimed = await tokens.claim(ALL, one, 60.0)
    assert claimed is not None
    assert await tokens.claim(ALL, one, 60.0) is None
    assert await tokens.is_claimed(ALL, one, 60.0)
    await tokens.give_back(ALL, one, claimed - timedelta(seconds=1))
    assert await tokens.claim(ALL, one, 60.0) is None, "an older claim gives nothing back"
    await tokens.spend(ALL, one, until)
    assert await tokens.claim(ALL, one, 60.0) is None
    assert not await tokens.is_claimed(ALL, one, 60.0)


async def test_a_message_passes_once_by_its_token(setup: QuarantineSetup):
    signer = ReleaseTokenSigner(KeyRing.of(b"k" * 64))
    tokens, recipients = ReleaseTokens(signer, ReleaseTokenStore(setup.database), 60.0), ["ann@north.example"]
    token = ReleaseToken(uuid4(), uuid4(), datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1))
    stamped = Spooled.of(signer.field(token, recipients, sha256(RAW).digest()) + RAW)
    assert await tokens.claim(Spooled.of(RAW), recipients) is None
    claimed = await tokens.claim(stamped, recipients)
    assert claimed is not None
    assert claimed.token == token
    with pytest.raises(TokenInUse):
        await tokens.claim(stamped, recipients)
    await tokens.give_back(claimed)
    again = await tokens.claim(stamped, recipients)
    assert again is not None, "the next hop was down, and Postfix retries"
    await tokens.spend(again)
    assert await tokens.claim(stamped, recipients) is None


async def test_one_of_many_with_the_same_token_passes(setup: QuarantineSetup, database_url: str):
    signer, recipients = ReleaseTokenSigner(KeyRing.of(b"k" * 64)), ["ann@north.example"]
    databases = [Database(database_url, 8) for _ in range(2)]
    guards = [ReleaseTokens(signer, ReleaseTokenStore(database), 60.0) for database in databases]
    for _ in range(10):
        token = ReleaseToken(uuid4(), uuid4(), datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1))
        stamped = signer.field(token, recipients, sha256(RAW).digest()) + RAW
        tries = [guard.claim(Spooled.of(stamped), recipients) for guard in guards for _ in range(8)]
        found = await asyncio.gather(*tries, return_exceptions=True)
        claimed = [each for each in found if isinstance(each, ClaimedToken)]
        assert len(claimed) == 1
        assert sum(isinstance(each, TokenInUse) for each in found) == 15
        await guards[0].spend(claimed[0])
        assert await guards[1].claim(Spooled.of(stamped), recipients) is None
    for database in databases:
        await database.close()


async def test_the_retry_gets_the_token_of_a_guard_that_died(setup: QuarantineSetup):
    signer, recipients = ReleaseTokenSigner(KeyRing.of(b"k" * 64)), ["ann@north.example"]
    token = ReleaseToken(uuid4(), uuid4(), datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1))
    stamped = Spooled.of(signer.field(token, recipients, sha256(RAW).digest()) + RAW)
    assert (
        await ReleaseTokens(signer, ReleaseTokenStore(setup.database), 0.3).claim(stamped, recipients) is not None
    )  # and nothing after it
    retry = ReleaseTokens(signer, ReleaseTokenStore(setup.database), 60.0)
    with pytest.raises(TokenInUse):
        await retry.claim(stamped, recipients)

    async def claimed() -> bool:
        try:
            return await retry.claim(stamped, recipients) is not None
        except TokenInUse:
            return False

    await eventually(claimed)
