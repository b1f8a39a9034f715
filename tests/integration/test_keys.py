"""API keys in a real PostgreSQL: made, checked, limited, revoked, and each step in the audit."""

import json
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from structlog.testing import capture_logs

from mailwarden.access.audit import AuditStore
from mailwarden.access.key_texts import KeyTexts
from mailwarden.access.keys import MEMORY_SECONDS, ApiKeys, KeyStore, NewKey
from mailwarden.access.pepper import PepperStore
from mailwarden.access.permissions import KeyScope
from mailwarden.access.tenant_store import TenantStore
from mailwarden.cli.main import main
from mailwarden.crypto.keyring import KeyRing
from mailwarden.database.pool import Database
from mailwarden.errors import (
    CommandError,
    GlobalScopeForbidden,
    InvalidCredentials,
    KeyNotFound,
    SchemaViolation,
    TenantForbidden,
    TenantNotFound,
)
from mailwarden.model.scope import Actor, Scope

ALL = Scope.deployment()
ADA = Actor("cli:ada")
PEPPER = KeyRing.of(b"p" * 32)
BOTH = frozenset({KeyScope.READ, KeyScope.WRITE})
ANYWHERE = "192.0.2.1"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(database: Database, clock: Clock) -> ApiKeys:
    return ApiKeys(KeyStore(database), PEPPER, clock)


@pytest.fixture
async def tenant(database: Database) -> UUID:
    return (await TenantStore(database).create(ALL, "acme")).uid


async def test_another_text_another_pepper_or_another_checksum_is_not_known(keys: ApiKeys, database: Database) -> None:
    _, text = await keys.create(ALL, NewKey("soar", BOTH), ADA)
    other = ApiKeys(KeyStore(database), KeyRing.of(b"q" * 32))
    with pytest.raises(InvalidCredentials):
        await other.authenticate(text, ANYWHERE)
    _, foreign = await keys.create(ALL, NewKey("other", BOTH), ADA)
    mixed = text[:17] + foreign[17:]
    for wrong in (
        text[:-1],
        text + "0",
        text.upper(),
        mixed,
        "",
        "mwk_",
        text[:-1] + ("0" if text[-1] != "0" else "1"),
    ):
        with pytest.raises(InvalidCredentials):
            await keys.authenticate(wrong, ANYWHERE)


async def test_a_revoked_key_is_refused_once_the_memory_of_it_is_over(
    keys: ApiKeys, database: Database, clock: Clock
) -> None:
    made, text = await keys.create(ALL, NewKey("soar", BOTH), ADA)
    await keys.authenticate(text, ANYWHERE)
    await keys.authenticate(text, ANYWHERE)
    assert await KeyStore(database).revoke(ALL, made.key_id, ADA)
    assert not await KeyStore(database).revoke(ALL, made.key_id, ADA)
    assert MEMORY_SECONDS <= 5
    clock.now += MEMORY_SECONDS
    with pytest.raises(InvalidCredentials):
        await keys.authenticate(text, ANYWHERE)


async def test_a_key_is_good_only_from_its_networks(keys: ApiKeys) -> None:
    wanted = NewKey("soar", BOTH, networks=(ip_network("192.0.2.0/24"), ip_network("2001:db8::/32")))
    _, text = await keys.create(ALL, wanted, ADA)
    for address in ("192.0.2.9", "::ffff:192.0.2.9", "2001:db8::1"):
        await keys.authenticate(text, address)
    for foreign in ("198.51.100.1", "2001:db9::1", "", None):
        with pytest.raises(InvalidCredentials):
            await keys.authenticate(text, foreign)


async def test_the_last_use_is_written_once_a_minute(keys: ApiKeys, database: Database, clock: Clock) -> None:
    made, text = await keys.create(ALL, NewKey("soar", BOTH), ADA)
    assert made.last_used is None
    await keys.authenticate(text, ANYWHERE)
    (first,) = await KeyStore(database).list(ALL)
    assert first.last_used is not None
    clock.now += MEMORY_SECONDS
    await keys.authenticate(text, ANYWHERE)
    assert (await KeyStore(database).list(ALL))[0].last_used == first.last_used
    async with database.connection() as connection:
        await connection.execute("UPDATE api_keys SET last_used = now() - interval '61 seconds'")
    clock.now += MEMORY_SECONDS
    await keys.authenticate(text, ANYWHERE)
    used = (await KeyStore(database).list(ALL))[0].last_used
    assert used is not None
    assert used >= first.last_used


