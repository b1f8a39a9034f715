"""`mailwarden backup` and `restore` with a real database: complete, verified, and without effect on any error."""

import asyncio
import io
import itertools
import json
import os
import pwd
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

import pytest
from ruamel.yaml import YAML

from mailwarden.cli.main import main
from mailwarden.crypto.keyring import read_ring
from mailwarden.database.dump import without_password
from mailwarden.database.migrations import FOLDER, known_migrations, migrate, pending
from mailwarden.database.pool import Database
from mailwarden.errors import CommandError
from mailwarden.lists.requests import AddEntries
from mailwarden.lists.service import ListService
from mailwarden.lists.store import ListScope, ListStore
from mailwarden.model.scope import Actor, Scope
from mailwarden.quarantine.blob_store import FilesystemStore
from mailwarden.quarantine.model import RetentionDays
from mailwarden.quarantine.release_store import ReleaseStore
from mailwarden.quarantine.retention import QuarantineRetention
from mailwarden.quarantine.retention_store import RetentionStore
from mailwarden.quarantine.service import QuarantineWriter
from mailwarden.quarantine.store import QuarantineStore
from mailwarden.quarantine.vault import Vault, open_vault
from mailwarden.serving.spool import Spooled
from mailwarden.settings.shared import Quarantine
from mailwarden.wire.strict_json import convert
from tests.integration.held_messages import RAW, finished
from workshop.rig.engines import Engines

ROOT = os.geteuid() == 0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Installed:
    """An installation with a held message and a list entry."""

    folder: Path
    url: str
    held: UUID


@pytest.fixture
def target(engines: Engines) -> Iterator[str]:
    """Return the address of an empty database."""
    name = f"test_restored_{next(_numbers)}"
    yield engines.postgresql.create_database(name)
    engines.postgresql.drop_database(name)


@pytest.fixture
def installed(database_url: str, tmp_path: Path) -> Installed:
    folder = tmp_path / "config"
    run("init", str(folder), "--no-database", "--database-url", database_url)
    uid = asyncio.run(fill(database_url, folder))
    (folder / "secrets" / "contents").chmod(0o640)
    if ROOT:
        owner = pwd.getpwnam("nobody")
        for path in (folder / "quarantine", *(folder / "quarantine").rglob("*"), folder / "secrets" / "contents"):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    return Installed(folder, database_url, uid)


async def fill(url: str, folder: Path) -> UUID:
    database = Database(url)
    try:
        body = convert({"listName": "sender-block", "entries": [{"entry": "billing@scam.example"}]}, AddEntries)
        await ListService(ListStore(database, database)).add_entries(
            ListScope(), "sender-block", body.entries, Actor("cli:ada")
        )
        async with database.connection() as connection:
            tenant = await connection.fetchval("SELECT uid FROM tenants LIMIT 1")
        vault = open_vault(Quarantine(), folder, read_ring(folder / "secrets" / "contents", "contents.key"))
        writer = QuarantineWriter(vault, QuarantineStore(database), RetentionDays())
        return await writer.hold(finished(UUID(str(tenant))), Spooled.of(RAW))
    finally:
        await database.close()


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    error: str


def command(*words: str) -> Done:
    out, error = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(error):
        code = main(words)
    return Done(code, out.getvalue(), error.getvalue())


def run(*words: str) -> str:
    done = command(*words)
    assert done.code == 0, done.error
    return done.out


def back_up(installed: Installed, file: Path) -> str:
    return run("backup", str(file), "--config", str(installed.folder))


async def read_back(folder: Path, url: str, held: UUID) -> tuple[bytes, int]:
    """Return the held message and the number of list entries of an installation."""
    database = Database(url)
    try:
        message = await QuarantineStore(database).find(Scope.deployment(), held)
        assert message.address is not None
        vault = open_vault(Quarantine(), folder, read_ring(folder / "secrets" / "contents", "contents.key"))
        assert message.vault == await vault.uid()
        raw = await vault.get(message.tenant, message.address, folder)
        again = convert({"listName": "sender-block", "entries": [{"entry": "billing@scam.example"}]}, AddEntries)
        known = await ListService(ListStore(database, database)).add_entries(
            ListScope(), "sender-block", again.entries, Actor("cli:ada")
        )
        return b"".join(raw.chunks()), known
    finally:
        await database.close()


