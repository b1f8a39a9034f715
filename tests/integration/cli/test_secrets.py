"""`mailwarden secrets`: keys are rotated while messages are held, and none is dropped that something needs."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from mailwarden.access.keys import ApiKeys, KeyStore, NewKey
from mailwarden.access.permissions import KeyScope
from mailwarden.access.tenant_store import TenantStore
from mailwarden.access.users import Position, Role
from mailwarden.cli.main import main
from mailwarden.crypto.keyring import UnknownKey, read_ring
from mailwarden.database.pool import Database
from mailwarden.errors import InvalidCredentials
from mailwarden.model.scope import Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.digest import DigestLink
from mailwarden.quarantine.digest_links import DigestLinkSigner
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault
from mailwarden.serving.spool import Spooled
from tests.integration.held_messages import RAW, finished
from tests.samples.accounts import ADA, Accounts

COMMAND = "secrets"
ALL = Scope.deployment()
ROOT = Position(Role.DEPLOYMENT_ADMINISTRATOR)
BOTH = frozenset(KeyScope)


@pytest.fixture
def pepper(folder: Path) -> Path:
    path = folder / "secrets" / "pepper"
    path.write_text("p" * 64 + "\n")
    return path


def ring_of(folder: Path, name: str = "contents"):
    return read_ring(folder / "secrets" / name, name)


def vault_of(folder: Path) -> Vault:
    return Vault(FilesystemStore(folder / "quarantine"), ring_of(folder))


def keep(database_url: str, folder: Path, raw: bytes = RAW) -> tuple[UUID, bytes]:
    """Hold a message; return its tenant and its address."""

    async def work() -> tuple[UUID, bytes]:
        database = Database(database_url)
        (tenant,) = await TenantStore(database).list(ALL)
        store = QuarantineStore(database)
        uid = await QuarantineWriter(vault_of(folder), store, RetentionDays()).hold(
            finished(tenant.uid, raw=raw), Spooled.of(raw)
        )
        held = await store.find(ALL, uid)
        await database.close()
        assert held.address is not None
        return held.tenant, held.address

    return asyncio.run(work())


def opened(folder: Path, held: tuple[UUID, bytes], spool: Path) -> bytes:
    async def work() -> bytes:
        found = await vault_of(folder).get(*held, spool)
        try:
            return found.data()
        finally:
            found.close()

    return asyncio.run(work())


def states(run: Callable[..., Any], secret: str) -> dict[str, tuple[str, dict[str, int]]]:
    found = run("list", "-o", "json")
    return {each["key"]: (each["state"], each["neededBy"]) for each in found if each["secret"] == secret}


def test_a_rotation_loses_nothing_and_a_needed_key_stays(run, folder, pepper, database_url, tmp_path, capsys):
    first = keep(database_url, folder)
    (tmp_path / "one.eml").write_bytes(b"Subject: one\n\napples\n")
    report(folder, tmp_path / "one.eml")
    capsys.readouterr()
    old = ring_of(folder).current.name
    assert states(run, "contents") == {old: ("current", {"held messages": 1, "training reports": 1})}

    assert "is the current key" in run("rotate", "contents").out
    new = ring_of(folder).current.name
    assert new != old
    second = keep(database_url, folder, RAW + b"more\r\n")
    assert opened(folder, first, tmp_path) == RAW
    assert opened(folder, second, tmp_path) == RAW + b"more\r\n"
    assert states(run, "contents") == {
        new: ("current", {"held messages": 1}),
        old: ("old", {"held messages": 1, "training reports": 1}),
    }
    before = (folder / "secrets" / "contents").read_bytes()
    assert "is still needed by 1 held messages, 1 training reports" in run("drop", "contents", old, code=2).err
    assert "is the current key" in run("drop", "contents", new, code=2).err
    assert "has no key `00000000`" in run("drop", "contents", "00000000", code=2).err
    assert (folder / "secrets" / "contents").read_bytes() == before

    assert f"1 held messages, 1 training reports encrypted with the key {new}" in run("reencrypt", "contents").out
    assert "nothing encrypted" in run("reencrypt", "contents").out
    assert opened(folder, first, tmp_path) == RAW
    assert states(run, "contents")[old] == ("old", {})
    assert "hold until" in run("drop", "contents", old, code=2).err, "its links are still on their way"
    long_ago = f"retired={datetime.now(UTC) - timedelta(days=100):%Y-%m-%d}"
    (folder / "secrets" / "contents").write_text(re.sub(r"retired=\S+", long_ago, before.decode()))
    assert "dropped" in run("drop", "contents", old).out
    assert [key.name for key in ring_of(folder).keys] == [new]
    assert opened(folder, first, tmp_path) == RAW
    assert opened(folder, second, tmp_path) == RAW + b"more\r\n"


def test_a_vault_of_another_deployment_is_not_encrypted_with_a_key_that_its_owner_lacks(
    run, folder, pepper, database_url, tmp_path
):
    """A copy of a deployment, restored with its secrets and its vault, rotates the key."""
    held = keep(database_url, folder)
    whole = (folder / "secrets" / "contents").read_bytes()
    asyncio.run(vault_of(folder).claim(uuid4()))
    run("rotate", "contents")
    assert "belongs to the deployment" in run("reencrypt", "contents", code=2).err
    (folder / "secrets" / "contents").write_bytes(whole)
    assert opened(folder, held, tmp_path) == RAW, "the owner has the old key alone"


def test_a_lost_key_is_reported_and_its_data_is_kept(run, folder, pepper, database_url, tmp_path):
    held = keep(database_url, folder)
    file, old = folder / "secrets" / "contents", ring_of(folder).current.name
    whole = file.read_text()
    run("rotate", "contents")
    both = file.read_text()
    file.write_text("".join(line for line in both.splitlines(keepends=True) if whole.split()[0] not in line))
    with pytest.raises(UnknownKey, match=old):
        opened(folder, held, tmp_path)
    seen = run("list", code=1).out
    assert re.search(rf"{old}\s+MISSING", seen)
    assert "restore its line" in seen
    assert f"needs the key {old}" in run("reencrypt", "contents", code=1).out
    file.write_text(both)
    assert opened(folder, held, tmp_path) == RAW


def test_a_standby_key_opens_before_it_is_used(run, folder, pepper):
    old = ring_of(folder).current.name
    run("rotate", "contents", "--standby")
    standby = ring_of(folder).keys[1].name
    assert [key.name for key in ring_of(folder).keys] == [old, standby]
    assert states(run, "contents")[standby][0] == "standby"
    run("use", "contents", standby)
    assert [key.name for key in ring_of(folder).keys] == [standby, old]
    assert states(run, "contents") == {standby: ("current", {}), old: ("old", {})}
    assert "is current already" in run("use", "contents", standby).out


def test_signed_links_hold_after_a_rotation(run, folder, pepper):
    link = DigestLink(UUID(int=7), 1, datetime.now(UTC).replace(microsecond=0) + timedelta(days=1))
    token = DigestLinkSigner(ring_of(folder)).token(link)
    run("rotate", "contents")
    assert DigestLinkSigner(ring_of(folder)).open(token, datetime.now(UTC)) == link


def test_api_keys_codes_and_authenticators_outlast_a_rotation(run, folder, pepper, database_url):
    async def before() -> tuple[str, Accounts]:
        database = Database(database_url)
        accounts = Accounts(database, pepper=ring_of(folder, "pepper"))
        await accounts.create_user("ada", ROOT)
        _, text = await ApiKeys(KeyStore(database), ring_of(folder, "pepper")).create(ALL, NewKey("soar", BOTH), ADA)
        await database.close()
        return text, accounts

    async def after(text: str, created: Accounts) -> None:
        database = Database(database_url)
        accounts = Accounts(database, pepper=ring_of(folder, "pepper"))
        accounts.secrets, accounts.clock.now = created.secrets, created.clock.now
        try:
            await ApiKeys(KeyStore(database), ring_of(folder, "pepper")).authenticate(text, None)
            await accounts.log_in("ada")
            created.clock.now = accounts.clock.now
        finally:
            await database.close()

    text, accounts = asyncio.run(before())
    old = ring_of(folder, "pepper").current.name
    assert states(run, "pepper") == {
        old: ("current", {"API keys": 1, "authenticators": 1, "recovery codes": 10}),
    }
    run("rotate", "pepper")
    new = ring_of(folder, "pepper").current.name
    asyncio.run(after(text, accounts))
    assert (
        "is still needed by 1 API keys, 1 authenticators, 10 recovery codes" in run("drop", "pepper", old, code=2).err
    )
    assert "1 authenticators encrypted with the key" in run("reencrypt", "pepper").out
    asyncio.run(after(text, accounts))
    found = states(run, "pepper")
    assert found[old] == ("old", {"API keys": 1, "recovery codes": 10})
    assert found[new] == ("current", {"authenticators": 1})

    whole = pepper.read_text()
    pepper.write_text("".join(line for line in whole.splitlines(keepends=True) if "p" * 64 not in line))
    with pytest.raises(InvalidCredentials):
        asyncio.run(after(text, accounts))
    assert re.search(rf"{old}\s+MISSING", run("list", code=1).out)
    pepper.write_text(whole)
    asyncio.run(after(text, accounts))


def test_a_command_that_was_interrupted_leaves_the_file_alone(run, folder, pepper):
    before = (folder / "secrets" / "contents").read_bytes()
    (folder / "secrets" / "contents.new").touch()
    assert "another command is at work" in run("rotate", "contents", code=2).err
    assert (folder / "secrets" / "contents").read_bytes() == before


def report(folder: Path, message: Path) -> None:
    words = ["training", "add", str(message), "--tenant", "default", "--kind", "spam", "--config", str(folder)]
    assert main(words) == 0