async def test_keys_outside_the_scope_cannot_be_created_or_seen(
    keys: ApiKeys, database: Database, tenant: UUID
) -> None:
    mine = Scope.of(tenant)
    with pytest.raises(GlobalScopeForbidden):
        await keys.create(mine, NewKey("soar", BOTH), ADA)
    with pytest.raises(TenantForbidden):
        await keys.create(mine, NewKey("soar", BOTH, frozenset({uuid4()})), ADA)
    with pytest.raises(TenantNotFound):
        await keys.create(ALL, NewKey("soar", BOTH, frozenset({uuid4()})), ADA)
    deployment, _ = await keys.create(ALL, NewKey("all", BOTH), ADA)
    made, _ = await keys.create(mine, NewKey("soar", BOTH, frozenset({tenant})), ADA)
    store = KeyStore(database)
    assert [key.key_id for key in await store.list(mine)] == [made.key_id]
    assert len(await store.list(ALL)) == 2
    assert await store.find(mine, deployment.key_id) is None
    assert not await store.revoke(mine, deployment.key_id, ADA)
    assert await store.revoke(mine, made.key_id, ADA)


async def test_making_and_revoking_stand_in_the_audit(keys: ApiKeys, database: Database, tenant: UUID) -> None:
    made, text = await keys.create(ALL, NewKey("soar", BOTH, frozenset({tenant})), ADA)
    await KeyStore(database).revoke(ALL, made.key_id, ADA)
    revoked, created = await AuditStore(database).find(ALL, limit=2)
    assert (created.action, created.actor, created.tenant, created.subject) == ("keys.create", ADA, tenant, made.key_id)
    assert created.details["scopes"] == ["lists:read", "lists:write"]
    assert (revoked.action, revoked.subject) == ("keys.revoke", made.key_id)
    assert text.rpartition("_")[2] not in str([created, revoked])


async def test_a_key_needs_a_name_and_a_scope(keys: ApiKeys) -> None:
    for name in ("", "a\nb", "x" * 101):
        with pytest.raises(SchemaViolation):
            await keys.create(ALL, NewKey(name, BOTH), ADA)
    with pytest.raises(CommandError):
        await keys.create(ALL, NewKey("soar", frozenset()), ADA)


def test_the_command_makes_shows_and_revokes(
    database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*words: str) -> str:
        assert main(["keys", *words, "--config", str(tmp_path), "--database-url", database_url]) == 0
        return capsys.readouterr().out

    file = tmp_path / "abby" / "abby" / "abby.yml"
    file.parent.mkdir(parents=True)
    file.write_text("serviceProviders: {core: {hosts: ['https://127.0.0.1:9785']}}\n")
    pepper = tmp_path / "secrets" / "pepper"
    pepper.parent.mkdir()
    pepper.write_text("0" * 64)
    words = ["create", "soar", "--scope", "lists:write", "--global", "--expires", "90d", "--network", "192.0.2.0/24"]
    made = json.loads(run(*words, "-o", "json"))
    assert made["key"].startswith(f"mwk_{made['id']}_")
    assert made["networks"] == ["192.0.2.0/24"]
    (listed,) = json.loads(run("ls", "-o", "json"))
    assert "key" not in listed
    assert (listed["id"], listed["scopes"], listed["revoked"]) == (made["id"], ["lists:write"], None)
    assert "until" in run("ls")
    successor = json.loads(run("rotate", made["id"], "--overlap", "1", "-o", "json"))
    assert (successor["name"], successor["replaces"]) == ("soar", made["id"])
    assert successor["key"].startswith(f"mwk_{successor['id']}_")
    assert made["id"] in run("revoke", made["id"])
    assert "revoked" in run("ls")
    where = ["--config", str(tmp_path), "--database-url", database_url]
    assert main(["keys", "revoke", made["id"], *where]) == 2
    assert main(["keys", "rotate", made["id"], *where]) == 2
    pepper.unlink()
    capsys.readouterr()
    assert main(["keys", "create", "soar", "--scope", "lists:read", "--global", *where]) == 2
    assert "apiKeyPepper" in capsys.readouterr().err