def tree(folder: Path) -> dict[str, tuple[str, str, int, bytes]]:
    """Return owner, group, mode and contents of everything below a folder."""
    return {
        path.relative_to(folder).as_posix(): (
            path.owner(),
            path.group(),
            path.stat().st_mode & 0o777,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in folder.rglob("*")
    }


def count_tables(engines: Engines, url: str) -> int:
    query = "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    return int(engines.postgresql.execute(query, url.rpartition("/")[2]))


def test_a_restored_backup_has_every_message_entry_secret_and_owner(installed: Installed, target: str, tmp_path: Path):
    file, restored = tmp_path / "backup.tar", tmp_path / "restored"
    printed = back_up(installed, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert "list entries                     1" in printed
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == [], "no scratch is left"
    assert run("backup", str(file), "--verify") == printed

    out = run("restore", str(file), "--config", str(restored), "--database-url", target)
    assert f"mailwarden doctor --config {restored}" in out
    assert asyncio.run(read_back(restored, target, installed.held)) == (RAW, 1)
    assert asyncio.run(pending(target)) == []
    before, after = tree(installed.folder), tree(restored)
    settings = {"abby/abby/abby.yml", "guard/core/guard.yml"}
    same = {name: value for name, value in before.items() if name not in settings and ".parts" not in name}
    assert {name: after.get(name) for name in same} == same
    for name in settings:
        assert before[name][:3] == after[name][:3]
        assert YAML(typ="safe").load(after[name][3])["database"]["url"] == target
    if ROOT:
        assert after["quarantine"][0] == "nobody"


def test_events_after_a_restore_are_behind_every_cursor(
    installed: Installed, target: str, tmp_path: Path, engines: Engines
):
    file = tmp_path / "backup.tar"
    back_up(installed, file)
    run("restore", str(file), "--config", str(tmp_path / "restored"), "--database-url", target)
    query = "SELECT last_value, (SELECT count(*) FROM events) FROM event_numbers"
    before, after = (
        [int(field) for field in engines.postgresql.execute(query, url.rpartition("/")[2]).split("|")]
        for url in (installed.url, target)
    )
    assert after[1] == before[1] > 0, "the events of the backup are there"
    assert after[0] >= before[0] + (1 << 32), "numbers that were taken after the backup are not taken again"


def test_restore_moves_state_and_spool(installed: Installed, target: str, tmp_path: Path):
    file, restored, state = tmp_path / "backup.tar", tmp_path / "restored", tmp_path / "state"
    back_up(installed, file)
    moved = ["--database-url", target, "--state", str(state), "--spool", str(tmp_path / "spool")]
    run("restore", str(file), "--config", str(restored), *moved)
    assert (state / "quarantine" / "vault").is_file()
    assert (tmp_path / "spool").is_dir()
    assert not (restored / "quarantine").exists()
    guard = YAML(typ="safe").load(restored / "guard/core/guard.yml")
    assert guard["lists"]["replica"] == str(state / "lists")
    assert guard["journal"]["folder"] == str(state / "journal")


def flip(position: Callable[[int], int]) -> Callable[[bytes], bytes]:
    def change(archive: bytes) -> bytes:
        at = position(len(archive))
        return archive[:at] + bytes([archive[at] ^ 1]) + archive[at + 1 :]

    return change


@pytest.mark.parametrize(
    "damage",
    [
        flip(lambda size: 600),  # inside the dump
        flip(lambda size: size // 2),
        flip(lambda size: 10),  # in a header
        flip(lambda size: size - 1),  # in the padding at the end
        lambda archive: archive[:-1],
        lambda archive: archive[:-20_480],  # the last record may hold nothing but the padding of tar
        lambda archive: archive[: len(archive) // 2],
        lambda archive: b"",
    ],
    ids=["dump", "middle", "header", "end", "cut by 1", "cut by two records", "half", "empty"],
)
def test_a_damaged_archive_is_rejected_and_changes_nothing(
    installed: Installed, target: str, tmp_path: Path, engines: Engines, damage: Callable[[bytes], bytes]
):
    file, restored = tmp_path / "backup.tar", tmp_path / "restored"
    back_up(installed, file)
    file.write_bytes(damage(file.read_bytes()))
    for words in (["backup", str(file), "--verify"], ["restore", str(file), "--database-url", target]):
        done = command(*words, "--config", str(restored))
        assert done.code == 2, done.out
        assert "is not an intact backup" in done.error
    assert not restored.exists()
    assert count_tables(engines, target) == 0


def forge(source: Path, target: Path, change: Callable[[dict[str, bytes], dict[str, object]], None]) -> None:
    """Write a changed archive whose digests are right again."""
    with tarfile.open(source) as tar:
        members = {each.name: tar.extractfile(each).read() for each in tar}  # type: ignore[union-attr]
    manifest = json.loads(members.pop("manifest.json"))
    del members["manifest.sha256"]
    change(members, manifest)
    manifest["digests"] = {name: sha256(contents).hexdigest() for name, contents in members.items()}
    encoded = json.dumps(manifest).encode()
    members |= {"manifest.json": encoded, "manifest.sha256": sha256(encoded).hexdigest().encode()}
    with tarfile.open(target, "w") as tar:
        for name, contents in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(contents)
            tar.addfile(info, io.BytesIO(contents))


@pytest.mark.parametrize(
    "name", ["configuration/../../escaped", "/escaped", "vault/../escaped", "configuration//escaped", "escaped"]
)
def test_a_member_outside_the_folders_is_rejected(installed: Installed, target: str, tmp_path: Path, name: str):
    file, forged, restored = tmp_path / "backup.tar", tmp_path / "forged.tar", tmp_path / "a" / "restored"
    back_up(installed, file)
    forge(file, forged, lambda members, _: members.update({name: b"x"}))
    done = command("restore", str(forged), "--config", str(restored), "--database-url", target)
    assert done.code == 2
    assert "not a member of a backup" in done.error
    assert [*tmp_path.rglob("escaped")] == []
    assert not restored.exists()


def test_a_link_in_the_target_leads_nowhere(installed: Installed, target: str, tmp_path: Path):
    file, restored, elsewhere = tmp_path / "backup.tar", tmp_path / "restored", tmp_path / "elsewhere"
    back_up(installed, file)
    elsewhere.mkdir()
    restored.mkdir()
    (restored / "secrets").symlink_to(elsewhere)
    done = command("restore", str(file), "--config", str(restored), "--database-url", target)
    assert done.code == 2
    assert "by a link" in done.error
    assert [*elsewhere.iterdir()] == []


def test_a_backup_of_a_newer_schema_is_rejected(installed: Installed, target: str, tmp_path: Path, engines: Engines):
    file, forged = tmp_path / "backup.tar", tmp_path / "forged.tar"
    back_up(installed, file)

    def newer(_: object, manifest: dict[str, object]) -> None:
        names = manifest["migrations"]
        assert isinstance(names, list)
        manifest.update(migrations=[*names, "9999_future"], version="99.0.0")

    forge(file, forged, newer)
    done = command("restore", str(forged), "--config", str(tmp_path / "restored"), "--database-url", target)
    assert done.code == 2
    assert "Install version 99.0.0 or newer" in done.error
    assert count_tables(engines, target) == 0


def test_a_backup_of_an_older_schema_is_migrated(
    installed: Installed, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file, folder = tmp_path / "backup.tar", tmp_path / "migrations"
    back_up(installed, file)
    shutil.copytree(FOLDER, folder)
    later = f"{len(known_migrations()) + 1:04d}_later"
    (folder / f"{later}.sql").write_text("CREATE TABLE later (number integer);")
    monkeypatch.setattr("mailwarden.cli.restore.known_migrations", partial(known_migrations, folder))
    monkeypatch.setattr("mailwarden.cli.restore.migrate", partial(migrate, folder=folder))
    done = command("restore", str(file), "--config", str(tmp_path / "restored"), "--database-url", target)
    assert done.code == 0, done.error
    assert f"applied {later}" in done.error
    assert asyncio.run(pending(target, folder)) == []


def deployment_of(engines: Engines, url: str) -> str:
    return engines.postgresql.execute("SELECT uid FROM deployment", url.rpartition("/")[2]).strip()


def test_a_restored_deployment_owns_its_new_vault(installed: Installed, target: str, tmp_path: Path, engines: Engines):
    file, restored = tmp_path / "backup.tar", tmp_path / "restored"
    back_up(installed, file)
    run("restore", str(file), "--config", str(restored), "--database-url", target)
    new = deployment_of(engines, target)
    assert new != deployment_of(engines, installed.url)
    assert (restored / "quarantine" / "owner").read_text() == new


async def sweep(url: str, store: Path, key: Path) -> int:
    database, vault = Database(url), Vault(FilesystemStore(store), read_ring(key, "contents.key"))
    try:
        retention = QuarantineRetention(vault, RetentionStore(database), ReleaseStore(database), RetentionDays())
        return await retention.find_orphans(timedelta(seconds=-60))
    finally:
        await database.close()


def test_a_restored_deployment_adopts_the_vault_of_production_by_command(
    installed: Installed, target: str, tmp_path: Path, engines: Engines
):
    file, restored, store = tmp_path / "backup.tar", tmp_path / "restored", installed.folder / "quarantine"
    key = installed.folder / "secrets" / "contents"
    assert asyncio.run(sweep(installed.url, store, key)) == 0
    production = deployment_of(engines, installed.url)
    assert (store / "owner").read_text() == production
    back_up(installed, file)
    words = ["--config", str(restored), "--database-url", target, "--state", str(installed.folder)]
    done = command("restore", str(file), *words)
    assert done.code == 0, done.error
    assert f"run: mailwarden quarantine take-ownership {production}" in done.error
    engines.postgresql.execute("DELETE FROM quarantine", target.rpartition("/")[2])
    with pytest.raises(CommandError, match=f"belongs to the deployment {production}"):
        asyncio.run(sweep(target, store, key))
    refused = command("quarantine", "take-ownership", "--config", str(restored))
    assert refused.code == 2
    assert production in refused.error

    assert "belongs to this deployment now" in run(
        "quarantine", "take-ownership", production, "--config", str(restored)
    )
    assert (store / "owner").read_text() == deployment_of(engines, target)
    if ROOT:
        assert (store / "owner").owner() == "nobody", "guard reads it"
    assert asyncio.run(sweep(target, store, key)) == 1
    with pytest.raises(CommandError, match="belongs to the deployment"):
        asyncio.run(sweep(installed.url, store, key))


def test_restore_refuses_a_target_in_use_unless_forced(installed: Installed, tmp_path: Path, engines: Engines):
    file = tmp_path / "backup.tar"
    back_up(installed, file)
    done = command("restore", str(file), "--config", str(installed.folder))
    assert done.code == 2
    assert "already has a configuration" in done.error
    done = command("restore", str(file), "--config", str(tmp_path / "other"))
    assert done.code == 2
    assert "tables" in done.error

    (installed.folder / "secrets" / "contents").write_text("lost")
    engines.postgresql.execute("DELETE FROM quarantine", installed.url.rpartition("/")[2])
    run("restore", str(file), "--config", str(installed.folder), "--force")
    assert asyncio.run(read_back(installed.folder, installed.url, installed.held)) == (RAW, 1)


def test_restore_refuses_while_a_process_uses_the_database(installed: Installed, target: str, tmp_path: Path):
    file = tmp_path / "backup.tar"
    back_up(installed, file)

    async def with_process() -> Done:
        database = Database(target)
        await database.probe()
        try:
            words = ("restore", str(file), "--config", str(tmp_path / "restored"), "--database-url", target)
            return await asyncio.to_thread(command, *words)
        finally:
            await database.close()

    done = asyncio.run(with_process())
    assert done.code == 2
    assert "Stop all of them first" in done.error


def test_a_message_that_is_gone_is_named(installed: Installed, tmp_path: Path):
    (body,) = (path for path in (installed.folder / "quarantine").rglob("*/*/*") if path.is_file())
    body.unlink()
    printed = back_up(installed, tmp_path / "backup.tar")
    assert f"not included: {body.relative_to(installed.folder / 'quarantine')}" in printed


def test_files_outside_the_folder_are_restored_on_request(installed: Installed, target: str, tmp_path: Path):
    outside = tmp_path / "elsewhere" / "contents"
    outside.parent.mkdir()
    shutil.move(installed.folder / "secrets" / "contents", outside)
    key = outside.read_bytes()
    for name in ("abby/abby/abby.yml", "guard/core/guard.yml"):
        path = installed.folder / name
        path.write_text(path.read_text().replace("secrets/contents", str(outside)))
    file = tmp_path / "backup.tar"
    back_up(installed, file)
    outside.unlink()
    words = ["restore", str(file), "--database-url", target, "--config"]
    done = command(*words, str(tmp_path / "first"))
    assert done.code == 0, done.error
    assert f"not restored: {outside}" in done.error
    run(*words, str(tmp_path / "first"), "--force", "--outside")
    assert outside.read_bytes() == key
    assert outside.stat().st_mode & 0o777 == 0o600


def test_a_further_host_is_backed_up_without_the_database(installed: Installed, tmp_path: Path):
    file = tmp_path / "backup.tar"
    printed = run("backup", str(file), "--no-database", "--config", str(installed.folder))
    assert "without the database" in printed
    assert "held messages with their bytes   1" in printed
    run("restore", str(file), "--config", str(tmp_path / "restored"))
    assert asyncio.run(read_back(tmp_path / "restored", installed.url, installed.held)) == (RAW, 1)


@pytest.mark.skipif(not ROOT, reason="the user of the services is another one than root")
def test_a_backup_names_the_files_that_the_services_may_not_read(installed: Installed):
    services = pwd.getpwnam("nobody")
    with TemporaryDirectory() as name:  # pytest's own folder is closed to other users
        folder = Path(name) / "config"
        shutil.copytree(installed.folder, folder)
        for path in (folder.parent, folder, *folder.rglob("*")):
            os.chown(path, 0, services.pw_gid)
            path.chmod(0o750 if path.is_dir() else 0o640)
        (hidden := folder / "yara").mkdir(mode=0o700)
        (key := folder / "tls" / "ca.key").chmod(0o600)
        os.setegid(services.pw_gid)
        os.seteuid(services.pw_uid)
        try:
            done = command("backup", "/tmp/backup.tar", "--config", str(folder))
        finally:
            os.seteuid(0)
            os.setegid(0)
    assert done.code == 2
    assert f"The user nobody may not read {hidden}, {key}: " in done.error
    assert "as root" in done.error
    assert "dumping" not in done.error


def test_a_missing_pg_dump_names_its_package(installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    done = command("backup", str(tmp_path / "backup.tar"), "--config", str(installed.folder))
    assert done.code == 2
    assert "postgresql-client" in done.error
    assert not (tmp_path / "backup.tar").exists()


def test_a_password_is_not_an_argument_of_a_program():
    url = "postgresql://warden:s%40cret@db.example:5432/mail?sslmode=require"
    assert without_password(url) == ("postgresql://warden@db.example:5432/mail?sslmode=require", "s@cret")
    assert without_password("postgresql:///mail?password=x&host=%2Frun") == ("postgresql:///mail?host=%2Frun", "x")