async def test_a_rotated_key_and_its_successor_are_both_good_for_a_while(
    keys: ApiKeys, database: Database, tenant: UUID, clock: Clock
) -> None:
    wanted = NewKey("soar", BOTH, frozenset({tenant}), (ip_network("192.0.2.0/24"),), datetime.now(UTC) + timedelta(90))
    old, old_text = await keys.create(ALL, wanted, ADA)
    new, new_text = await keys.rotate(ALL, old.key_id, timedelta(hours=1), ADA)
    for text in (old_text, new_text):
        await keys.authenticate(text, "192.0.2.1")
    assert (new.name, new.scopes, new.tenants, new.networks) == (old.name, old.scopes, old.tenants, old.networks)
    assert new.expires is not None
    assert abs(new.expires - datetime.now(UTC) - timedelta(90)) < timedelta(minutes=1)
    ended = await keys.find(ALL, old.key_id)
    assert (ended.replaced_by, new.replaces) == (new.key_id, old.key_id)
    assert ended.expires is not None
    assert abs(ended.expires - datetime.now(UTC) - timedelta(hours=1)) < timedelta(minutes=1)
    async with database.connection() as connection:
        await connection.execute("UPDATE api_keys SET expires = now() WHERE key_id = $1", old.key_id)
    clock.now += MEMORY_SECONDS
    with pytest.raises(InvalidCredentials):
        await keys.authenticate(old_text, "192.0.2.1")
    await keys.authenticate(new_text, "192.0.2.1")
    (deed, *_) = await AuditStore(database).find(ALL)
    assert (deed.action, deed.subject, deed.tenant) == ("keys.rotate", old.key_id, tenant)


async def test_only_a_valid_key_of_the_own_scope_is_rotated_and_once(keys: ApiKeys, tenant: UUID) -> None:
    deployment, text = await keys.create(ALL, NewKey("all", BOTH), ADA)
    with pytest.raises(KeyNotFound):
        await keys.rotate(Scope.of(tenant), deployment.key_id, timedelta(hours=24), ADA)
    new, _ = await keys.rotate(ALL, deployment.key_id, timedelta(0), ADA)
    with pytest.raises(InvalidCredentials):
        await keys.authenticate(text, ANYWHERE)
    with pytest.raises(KeyNotFound):
        await keys.rotate(ALL, deployment.key_id, timedelta(hours=24), ADA)
    assert await keys.revoke(ALL, new.key_id, ADA)
    with pytest.raises(KeyNotFound):
        await keys.rotate(ALL, new.key_id, timedelta(hours=24), ADA)
    with pytest.raises(SchemaViolation):
        await keys.rotate(ALL, new.key_id, timedelta(days=31), ADA)


async def test_a_key_that_was_not_made_here_causes_no_query(keys: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asked(*_: object) -> None:
        raise AssertionError("the database was asked")

    monkeypatch.setattr(KeyStore, "find", asked)
    _, foreign = KeyTexts(KeyRing.of(b"q" * 32)).new()
    with pytest.raises(InvalidCredentials):
        await keys.authenticate(foreign, ANYWHERE)


async def test_a_key_that_rows_need_and_the_pepper_lacks_is_logged(keys: ApiKeys, database: Database) -> None:
    await keys.create(ALL, NewKey("all", BOTH), ADA)
    with capture_logs() as logged:
        await PepperStore(database).log_lost_keys(ALL, PEPPER)
    assert logged == []
    with capture_logs() as logged:
        await PepperStore(database).log_lost_keys(ALL, KeyRing.of(b"q" * 32))
    (line,) = logged
    assert (line["event"], line["key"]) == ("pepper_key_lost", PEPPER.current.name)
    assert line["needed_by"] == {"API keys": 1}
